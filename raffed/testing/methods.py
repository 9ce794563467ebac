"""The contract of a method: what must hold so that a run of it has the same bits everywhere."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.config.validation import Value, check_arguments
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.messages import ClientState, Summable, Wire
from raffed.core.method import Factory, Method
from raffed.core.params import Params, fields_of
from raffed.core.server import replied
from raffed.core.training.network import Network
from raffed.methods import method_info, method_name
from raffed.own.user_code import is_user_code, place_of
from raffed.runtime.record_files import load_record, load_server, save_record
from raffed.testing.contract import (
    Contract,
    Findings,
    ModuleVariables,
    NotApplicableError,
    global_draws,
    named,
)
from raffed.testing.federation import TinyFederation, leaves, network, same_bits

T = TypeVar("T")
EXACT = 1e-9  # in float64, where a stack of clients and the clients one by one are compared
SINGLE = 1e-6  # the same for what is kept in float32
EVERYBODY = (0, 1, 2, 3)
DIVISIONS = ((), (0,), (1,), (3, 0), (2, 1))  # clients of the first actor; the second has the others
RECORDS = "put what a client remembers into a Private record, and what it tells the server into a Wire"
PARTS = {"trained": "the trained model", "upload": "the upload", "client_state": "the kept state"}


@dataclass(frozen=True)
class MethodContract(Contract):
    """A method. `factory` is None if only the finished recipe was given."""

    factory: Factory | None
    args: Mapping[str, Value]
    recipe: Method | None = None

    kind = "method"

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

    @cached_property
    def variables(self) -> ModuleVariables:
        """The module variables of the method's own code, as they are when a check first asks for them."""
        homes = [] if self.factory is None else [inspect.getmodule(inspect.unwrap(self.factory))]
        homes += [inspect.getmodule(type(ingredient)) for _, ingredient in self.made().ingredients()]
        known = [home for home in homes if home is not None and is_user_code(home.__file__ or "<")]
        return ModuleVariables(list(dict.fromkeys(known)))

    def surroundings(self) -> AbstractContextManager[None]:
        """Return what each check is made in: nothing that a check leaves in a variable reaches the next."""
        return self.variables.as_in_another_process()

    def check_arguments_declared(self) -> str:
        """Every argument has an annotation and a default."""
        if self.factory is None:
            raise NotApplicableError("a finished Method was given, not its factory")
        known = inspect.signature(inspect.unwrap(self.factory)).parameters
        for name, parameter in known.items():
            if parameter.annotation is parameter.empty:
                return f"{name} has no annotation; write {name}: Annotated[float, Range(0.0, 1.0)] = …"
            if parameter.default is parameter.empty and name not in self.args:
                return f"{name} has no default, so that `raffed run` could not start without it"
        return ""

    def check_plain_data(self) -> str:
        """Equal arguments make equal recipes, which hold no tensor and can be sent."""
        recipe = self.made()
        if recipe != self.made():
            return (
                "two calls with equal arguments return unequal recipes; keep numbers and words in ingredients"
            )
        for slot, ingredient in recipe.ingredients():
            for name, value in vars(ingredient).items():
                if isinstance(value, Tensor):
                    return f"{slot}.{name} holds a tensor; make it in `client_init` or `server_init`"
        if pickle.loads(pickle.dumps(recipe)) != recipe:
            return "the recipe is not the same after it was sent to another process"
        return ""

    def check_finite_losses(self) -> str:
        """Losses and weights are finite, with and without BatchNorm."""
        for norm in (False, True):
            tiny = self.tiny(norm=norm).run(2, EVERYBODY)
            for client, done in tiny.last.items():
                if not math.isfinite(done.loss):
                    return f"the loss of client {client} is {done.loss} after two rounds"
                if not done.steps:
                    return f"client {client} makes no step"
            if not all(bool(torch.isfinite(weight).all()) for weight in leaves(tiny.server.w)):
                return "a weight of the server's model is not finite after two rounds"
        return ""

    def check_terms_have_gradients(self) -> str:
        """Every term has a gradient at some client and in some round."""
        tiny = self.tiny()
        visits = [visit for _ in range(3) for visit in tiny.step(EVERYBODY).values()]
        idle = set.intersection(*(set(visit.idle) for visit in visits))
        for kind in (type(ingredient) for _, ingredient in tiny.method.ingredients()):
            if kind.__name__ in idle:
                place = place_of(getattr(kind, "loss", kind))
                return (
                    f"{place}: {kind.__name__} never has a gradient, so it changes nothing; compute its "
                    "value from f with torch and do not detach it, or return 0 where it adds nothing"
                )
        return ""

    def check_same_seed_same_bits(self) -> str:
        """One seed gives the same bits twice, and another seed gives others."""
        first, again, other = (self.tiny(seed).run(3).everything() for seed in (0, 0, 1))
        if not same_bits(first, again):
            return "two federations with one seed differ; draw random numbers in `Term.draw` only"
        return "another seed gives the same bits" if same_bits(first, other) else ""

    def check_no_global_generator(self) -> str:
        """The global random generators are left alone."""
        return global_draws(lambda: self.tiny().run(2))

    def check_client_order(self) -> str:
        """The order of the clients in a round does not matter."""
        ascending, mixed = (self.tiny().run(3, order) for order in (EVERYBODY, (3, 1, 0, 2)))
        same = same_bits(ascending.everything(), mixed.everything())
        return "" if same else f"a client's training depends on who was trained before it; {RECORDS}"

    def check_any_packing(self) -> str:
        """Any division of the clients among actors gives the same bits."""
        tiny, models = self.begun, []
        for first in DIVISIONS:
            second = tuple(client for client in EVERYBODY if client not in first)
            total = UploadAccumulator(tiny.method.keeps_uploads)
            for group in (first, second):
                part = UploadAccumulator(tiny.method.keeps_uploads)
                for client in group:
                    part.add(client, 0.25, tiny.visit(client).upload, "check")
                total.merge(part.export())
            again = copy.copy(tiny)
            again.receive(*total.finish(again.server), EVERYBODY)
            models.append(leaves(again.server))
        same = all(same_bits(models[0], model) for model in models)
        return "" if same else f"the server's model depends on which actor trained which client; {RECORDS}"

    def check_serial_is_stacked(self) -> str:
        """A stack of clients trains as each client alone, to 1e-9 in float64."""
        for norm in (False, True):
            tiny = self.tiny(norm=norm).run(1, EVERYBODY)
            alone, together = (_in_float64(tiny, cohort) for cohort in (False, True))
            for federation in (alone, together):
                federation.step(EVERYBODY)
            for client in EVERYBODY:
                for part, what in PARTS.items():
                    single, stacked = (leaves(getattr(tiny.last[client], part)) for tiny in (alone, together))
                    if not _close(single, stacked):
                        return (
                            f"{what} of client {client} differs in a stack; use no branch on a tensor's value"
                        )
        return ""

    def check_private_stays(self) -> str:
        """What is sent are Wires, and what is kept are Private records. A round refuses anything else."""
        self.tiny().run(2, EVERYBODY)
        return ""

    def check_no_module_state(self) -> str:
        """A round changes no variable of the method's modules, which other processes do not see."""
        self.tiny().run(2, EVERYBODY)
        changed = self.variables.changed()
        return f"{changed}; {RECORDS}" if changed else ""

    def check_own_storage(self) -> str:
        """Nothing that is sent shares memory with what stays."""
        tiny = self.begun
        done = tiny.visit(1)
        held = [*leaves(done.client_state), *leaves(tiny.client_states.get(1)), *leaves(tiny.server)]
        held += list(tiny.net.leaves("all").values())
        taken = {tensor.untyped_storage().data_ptr() for tensor in held if tensor.numel()}
        parts: dict[str, Params | Wire] = {
            "the weights": done.upload.w,
            "the buffers": done.upload.b,
            **done.upload.slots,
        }
        for what, part in parts.items():
            if taken & {tensor.untyped_storage().data_ptr() for tensor in leaves(part)}:
                return (
                    f"a tensor that is sent ({what}) is the memory of one that stays; send a copy: `.clone()`"
                )
        return ""

    def check_bytes_counted(self) -> str:
        """The bytes of everything that is sent are counted."""
        for client, done in self.begun.last.items():
            for slot, message in done.upload.slots.items():
                if why := _uncounted(message):
                    return f"client {client} sends {type(message).__name__} in {slot}: {why}"
        return ""

    def check_replies(self) -> str:
        """What a client downloads depends on its number alone, and its bytes are counted."""
        sent = self.begun.server.broadcast()
        alone = {client: leaves(replied(sent, client)) for client in EVERYBODY}
        for client in reversed(EVERYBODY):
            down = replied(sent, client)
            if not same_bits(alone[client], leaves(down)):
                return f"client {client} downloads something else after others; change nothing in `reply`"
            for slot, message in down.slots.items():
                if why := _uncounted(message):
                    return f"client {client} downloads {type(message).__name__} in {slot}: {why}"
        return ""

    def check_inputs_unchanged(self) -> str:
        """A client's round changes nothing in place and can be repeated."""
        tiny = self.tiny().run(2, EVERYBODY)
        sent, kept, data = tiny.server.broadcast(), tiny.client_states.get(1), tiny.data[1]
        parts = {
            "the weights that were downloaded": leaves(sent),
            "the client's memory": leaves(kept),
            "the client's samples": [data.x, data.y, data.class_counts],
        }
        before = {what: [tensor.clone() for tensor in tensors] for what, tensors in parts.items()}
        first = tiny.visit(1)
        for what, tensors in parts.items():
            if not same_bits(tensors, before[what]):
                return f"training changes {what} in place; make new tensors instead: `a + b`, not `a.add_(b)`"
        same = same_bits(leaves(first.upload), leaves(tiny.visit(1).upload))
        return "" if same else "the same round done twice gives other bits; draw in `Term.draw` only"

    def check_undrawn_unchanged(self) -> str:
        """A client that takes no part keeps its state bit for bit."""
        tiny = self.tiny().run(1, EVERYBODY)
        states = tiny.client_states.items()
        before = {client: [tensor.clone() for tensor in leaves(state)] for client, state in states}
        tiny.step([1])
        for client, values in before.items():
            if client != 1 and not same_bits(leaves(tiny.client_states[client]), values):
                return (
                    f"the memory of client {client} changed in a round of client 1 alone; the two share a "
                    "tensor: make a new one in `client_init`, and return a new one from `finish`"
                )
        return ""

    def check_resume_is_uninterrupted(self) -> str:
        """A run that is resumed from its files ends in the same bits."""
        whole = self.tiny().run(2, EVERYBODY)
        with tempfile.TemporaryDirectory() as folder:
            again = _read_back(whole, Path(folder))
        same = same_bits(whole.run(2).everything(), again.run(2).everything())
        return "" if same else "a resumed run ends in other bits; keep nothing outside the records"


