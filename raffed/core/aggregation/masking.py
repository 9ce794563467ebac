"""Pairwise masks that cancel in the sum, for secure aggregation."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from raffed.core import seeds


class Mask:
    """The masks of one client in one round: Σ_{j>i} m_ij − Σ_{j<i} m_ij modulo 2^64.

    Each m_ij is uniform and comes from the random stream of the pair. Over all `peers`, which are the clients
    whose uploads count, the masks add up to 0.
    """

    def __init__(self, seed: int, round: int, client: int, peers: Sequence[int]) -> None:
        self._key, self._client, self._others = (
            (seed, round),
            client,
            [peer for peer in peers if peer != client],
        )

    def of(self, part: str, like: Tensor) -> Tensor:
        """Return the mask of one buffer, int64 with the shape and device of `like`.

        `part` is the name of the buffer.
        """
        (seed, round), me, where = self._key, self._client, zlib.crc32(part.encode())
        total = np.zeros(like.numel(), np.uint64)
        for peer in self._others:
            stream = seeds.rng(seed, "masks", round, min(me, peer), max(me, peer), where)
            drawn = stream.integers(0, 2**64, total.size, dtype=np.uint64)
            total = total + drawn if me < peer else total - drawn
        return torch.from_numpy(total.view(np.int64)).reshape(like.shape).to(like.device)
