"""The rule by which a test set is drawn where the data bring none."""

from __future__ import annotations

import numpy as np
import pytest

from raffed.data.importers.imported import drawn_test_part


@pytest.mark.parametrize("share", [0.1, 0.2, 0.25, 0.5, 0.9])
def test_each_class_gives_its_share_rounded(share: float) -> None:
    y = np.repeat([0, 1, 2], [40, 20, 10])
    rows = drawn_test_part(y, None, share, seed=0)
    assert np.bincount(y[rows]).tolist() == [round(share * n) for n in (40, 20, 10)]


def test_a_class_with_two_samples_is_trained_and_tested_and_one_with_a_single_sample_is_trained() -> None:
    y = np.array([0, 0, 1] + [2] * 10)
    rows = drawn_test_part(y, None, 0.2, seed=0)
    assert np.bincount(y[rows], minlength=3).tolist() == [1, 0, 2]


def test_the_rows_depend_on_the_seed_alone() -> None:
    y = np.arange(100) % 5
    first, again, other = (drawn_test_part(y, None, 0.2, seed).tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_every_client_gives_its_share_to_within_one_sample_of_each_class() -> None:
    y, clients = np.arange(400) % 4, np.repeat(np.arange(10), 40)
    rows = drawn_test_part(y, clients, 0.2, seed=3)
    assert all(abs(count - 8) <= 4 for count in np.bincount(clients[rows], minlength=10))
    for client in range(10):
        own = np.bincount(y[rows[clients[rows] == client]], minlength=4)
        assert set(own.tolist()) <= {1, 2, 3}


def test_a_client_with_one_sample_keeps_it() -> None:
    y, clients = np.array([0, 1] * 20), np.arange(40)
    rows = drawn_test_part(y, clients, 0.5, seed=0)
    assert len(rows) == 0


def test_a_share_of_0_draws_nothing() -> None:
    assert len(drawn_test_part(np.array([0, 1]), None, 0.0, 0)) == 0
