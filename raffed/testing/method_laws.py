"""The sentences that hold of every method, each with the function that looks whether it does."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.config.validation import Value
from raffed.core import seeds
from raffed.core.aggregation.accumulator import UploadAccumulator
from raffed.core.messages import ClientState, Private, Wire
from raffed.core.method import Factory, Method
from raffed.core.round import ClientRound
from raffed.core.training.network import Network
from raffed.runtime.record_codec import load_record, load_server, save_record
from raffed.testing.federation import TinyFederation, leaves, network, same_bits
from raffed.testing.findings import Check, NotApplicableError

T = TypeVar("T")
EVERYBODY = (0, 1, 2, 3)
EXACT = 1e-9  # in float64, where a stack of clients and the clients one by one are compared
SINGLE = 1e-6  # the same for what is kept in float32


@dataclass(frozen=True)
class MethodSubject:
    """A method to be checked. `factory` is None if only the finished recipe was given."""

    factory: Factory | None
    args: Mapping[str, Value]
    recipe: Method | None = None

    def made(self) -> Method:
        """Return the recipe, made anew if there is a factory."""
        if self.factory is None:
            assert self.recipe is not None
            return self.recipe
        return self.factory(**self.args)

    def tiny(self, seed: int = 0, norm: bool = True) -> TinyFederation:
        """Return a federation of this method before its first round."""
        return TinyFederation(self.made(), net=network(norm), seed=seed)

    @cached_property
    def begun(self) -> TinyFederation:
        """A federation after two rounds of everybody. Checks must not change it."""
        return self.tiny().run(2, EVERYBODY)


def _arguments(subject: MethodSubject) -> str:
    if subject.factory is None:
        raise NotApplicableError("a finished Method was given, not its factory")
    known = inspect.signature(inspect.unwrap(subject.factory)).parameters
    for name, one in known.items():
        if one.annotation is one.empty:
            return f"{name} has no annotation; write {name}: Annotated[float, Range(0.0, 1.0)] = …"
        if one.default is one.empty and name not in subject.args:
            return f"{name} has no default, so that `raffed run` could not start without it"
    return ""


def _plain_data(subject: MethodSubject) -> str:
    one, two = subject.made(), subject.made()
    if one != two:
        return "two calls with equal arguments return unequal recipes; keep numbers and words in ingredients"
    for slot, ingredient in one.ingredients():
        for name, value in vars(ingredient).items():
            if isinstance(value, Tensor):
                return f"{slot}.{name} holds a tensor; make it in `client_init` or `server_init`"
    if pickle.loads(pickle.dumps(one)) != one:
        return "the recipe is not the same after it was sent to another process"
    return ""


def _same_seed(subject: MethodSubject) -> str:
    one, two, other = (subject.tiny(seed).run(3).everything() for seed in (0, 0, 1))
    if not same_bits(one, two):
        return "two federations with one seed differ; draw random numbers in `Term.draw` only"
    return "another seed gives the same bits" if same_bits(one, other) else ""


def _global_generator(subject: MethodSubject) -> str:
    with torch.random.fork_rng(devices=[]), seeds.forked(1):
        before = torch.get_rng_state()
        subject.tiny().run(2)
        return (
            ""
            if torch.equal(torch.get_rng_state(), before)
            else "torch's global generator was read or seeded"
        )


def _client_order(subject: MethodSubject) -> str:
    one, two = subject.tiny().run(3, [0, 1, 2, 3]), subject.tiny().run(3, [3, 1, 0, 2])
    return "" if same_bits(one.everything(), two.everything()) else "the order of the clients changes bits"


def _packing(subject: MethodSubject) -> str:
    """Add the uploads of a round in every division among two actors, and compare the server's next model."""
    tiny = subject.begun
    done = {client: tiny.visit(client) for client in EVERYBODY}
    found: list[list[Tensor]] = []
    for first in itertools.chain.from_iterable(itertools.combinations(EVERYBODY, k) for k in range(3)):
        second = [client for client in EVERYBODY if client not in first]
        total = UploadAccumulator(tiny.method.keeps_uploads)
        for group in (first, second):
            part = UploadAccumulator(tiny.method.keeps_uploads)
            for client in group:
                part.add(client, 0.25, done[client].upload, "check")
            total.merge(part.export())
        again = copy.copy(tiny)
        again.receive(*total.finish(again.server), EVERYBODY)
        found.append(leaves(again.server))
    same = all(same_bits(found[0], other) for other in found[1:])
    return "" if same else "the server's model depends on which actor trained which client"