def _uncounted(message: Wire) -> str:
    """Return which numbers of a message are not counted; "" if all are.

    The field that says which rows are sent need not be counted, because it only numbers them.
    """
    rows = message.rows if isinstance(message, Summable) else ""
    told = getattr(message, rows).bool() if rows else None
    wanted = 0
    for name, value in fields_of(message).items():
        tensors = [value] if isinstance(value, Tensor) else leaves(value)
        numbers = sum(tensor.numel() for tensor in tensors)
        if name in message.labels:
            if numbers and name != rows:
                return f"its {numbers} numbers in {name} are not counted; take {name} out of `labels`"
            continue
        for tensor in tensors:
            if told is not None and bool(torch.count_nonzero(tensor[~told])):
                return (
                    f"{name} has numbers for classes that {rows} leaves out, which are not counted; set "
                    f"these rows to 0, or take `rows` away"
                )
            sent = tensor if told is None else tensor[told]
            wanted += sent.numel() * (1 if sent.dtype == torch.bool else 4)
    counted = message.nbytes()
    if counted >= wanted:
        return ""
    return f"{counted} bytes are counted instead of {wanted}; do not override `nbytes`"


def _read_back(tiny: TinyFederation, folder: Path) -> TinyFederation:
    """Return the federation as its files hold it."""
    again = copy.copy(tiny)
    again.client_states = {}
    path = folder / "server.safetensors"
    save_record(tiny.server, path)
    again.server = load_server(path, tiny.method)
    for client, state in tiny.client_states.items():
        path = folder / f"{client}.safetensors"
        save_record(state, path)
        again.client_states[client] = load_record(path, ClientState, tiny.method.records)
    return again


