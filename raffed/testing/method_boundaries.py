"""The sentences about what crosses between client and server, and about what stays where it is."""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.config.validation import Value
from raffed.core.aggregation.exact_sums import UploadAccumulator
from raffed.core.messages import ClientState, Private, Summable, Wire
from raffed.core.method import Factory, Method
from raffed.core.params import Params, fields_of
from raffed.own.user_code import is_user_code
from raffed.runtime.record_codec import load_record, load_server, save_record
from raffed.testing.federation import TinyFederation, leaves, network, same_bits

# The module variables of a method's code: what it must not keep anything in.
#
# Another process, such as a client actor or a resumed run, imports the module anew and finds these
# variables as they were written there. The checks imitate this.


PLAIN = (bool, int, float, str, dict, list, set, Tensor)


class ModuleVariables:
    """The values of module variables as they were at first.

    Args:
        modules: The modules. Functions, classes and other objects in them are left alone.
    """

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self._known: dict[tuple[ModuleType, str], pytree.PyTree] = {
            (module, name): _copied(value)
            for module in modules
            for name, value in vars(module).items()
            if not name.startswith("__") and isinstance(value, PLAIN)
        }

    @contextmanager
    def as_in_another_process(self) -> Iterator[None]:
        """Inside the block the variables have these values again; after it, those of before the block."""
        kept = {(module, name): getattr(module, name) for module, name in self._known}
        self._set({place: _copied(value) for place, value in self._known.items()})
        try:
            yield
        finally:
            self._set(kept)

    def advice(self) -> str:
        """Return what to do about a variable that has changed since then, or "" if none has."""
        for (module, name), value in self._known.items():
            if not _equal(getattr(module, name, None), value):
                file = Path(module.__file__ or module.__name__).name
                return (
                    f"{file} keeps something in its variable {name}, which other processes do not see; put "
                    f"what a client remembers into a Private record, and what it tells the server into a Wire"
                )
        return ""

    @staticmethod
    def _set(values: dict[tuple[ModuleType, str], pytree.PyTree]) -> None:
        for (module, name), value in values.items():
            setattr(module, name, value)


def _copied(value: pytree.PyTree) -> pytree.PyTree:
    if isinstance(value, set):
        return set(value)
    return pytree.tree_map_only(Tensor, lambda one: one.detach().clone(), value)


def _equal(one: pytree.PyTree, other: pytree.PyTree) -> bool:
    left, right = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return left[1] == right[1] and all(_same(a, b) for a, b in zip(left[0], right[0], strict=True))


def _same(one: pytree.PyTree, other: pytree.PyTree) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.numpy(force=True).tobytes() == other.numpy(force=True).tobytes()
    return type(one) is type(other) and bool(one == other)


# A method that is being checked, and the federations in which it is.


EVERYBODY = (0, 1, 2, 3)


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
        with self.another_process():
            return self.tiny().run(2, EVERYBODY)

    @cached_property
    def variables(self) -> ModuleVariables:
        """The module variables of the method's own code, as they are when a check first asks for them."""
        homes = [] if self.factory is None else [inspect.getmodule(inspect.unwrap(self.factory))]
        homes += [inspect.getmodule(type(one)) for _, one in self.made().ingredients()]
        own = [one for one in homes if one is not None and is_user_code(one.__file__ or "<")]
        return ModuleVariables(list(dict.fromkeys(own)))

    def another_process(self) -> AbstractContextManager[None]:
        """Imitate another process, which finds the module variables of the method's code untouched."""
        return self.variables.as_in_another_process()

    def advice(self, otherwise: str) -> str:
        """Return what to do about code that remembers something where other processes cannot see it.

        Args:
            otherwise: What is returned if no module variable has changed.
        """
        return self.variables.advice() or otherwise


DIVISIONS = ((), (0,), (1,), (3, 0), (2, 1))  # clients of the first actor; the second has the others
RECORDS = "put what a client remembers into a Private record, and what it tells the server into a Wire"


