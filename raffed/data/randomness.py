"""Random numbers for partitions: from the seed and a purpose, the same on every platform and numpy version.

numpy freezes the streams of `RandomState`, MT19937 and SeedSequence (NEP 19); those of `Generator` may
change.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str) -> np.random.RandomState:
    """A fresh stream that depends on (seed, purpose) alone; seed >= 0."""
    return np.random.RandomState(
        np.random.MT19937(np.random.SeedSequence([seed, zlib.crc32(purpose.encode())]))
    )
