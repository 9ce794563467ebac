"""The contract of a method: what must hold so that a run of it has the same bits everywhere."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.config.validation import Value, check_arguments
from raffed.core.method import Factory, Method
from raffed.core.round import ClientRound
from raffed.core.training.network import Network
from raffed.own.user_code import place_of
from raffed.testing.federation import TinyFederation, leaves, same_bits
from raffed.testing.findings import Check, Findings, NotApplicableError, found_by, named, resolved
from raffed.testing.generators import global_draws
from raffed.testing.method_boundaries import (
    EVERYBODY,
    MethodSubject,
    bytes_counted,
    client_order,
    inputs_unchanged,
    own_storage,
    packing,
    private_stays,
    resume_is_uninterrupted,
    undrawn_unchanged,
)

# The sentences that hold of every method, each with the function that looks whether it does.


T = TypeVar("T")
EXACT = 1e-9  # in float64, where a stack of clients and the clients one by one are compared
SINGLE = 1e-6  # the same for what is kept in float32


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
    found = []
    for seed in (0, 0, 1):
        with subject.another_process():
            found.append(subject.tiny(seed).run(3).everything())
    one, two, other = found
    if not same_bits(one, two):
        return "two federations with one seed differ; draw random numbers in `Term.draw` only"
    return "another seed gives the same bits" if same_bits(one, other) else ""


def _global_generator(subject: MethodSubject) -> str:
    return global_draws(lambda: subject.tiny().run(2))


def _stacked(subject: MethodSubject) -> str:
    """Compare a round of everybody in float64, one by one and stacked."""
    for norm in (False, True):
        with subject.another_process():
            tiny = subject.tiny(norm=norm).run(1, EVERYBODY)
        alone, together = (_in_float64(tiny, cohort) for cohort in (False, True))
        for one in (alone, together):
            with subject.another_process():
                one.step(EVERYBODY)
        for client in EVERYBODY:
            for what, a, b in _of_round(alone.last[client], together.last[client]):
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


def _finite(subject: MethodSubject) -> str:
    for norm in (False, True):
        with subject.another_process():
            tiny = subject.tiny(norm=norm).run(2, EVERYBODY)
        for client, done in tiny.last.items():
            if not math.isfinite(done.loss):
                return f"the loss of client {client} is {done.loss} after two rounds"
            if not done.steps:
                return f"client {client} makes no step"
        if not all(bool(torch.isfinite(one).all()) for one in leaves(tiny.server.w)):
            return "a weight of the server's model is not finite after two rounds"
    return ""


def _gradients(subject: MethodSubject) -> str:
    """Train three rounds, and look which terms never had a gradient at any client."""
    with subject.another_process():
        tiny, idle = subject.tiny(), set[str]()
        for number in range(3):
            here = set.intersection(*(set(one.idle) for one in tiny.step(EVERYBODY).values()))
            idle = idle & here if number else here
    for kind in (type(one) for _, one in tiny.method.ingredients() if type(one).__name__ in idle):
        place = place_of(getattr(kind, "loss", kind))
        return (
            f"{place}: {kind.__name__} never has a gradient, so it changes nothing; compute its value from f "
            f"with torch and do not detach it, or return 0 where it adds nothing"
        )
    return ""


_LOOKS: tuple[tuple[str, str, Callable[[MethodSubject], str]], ...] = (
    ("arguments-declared", "Every argument has an annotation and a default.", _arguments),
    ("plain-data", "Equal arguments make equal recipes, which hold no tensor and can be sent.", _plain_data),
    ("finite-losses", "Losses and weights are finite, with and without BatchNorm.", _finite),
    ("terms-have-gradients", "Every term has a gradient at some client and in some round.", _gradients),
    ("same-seed-same-bits", "One seed gives the same bits twice, and another seed gives others.", _same_seed),
    (
        "no-global-generator",
        "The global random generators are left alone.",
        _global_generator,
    ),
    ("client-order", "The order of the clients in a round does not matter.", client_order),
    ("any-packing", "Any division of the clients among actors gives the same bits.", packing),
    ("serial-is-stacked", "A stack of clients trains as each client alone, to 1e-9 in float64.", _stacked),
    ("private-stays", "What is sent are Wires, and what is kept are Private records.", private_stays),
    ("own-storage", "Nothing that is sent shares memory with what stays.", own_storage),
    ("bytes-counted", "The bytes of everything that is sent are counted.", bytes_counted),
    ("inputs-unchanged", "A client's round changes nothing in place and can be repeated.", inputs_unchanged),
    ("undrawn-unchanged", "A client that takes no part keeps its state bit for bit.", undrawn_unchanged),
    (
        "resume-is-uninterrupted",
        "A run that is resumed from its files ends in the same bits.",
        resume_is_uninterrupted,
    ),
)


def _apart(look: Callable[[MethodSubject], str]) -> Callable[[MethodSubject], str]:
    """Return the check so that nothing that the method leaves in a module variable reaches the next one."""

    def checked(subject: MethodSubject) -> str:
        with subject.another_process():
            return look(subject)

    return checked


METHOD_CHECKS: tuple[Check[MethodSubject], ...] = tuple(
    Check(name, sentence, _apart(look)) for name, sentence, look in _LOOKS
)


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
    found = method_of(method)
    if isinstance(found, Method):
        subject = MethodSubject(None, {}, found)
    else:
        check_arguments(found, args or {})
        subject = MethodSubject(found, dict(args or {}))
    return found_by(METHOD_CHECKS, subject, "method", name or named(method))


def method_of(method: str | Factory | Method) -> Factory | Method:
    """Return the factory or the recipe behind a name or a reference."""
    from raffed.methods import METHODS

    if isinstance(method, str) and method.strip().lower() in METHODS:
        return METHODS[method.strip().lower()].load()
    return resolved(method) if isinstance(method, str) else method