def client_order(subject: MethodSubject) -> str:
    """Compare two runs that differ only in the order in which clients are trained."""
    with subject.another_process():
        one = subject.tiny().run(3, [0, 1, 2, 3])
        why = subject.advice(RECORDS)
    with subject.another_process():
        two = subject.tiny().run(3, [3, 1, 0, 2])
    same = same_bits(one.everything(), two.everything())
    return "" if same else f"a client's training depends on which client was trained before it; {why}"


def packing(subject: MethodSubject) -> str:
    """Train a round in several divisions among two actors, and compare the server's next model."""
    tiny, found = subject.begun, list[list[Tensor]]()
    why = RECORDS
    for first in DIVISIONS:
        second = tuple(client for client in EVERYBODY if client not in first)
        total = UploadAccumulator(tiny.method.keeps_uploads)
        for group in (first, second):
            part = UploadAccumulator(tiny.method.keeps_uploads)
            with subject.another_process():  # as every actor is
                for client in group:
                    part.add(client, 0.25, tiny.visit(client).upload, "check")
                why = subject.advice(why)
            total.merge(part.export())
        again = copy.copy(tiny)
        with subject.another_process():
            again.receive(*total.finish(again.server), EVERYBODY)
        found.append(leaves(again.server))
    same = all(same_bits(found[0], other) for other in found[1:])
    return "" if same else f"the server's model depends on which actor trained which client; {why}"


def private_stays(subject: MethodSubject) -> str:
    """Look at the types of all messages and memories, and at the names of the weights that are sent."""
    sent, shared = (one.names for one in _weights_sent(subject))
    odd = sorted({*sent} ^ {*shared})
    if odd:
        return (
            f"the upload and what the split shares differ in {', '.join(odd)}; `outgoing` must return "
            f"weights with the names that it was given"
        )
    tiny = subject.begun
    slots = {slot for slot, _ in tiny.method.ingredients()} | {"server"}
    for client, done in tiny.last.items():
        for slot in done.upload.slots:
            if slot not in slots:
                return f"client {client} sends {slot}, which belongs to no ingredient; send it in `finish`"
        kept = tiny.client_states.get(client)
        for slot, memory in (kept.slots if kept is not None else {}).items():
            if not issubclass(type(memory), Private):
                return (
                    f"client {client} keeps a {type(memory).__name__} in {slot}, which could be sent by "
                    f"mistake; make it a subclass of Private"
                )
    return ""


def _weights_sent(subject: MethodSubject) -> tuple[Params, Params]:
    """Return the weights in an upload, and those that the split shares. Nothing is added up yet."""
    tiny = subject.tiny()
    return tiny.visit(0).upload.w, tiny.method.split.shared(tiny.net.initial.w, tiny.net.norm_names)


def own_storage(subject: MethodSubject) -> str:
    """Compare the memory of all tensors that are sent with that of all that stay."""
    tiny = subject.begun
    done = tiny.visit(1)
    held = [*leaves(done.client_state), *leaves(tiny.client_states.get(1)), *leaves(tiny.server)]
    held += list(tiny.net.leaves("all").values())
    taken = {_storage(one) for one in held if one.numel()}
    parts: dict[str, Params | Wire] = {
        "the weights": done.upload.w,
        "the buffers": done.upload.b,
        **done.upload.slots,
    }
    for what, part in parts.items():
        if taken & {_storage(one) for one in leaves(part) if one.numel()}:
            return (
                f"a tensor that is sent ({what}) is the same memory as one that stays, so that a change of "
                f"one changes the other; send a copy: `.clone()`"
            )
    return ""


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def bytes_counted(subject: MethodSubject) -> str:
    """Count the bytes of every message field by field, and compare."""
    for client, done in subject.begun.last.items():
        counted, wanted = done.upload.nbytes(), 4 * (done.upload.w.numel() + done.upload.b.numel())
        if counted < wanted:
            return f"client {client}: {counted} bytes are counted, and its weights alone are {wanted}"
        for slot, message in done.upload.slots.items():
            why = _uncounted(message)
            if why:
                return f"client {client} sends {type(message).__name__} in {slot}: {why}"
    return ""


