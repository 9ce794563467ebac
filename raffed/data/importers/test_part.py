"""Draw a test set from samples that bring none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raffed.data.randomness import stream

IntArray = npt.NDArray[np.int64]


def drawn_test_part(y: IntArray, clients: IntArray | None, share: float, seed: int) -> IntArray:
    """Return the rows of the test part, in their order.

    The rule: a class with n samples gives round(share · n) of them, at least one and at most n - 1, so every
    class with two samples is trained and tested. Within a class they are spread evenly over the clients. A
    client all of whose samples would be drawn keeps its first one.

    Args:
        y: Labels [N].
        clients: Number of the client of every sample [N], or None.
        share: Fraction of each class, in [0, 0.9]; 0 draws nothing.
        seed: Decides which samples are drawn.
    """
    if share == 0:
        return np.zeros(0, np.int64)
    draws = stream(seed, "test part")
    chosen = np.zeros(len(y), dtype=bool)
    for label in range(int(y.max()) + 1):
        rows = draws.permutation(np.flatnonzero(y == label))
        if clients is not None:
            rows = rows[np.argsort(clients[rows], kind="stable")]
        wanted = min(max(round(share * len(rows)), 1), len(rows) - 1)
        if wanted > 0:
            # Every (n / wanted)-th row of the list that is sorted by client
            places = np.floor((np.arange(wanted) + draws.random_sample()) * (len(rows) / wanted))
            chosen[rows[places.astype(np.int64)]] = True
    if clients is not None:
        _leave_one(chosen, clients)
    return np.flatnonzero(chosen)


def _leave_one(chosen: npt.NDArray[np.bool_], clients: IntArray) -> None:
    """Give a client that has lost all its samples its first one back."""
    left = np.bincount(clients[~chosen], minlength=int(clients.max()) + 1)
    found, first = np.unique(clients, return_index=True)
    chosen[first[left[found] == 0]] = False