def _stacked(subject: MethodSubject) -> str:
    """Compare a round of everybody in float64, one by one and stacked."""
    for norm in (False, True):
        tiny = subject.tiny(norm=norm).run(1, EVERYBODY)
        alone, together = (_in_float64(tiny, cohort) for cohort in (False, True))
        alone.step(EVERYBODY)
        together.step(EVERYBODY)
        for client in EVERYBODY:
            one, other = alone.last[client], together.last[client]
            for what, a, b in _of_round(one, other):
                if not _close(a, b):
                    return f"{what} of client {client} differs in a stack; use no branch on a tensor's value"
    return ""


def _of_round(one: ClientRound, other: ClientRound) -> Iterator[tuple[str, list[Tensor], list[Tensor]]]:
    yield "the trained model", leaves(one.trained), leaves(other.trained)
    yield "the upload", leaves(one.upload), leaves(other.upload)
    yield "the kept state", leaves(one.client_state), leaves(other.client_state)


def _in_float64(tiny: TinyFederation, cohort: bool) -> TinyFederation:
    made = copy.copy(tiny)
    made.net = Network(copy.deepcopy(tiny.net.module).double())
    made.data = [replace(one, x=one.x.double()) for one in tiny.data]
    made.server = _double(tiny.server)
    made.client_states = {c: _double(v) for c, v in tiny.client_states.items()}
    made.cohort = cohort
    made.arrange()
    return made


def _double(record: T) -> T:
    def wider(value: Tensor) -> Tensor:
        return value.double() if value.is_floating_point() else value

    made: T = pytree.tree_map_only(Tensor, wider, record)
    return made


def _close(one: list[Tensor], other: list[Tensor]) -> bool:
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        bound = EXACT if a.dtype == torch.float64 else SINGLE
        if a.shape != b.shape or not torch.allclose(
            a.double(), b.double(), rtol=bound, atol=bound, equal_nan=True
        ):
            return False
    return True


def _private(subject: MethodSubject) -> str:
    tiny = subject.begun
    slots = {slot for slot, _ in tiny.method.ingredients()} | {"server"}
    for client, done in tiny.last.items():
        for slot, message in done.upload.slots.items():
            if not issubclass(type(message), Wire):
                return f"client {client} sends a {type(message).__name__} in {slot}; it must be a Wire"
            if slot not in slots:
                return f"client {client} sends {slot}, which belongs to no ingredient"
        kept = tiny.client_states.get(client)
        for slot, memory in (kept.slots if kept is not None else {}).items():
            if not issubclass(type(memory), Private):
                return (
                    f"client {client} keeps a {type(memory).__name__} in {slot}; it must be a Private record"
                )
    if tiny.last[0].upload.w.names != tiny.method.split.shared(tiny.net.initial.w).names:
        return "the upload holds other layers than those that the split shares"
    return ""


def _storage(subject: MethodSubject) -> str:
    tiny = subject.begun
    done = tiny.visit(1)
    held = [*leaves(done.client_state), *leaves(tiny.client_states.get(1)), *leaves(tiny.server)]
    held += list(tiny.net.leaves("all").values())
    taken = {one.untyped_storage().data_ptr() for one in held if one.numel()}
    sent = {one.untyped_storage().data_ptr() for one in leaves(done.upload) if one.numel()}
    return "a tensor that is sent is the memory of one that stays; clone it" if taken & sent else ""


def _bytes(subject: MethodSubject) -> str:
    for client, done in subject.begun.last.items():
        counted, wanted = done.upload.nbytes(), 4 * (done.upload.w.numel() + done.upload.b.numel())
        if counted < wanted:
            return f"client {client}: {counted} bytes are counted, and its weights alone are {wanted}"
        for slot, message in done.upload.slots.items():
            numbers = sum(tensor.numel() for tensor in leaves(message))
            if numbers and not message.nbytes():
                return f"client {client} sends {numbers} numbers in {slot}, whose bytes are not counted"
    return ""