def _in_float64(tiny: TinyFederation, cohort: bool) -> TinyFederation:
    doubled = copy.copy(tiny)
    doubled.net = Network(copy.deepcopy(tiny.net.module).double())
    doubled.data = [replace(data, x=data.x.double()) for data in tiny.data]
    doubled.server = _double(tiny.server)
    doubled.client_states = {client: _double(state) for client, state in tiny.client_states.items()}
    doubled.cohort = cohort
    doubled.arrange()
    return doubled


def _double(record: T) -> T:
    def wider(value: Tensor) -> Tensor:
        return value.double() if value.is_floating_point() else value

    widened: T = pytree.tree_map_only(Tensor, wider, record)
    return widened


def _close(some: list[Tensor], others: list[Tensor]) -> bool:
    if [tensor.shape for tensor in some] != [other.shape for other in others]:
        return False
    for tensor, other in zip(some, others, strict=True):
        bound = EXACT if tensor.dtype == torch.float64 else SINGLE
        if not torch.allclose(tensor.double(), other.double(), rtol=bound, atol=bound, equal_nan=True):
            return False
    return True


def check_method(
    method: str | Factory | Method, args: Mapping[str, Value] | None = None, *, name: str | None = None
) -> Findings:
    """Check a method against the contract that every method of raffed keeps.

    It takes a few seconds: federations of 4 clients are trained in memory.

    Args:
        method: A reference such as "mylab.methods:myprox", a name such as "fedprox", a factory, or a
            finished `Method`.
        args: Arguments of the factory; the others have their defaults.
        name: What messages call the method.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such method, or it does not take these arguments.

    Example:
        >>> check_method("fedprox", {"mu": 0.1}).ok
        True
    """
    recipe = method_of(method)
    if isinstance(recipe, Method):
        contract = MethodContract(None, {}, recipe)
    else:
        check_arguments(recipe, args or {})
        contract = MethodContract(recipe, dict(args or {}))
    return contract.findings(name or named(method))


def method_of(method: str | Factory | Method) -> Factory | Method:
    """Return the factory behind a name or a reference; a factory or a recipe is returned as it is."""
    return method_info(method_name(method)).load() if isinstance(method, str) else method
