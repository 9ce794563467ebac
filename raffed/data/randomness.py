"""Random numbers for partitions, from a seed and a purpose, equal on every platform and numpy version.

numpy guarantees the streams of `RandomState`, MT19937 and SeedSequence (NEP 19). Those of `Generator` may
change.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str) -> np.random.RandomState:
    """Return a new stream that depends on (seed, purpose) alone. The seed is at least 0."""
    return np.random.RandomState(_bits(seed, purpose))


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Return a new generator of NumPy's present kind, for code of the user's own.

    A later NumPy may draw other numbers from it. The run's partition holds what was drawn.
    """
    return np.random.Generator(_bits(seed, purpose))


def _bits(seed: int, purpose: str) -> np.random.MT19937:
    return np.random.MT19937(np.random.SeedSequence([seed, zlib.crc32(purpose.encode())]))
