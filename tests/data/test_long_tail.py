"""The split with a long tail of classes."""

from __future__ import annotations

import numpy as np
import pytest

from raffed.data.label_splits import LongTail
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split
from raffed.errors import UsageError

LABELS = np.arange(1000) % 10  # 100 of every class


def test_class_sizes_fall_by_the_same_factor_from_class_to_class() -> None:
    """Cao et al. 2019: ⌊100 · 10^(−c/9)⌋ is 100, 77, 59, 46, 35, 27, 21, 16, 12, 10."""
    parts = LongTail(clients=5, alpha=0.5, imbalance=10.0).divide(LABELS, seed=0, num_classes=10)
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything)
    counts = np.bincount(LABELS[everything], minlength=10).tolist()
    assert counts == [100, 77, 59, 46, 35, 27, 21, 16, 12, 10]


def test_an_imbalance_of_1_is_the_dirichlet_split_of_all_samples() -> None:
    """Every sample has a client, and another seed draws other samples of the rare classes."""
    whole = LongTail(clients=5, alpha=0.5, imbalance=1.0).divide(LABELS, seed=0, num_classes=10)
    assert sorted(np.concatenate(whole).tolist()) == list(range(1000))
    tail = LongTail(clients=5, alpha=0.5, imbalance=10.0)
    first, second = (np.concatenate(tail.divide(LABELS, seed, 10)) for seed in (0, 1))
    assert sorted(first.tolist()) != sorted(second.tolist())


def test_what_no_client_has_is_counted_as_left_over() -> None:
    partition = make_partition(parse_split("longtail:5:0.5:10"), LABELS, 10, None, 0)
    assert partition.recipe["leftovers"] == 1000 - 403


def test_a_class_that_would_have_no_sample_is_refused() -> None:
    with pytest.raises(UsageError, match="the last class would have no sample"):
        LongTail(clients=5, alpha=0.5, imbalance=1000.0).divide(LABELS, seed=0, num_classes=10)