def _uncounted(message: Wire) -> str:
    """Return which numbers of a message are not counted; "" if all are.

    The field that says which rows are sent need not be counted, because it only numbers them.
    """
    rows = message.rows if isinstance(message, Summable) else ""
    told = getattr(message, rows).bool() if rows else None
    wanted = 0
    for name, value in fields_of(message).items():
        found = leaves(value) if not isinstance(value, Tensor) else [value]
        numbers = sum(one.numel() for one in found)
        if name in message.labels:
            if numbers and name != rows:
                return f"its {numbers} numbers in {name} are not counted; take {name} out of `labels`"
            continue
        for one in found:
            if told is not None and bool(torch.count_nonzero(one[~told])):
                return (
                    f"{name} has numbers for classes that {rows} leaves out, which are not counted; set "
                    f"these rows to 0, or take `rows` away"
                )
            sent = one if told is None else one[told]
            wanted += sent.numel() * (1 if sent.dtype == torch.bool else 4)
    counted = message.nbytes()
    return (
        f"{counted} bytes are counted instead of {wanted}; do not override `nbytes`"
        if counted < wanted
        else ""
    )


def inputs_unchanged(subject: MethodSubject) -> str:
    """Train one client twice, and look whether its inputs are as they were."""
    tiny = subject.begun
    sent, kept, data = tiny.server.broadcast(), tiny.client_states.get(1), tiny.data[1]
    parts = {
        "the weights that were downloaded": leaves(sent),
        "the client's memory": leaves(kept),
        "the client's samples": [data.x, data.y, data.class_counts],
    }
    before = {what: [one.clone() for one in tensors] for what, tensors in parts.items()}
    with subject.another_process():
        first = tiny.visit(1)
    for what, tensors in parts.items():
        if not same_bits(tensors, before[what]):
            _put_back(tensors, before[what])
            return (
                f"training changes {what} in place; make new tensors instead, such as `a + b` for `a.add_(b)`"
            )
    why = subject.advice("draw random numbers in `Term.draw` only")
    again = tiny.visit(1)
    same = same_bits(leaves(first.upload), leaves(again.upload))
    return "" if same else f"the same round done twice gives other bits; {why}"


def _put_back(tensors: list[Tensor], values: list[Tensor]) -> None:
    """Undo a change, so that the checks after this one see the federation as it was."""
    with torch.no_grad():
        for one, value in zip(tensors, values, strict=True):
            one.copy_(value)


def undrawn_unchanged(subject: MethodSubject) -> str:
    """Look at the memories of the clients that did not take part in a round."""
    with subject.another_process():
        tiny = subject.tiny().run(1, EVERYBODY)
        states = tiny.client_states.items()
        before = {client: [one.clone() for one in leaves(state)] for client, state in states}
        tiny.step([1])
    for client, values in before.items():
        if client != 1 and not same_bits(leaves(tiny.client_states[client]), values):
            return (
                f"the memory of client {client} changed in a round in which only client 1 took part; the two "
                f"share a tensor: make a new one in `client_init`, and return a new one from `finish`"
            )
    return ""


def resume_is_uninterrupted(subject: MethodSubject) -> str:
    """Write the server and all client states into files, read them in a new process, and go on."""
    with subject.another_process():
        whole = subject.tiny().run(2, EVERYBODY)
        with tempfile.TemporaryDirectory() as folder:
            again = _read_back(whole, Path(folder))
        whole.run(2)
        why = subject.advice("the server's rule may remember something besides the record that it returns")
    with subject.another_process():
        again.run(2)
    same = same_bits(whole.everything(), again.everything())
    return "" if same else f"a run that is resumed from its files ends in other bits; {why}"


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