def _unchanged(subject: MethodSubject) -> str:
    tiny = subject.begun
    sent, client_state, data = tiny.server.broadcast(), tiny.client_states.get(1), tiny.data[1]
    found = [*leaves(sent), *leaves(client_state), data.x, data.y, data.class_counts]
    before = [one.clone() for one in found]
    first = tiny.visit(1)
    if not same_bits(found, before):
        return "training changes what it was given in place; return new tensors"
    again = tiny.visit(1)
    same = same_bits(leaves(first.upload), leaves(again.upload))
    return "" if same else "the same round done twice gives other bits"


def _resumed(subject: MethodSubject) -> str:
    """Write the server and all client states into files, read them, and go on."""
    tiny = subject.begun
    whole, again = copy.copy(tiny), copy.copy(tiny)
    whole.client_states, again.client_states = dict(tiny.client_states), {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.safetensors"
        save_record(tiny.server, path)
        again.server = load_server(path)
        for client, state in tiny.client_states.items():
            path = Path(folder) / f"{client}.safetensors"
            save_record(state, path)
            again.client_states[client] = load_record(path, ClientState)
    same = same_bits(whole.run(2).everything(), again.run(2).everything())
    return "" if same else "a run that is resumed from its files ends in other bits"


def _finite(subject: MethodSubject) -> str:
    for norm in (False, True):
        tiny = subject.tiny(norm=norm).run(2, EVERYBODY)
        for client, done in tiny.last.items():
            if not math.isfinite(done.loss):
                return f"the loss of client {client} is {done.loss} after two rounds"
            if not done.steps:
                return f"client {client} makes no step"
        if not all(bool(torch.isfinite(one).all()) for one in leaves(tiny.server.w)):
            return "a weight of the server's model is not finite after two rounds"
    return ""


def _undrawn(subject: MethodSubject) -> str:
    tiny = subject.tiny().run(1, EVERYBODY)
    before = {client: [one.clone() for one in leaves(state)] for client, state in tiny.client_states.items()}
    tiny.step([1])
    for client, values in before.items():
        if client != 1 and not same_bits(leaves(tiny.client_states[client]), values):
            return f"the state of client {client} changed in a round in which it did not take part"
    return ""


_LOOKS: tuple[tuple[str, str, Callable[[MethodSubject], str]], ...] = (
    ("arguments-declared", "Every argument has an annotation and a default.", _arguments),
    ("plain-data", "Equal arguments make equal recipes, which hold no tensor and can be sent.", _plain_data),
    ("finite-losses", "Losses and weights are finite, with and without BatchNorm.", _finite),
    ("same-seed-same-bits", "One seed gives the same bits twice, and another seed gives others.", _same_seed),
    (
        "no-global-generator",
        "torch's global random generator is left alone.",
        _global_generator,
    ),
    ("client-order", "The order of the clients in a round does not matter.", _client_order),
    ("any-packing", "Any division of the clients among actors gives the same bits.", _packing),
    ("serial-is-stacked", "A stack of clients trains as each client alone, to 1e-9 in float64.", _stacked),
    ("private-stays", "What is sent are Wires, and what is kept are Private records.", _private),
    ("own-storage", "Nothing that is sent shares memory with what stays.", _storage),
    ("bytes-counted", "The bytes of everything that is sent are counted.", _bytes),
    ("inputs-unchanged", "A client's round changes nothing in place and can be repeated.", _unchanged),
    ("undrawn-unchanged", "A client that takes no part keeps its state bit for bit.", _undrawn),
    ("resume-is-uninterrupted", "A run that is resumed from its files ends in the same bits.", _resumed),
)
METHOD_CHECKS: tuple[Check[MethodSubject], ...] = tuple(Check(*one) for one in _LOOKS)

__all__ = ["METHOD_CHECKS", "MethodSubject"]
