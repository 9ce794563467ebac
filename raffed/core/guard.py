"""Clipped updates, noise and pairwise masks: what core/privacy.py asks for, as functions of uploads."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.params import Params


def clipped(w: Params, start: Params, limit: float) -> Params:
    """w^t + Δ · min(1, S / ‖Δ‖) with Δ = w − w^t, the norm over all numbers together; w itself if it is short enough."""
    update = w.flat.to(torch.float64) - start.flat.to(torch.float64)
    norm = float(update.norm())
    if not norm > limit:  # NaN is left to the check of the sums
        return w
    return Params.from_flat(w.layout, (start.flat.to(torch.float64) + update * (limit / norm)).to(torch.float32))


def noisy(w: Params, deviation: float, generator: torch.Generator) -> Params:
    """w + N(0, deviation²) on every number, drawn on the CPU; deviation 0 draws nothing."""
    if not deviation:
        return w

    def moved(t: Tensor) -> Tensor:
        noise = torch.randn(t.shape, generator=generator, dtype=torch.float64) * deviation
        return (t.to(torch.float64) + noise.to(t.device)).to(t.dtype)

    return Params({name: moved(t) for name, t in w.tensors.items()})


class Mask:
    """One client's masks of a round: Σ_{j>i} m_ij − Σ_{j<i} m_ij mod 2^64, m_ij uniform, from the stream of the pair.

    Over all `peers` (the clients whose uploads count) they add up to 0.
    """

    def __init__(self, seed: int, round: int, client: int, peers: Sequence[int]) -> None:
        self._key, self._client, self._others = (seed, round), client, [peer for peer in peers if peer != client]

    def of(self, part: str, like: Tensor) -> Tensor:
        """The mask of one buffer: int64, shape and device of `like`; `part` names it."""
        (seed, round), me, where = self._key, self._client, zlib.crc32(part.encode())
        total = np.zeros(like.numel(), np.uint64)
        for peer in self._others:
            stream = seeds.rng(seed, "masks", round, min(me, peer), max(me, peer), where)
            drawn = stream.integers(0, 2**64, total.size, dtype=np.uint64)
            total = total + drawn if me < peer else total - drawn
        return torch.from_numpy(total.view(np.int64)).reshape(like.shape).to(like.device)
