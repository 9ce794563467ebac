"""Whether code reads or seeds a global random generator: Python's, NumPy's or torch's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

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


# Small batches of scores and labels on which losses and metrics are tried.


CLASSES = 5
SAMPLES = 15


def example_scores(samples: int = SAMPLES, classes: int = CLASSES) -> Tensor:
    """Return scores [n, C] of a network that is sometimes right, float32."""
    generator = torch.Generator().manual_seed(7)
    return 2.0 * torch.randn(samples, classes, generator=generator)


def example_labels(samples: int = SAMPLES, classes: int = CLASSES) -> Tensor:
    """Return labels [n], int64, in which every class occurs if there are enough samples."""
    return torch.arange(samples) * 2 % classes


def sure_scores(labels: Tensor, size: float, classes: int = CLASSES) -> Tensor:
    """Return scores [n, C] that are `size` for the label and 0 for the other classes.

    Args:
        labels: Labels [n], int64.
        size: How sure the network is; below 0 it is wrong everywhere.
        classes: Number of classes C.
    """
    return size * (labels[:, None] == torch.arange(classes)).to(torch.float32)
