"""Derived randomness: every draw has its own generator, made of (seed, purpose, round, client)  (design.md §2).

No method changes another method's stream: the method is not part of the key, so with one seed all methods see the
same split, the same participants and the same batches. The purposes are listed once, here.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
import torch

Purpose = Literal[
    "weights", "sampling", "split", "batches", "augment", "dropout", "private", "sharers", "lite", "attack", "public", "server",
    "spectrum", "noise", "faults", "privacy", "masks", "expert",
]  # fmt: skip
PURPOSES: tuple[str, ...] = get_args(Purpose)


def seed(run: int, purpose: Purpose, round: int = 0, client: int = 0, *more: int) -> int:
    """A 63-bit seed for one purpose of one client in one round; `more` separates streams inside (a stage, a step)."""
    key = struct.pack(f"<{3 + len(more)}q", run, round, client, *more) + purpose.encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1


def generator(run: int, purpose: Purpose, round: int = 0, client: int = 0, *more: int) -> torch.Generator:
    """A CPU generator for `seed(...)`. Draws are made on the CPU on every device, so the bits do not depend on it."""
    return torch.Generator().manual_seed(seed(run, purpose, round, client, *more))


def generator_on(
    device: torch.device, run: int, purpose: Purpose, round: int = 0, client: int = 0, *more: int
) -> torch.Generator:
    """A generator on a device, for numbers too many to be drawn on the CPU and moved: dropout's."""
    return torch.Generator(device).manual_seed(seed(run, purpose, round, client, *more))


def rng(run: int, purpose: Purpose, round: int = 0, client: int = 0, *more: int) -> np.random.Generator:
    """The same for NumPy: client sampling, sharers."""
    return np.random.Generator(np.random.PCG64(seed(run, purpose, round, client, *more)))


@contextlib.contextmanager
def forked(value: int, devices: tuple[torch.device, ...] = ()) -> Iterator[None]:
    """Run the body with torch's global generators set to `value`, and put them back afterwards.

    Only for code of torch that knows no generator argument: layer initialisation.
    """
    cuda = [d for d in devices if d.type == "cuda"]
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(value)  # torch.manual_seed would also move CUDA's, which is not restored
        for device in cuda:
            torch.cuda.default_generators[device.index or 0].manual_seed(value)
        yield
