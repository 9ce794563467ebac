"""Derived randomness: every draw has its own generator, made of (seed, purpose, round, client).

See docs/design.md §2. The method is not part of the key, so no method changes another method's random
numbers. With one seed, all methods see the same split, the same participants and the same batches. All
purposes are listed once, in this module.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import struct
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Literal, get_args

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

Purpose = Literal[
    "weights",
    "sampling",
    "split",
    "batches",
    "augment",
    "dropout",
    "private",
    "sharers",
    "lite",
    "attack",
    "public",
    "server",
    "spectrum",
    "noise",
    "faults",
    "privacy",
    "masks",
    "expert",
    "unseen",
    "attackers",
    "epochs",
    "opening",
    "head",
    "compression",
    "clock",
    "strength",
    "models",
    "peers",
]
PURPOSES: tuple[str, ...] = get_args(Purpose)


def seed(run: int, purpose: Purpose, round: int = 0, client: int = 0, *more: int) -> int:
    """Return a 63-bit seed for one purpose of one client in one round.

    Args:
        run: Seed of the run.
        purpose: What the random numbers are for.
        round: Number of the round, counted from 0.
        client: Number of the client, counted from 0.
        more: Further numbers that separate streams, such as a stage or a step.
    """
    key = struct.pack(f"<{3 + len(more)}q", run, round, client, *more) + purpose.encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1


def generator(run: int, purpose: Purpose, round: int = 0, client: int = 0, *more: int) -> torch.Generator:
    """Return a CPU generator for the same arguments as `seed`.

    Numbers are drawn on the CPU for every device, so that bits do not depend on the device.
    """
    return torch.Generator().manual_seed(seed(run, purpose, round, client, *more))


def generator_on(
    device: torch.device, run: int, purpose: Purpose, round: int = 0, client: int = 0, *more: int
) -> torch.Generator:
    """Return a generator on a device.

    Only dropout uses it, because it needs too many numbers to draw them on the CPU and move them.
    """
    return torch.Generator(device).manual_seed(seed(run, purpose, round, client, *more))


def rng(run: int, purpose: Purpose, round: int = 0, client: int = 0, *more: int) -> np.random.Generator:
    """Return a NumPy generator for the same arguments as `seed`, for example for drawing participants."""
    return np.random.Generator(np.random.PCG64(seed(run, purpose, round, client, *more)))


class _FromOneStream(TorchDispatchMode):
    """Give a generator to those of torch's random operations that were called without one.

    It is entered without the base class's `__enter__`, which also sets flags of the whole process. If two
    threads entered and left at overlapping times, these flags would stay set.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def __enter__(self) -> None:
        _push_mode(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _pop_mode()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, which takes longer to import than the rest of torch.

        The base class would import it at the first operation, to exclude this class from compilation.
        """
        return False

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[pytree.PyTree, ...] = (),
        kwargs: dict[str, pytree.PyTree] | None = None,
    ) -> pytree.PyTree:
        given = dict(kwargs or {})
        random = torch.Tag.nondeterministic_seeded in func.tags and not _drops_nothing(func, args, given)
        filled = args[0] if random and args and func._schema.name.endswith("_") else None
        if isinstance(filled, torch.Tensor) and filled.is_meta:
            return filled  # it has no numbers, and torch's own rule for `normal_` imports its compiler
        if random and given.get("generator") is None:
            func, given["generator"] = _taking_a_generator(func), self._generator
        return func(*args, **given)


class _ApartFromCompiler(_FromOneStream):
    """The same, excluded from compilation, for a process that has imported torch's compiler already."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[pytree.PyTree, ...] = (),
        kwargs: dict[str, pytree.PyTree] | None = None,
    ) -> pytree.PyTree:
        return super().__torch_dispatch__(func, types, args, kwargs)


@functools.cache
def _taking_a_generator(func: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """Return the form of a random operation that has an argument for the generator.

    For example, torch.rand has two forms, and `Tensor.normal_` has one.
    """
    if "generator" in _arguments(func):
        return func
    wanted = {*_arguments(func), "generator"}
    forms = (getattr(func.overloadpacket, name) for name in func.overloadpacket.overloads())
    seeded: torch._ops.OpOverload | None = next(
        (form for form in forms if set(_arguments(form)) == wanted), None
    )
    if seeded is None:
        raise RuntimeError(
            f"{func} draws from torch's global generator, as other threads do; use an operation with "
            f"generator="
        )
    return seeded


def _drops_nothing(
    func: torch._ops.OpOverload, args: tuple[pytree.PyTree, ...], kwargs: dict[str, pytree.PyTree]
) -> bool:
    """Return whether an operation, such as attention, has a dropout of probability 0 and so draws nothing."""
    names = _arguments(func)
    if "dropout_p" not in names:
        return False
    at = names.index("dropout_p")
    return kwargs.get("dropout_p", args[at] if at < len(args) else 0.0) == 0.0


def _arguments(func: torch._ops.OpOverload) -> list[str]:
    return [argument.name for argument in func._schema.arguments]


@contextlib.contextmanager
def forked(value: int) -> Iterator[None]:
    """Make torch draw from its own CPU generator, seeded with `value`, in the body and in this thread only.

    It is meant for code that has no argument for a generator, such as the constructors of torch's layers. The
    numbers are those that `torch.manual_seed(value)` would give. The global generator is neither read nor
    changed, because it belongs to the whole process, and another thread may use or seed it at any time.
    """
    kind = _ApartFromCompiler if "torch._dynamo" in sys.modules else _FromOneStream
    with kind(torch.Generator().manual_seed(value)):
        yield
