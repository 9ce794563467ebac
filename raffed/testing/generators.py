"""Whether code reads or seeds a global random generator: Python's, NumPy's or torch's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")
ODD = 2_718_281  # nobody's own seed, so that seeding is noticed too


def global_draws(act: Callable[[], T]) -> str:
    """Call a function, and say which global generators it read or seeded.

    Afterwards all of them are as they were before.

    Args:
        act: The function.

    Returns:
        What is wrong, or "" if none was touched.
    """
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 (read, to see that nobody else reads it)
    with torch.random.fork_rng(devices=[]):
        try:
            torch.set_rng_state(torch.Generator().manual_seed(ODD).get_state())
            random.setstate(random.Random(ODD).getstate())
            np.random.set_state(np.random.RandomState(ODD).get_state())  # noqa: NPY002
            wanted = _states()
            act()
            found = _states()
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
    touched = [name for name, state in wanted.items() if found[name] != state]
    return f"the global random generator of {' and of '.join(touched)} was read or seeded" if touched else ""


def _states() -> dict[str, str]:
    numbers = np.random.get_state(legacy=False)  # noqa: NPY002
    return {
        "Python": repr(hash(random.getstate())),
        "NumPy": repr(numbers),
        "torch": torch.get_rng_state().numpy().tobytes().hex(),
    }


__all__ = ["global_draws"]
