"""What the server holds of the training pool: drawn from the seed, and nothing where nothing is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from raffed.data.partition import draw_server_holdout
from raffed.errors import UsageError

LABELS = np.array([0, 3, 0, 1, 3, 1, 0, 1])  # class 2 has no sample


def test_who_asks_for_nothing_gets_nothing_whatever_the_classes_hold() -> None:
    assert draw_server_holdout(LABELS, 4, 0, seed=0).tolist() == []


def test_a_class_is_never_taken_whole() -> None:
    pool = np.repeat([0, 1, 2], 3)
    taken = draw_server_holdout(pool, 3, 2, seed=5)
    assert np.bincount(pool[taken]).tolist() == [2, 2, 2]
    assert taken.tolist() == sorted(set(taken.tolist())) == draw_server_holdout(pool, 3, 2, seed=5).tolist()
    with pytest.raises(UsageError, match="needs 3 samples of class 0, but there are only 3"):
        draw_server_holdout(pool, 3, 3, seed=5)


def test_a_class_without_samples_is_named() -> None:
    with pytest.raises(UsageError, match="class 2, but there are only 0"):
        draw_server_holdout(LABELS, 4, 1, seed=0)
