"""Seats of a test part by the shares of its classes: largest remainder, one for each class held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raffed.data import stages
from raffed.errors import UsageError


def test_seats_by_largest_remainder_with_one_for_each_class_held() -> None:
    """50:30:20 of 10 is 5, 3, 2. 97:2:1 of 10 would be 9.7, 0.2, 0.1: one each for the small ones. 1:1:1
    of 4: lowest first.
    """
    assert stages.apportioned(np.array([50, 30, 0, 20]), 10).tolist() == [5, 3, 0, 2]
    assert stages.apportioned(np.array([97, 2, 1]), 10).tolist() == [8, 1, 1]
    assert stages.apportioned(np.array([1, 1, 1]), 4).tolist() == [2, 1, 1]
    # 3.6, 2.8, 1.6: two seats to .8 and .6
    assert stages.apportioned(np.array([45, 35, 20]), 8).tolist() == [
        4,
        3,
        1,
    ]
    with pytest.raises(UsageError, match="2 test samples a stage for 3 classes"):
        stages.apportioned(np.array([1, 1, 1]), 2)


@settings(deadline=None)
@given(shares=st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any), extra=st.integers(0, 60))
def test_seats_add_up_and_are_within_one_of_exact_shares_where_one_seat_is_not_forced(
    shares: list[int], extra: int
) -> None:
    counts = np.array(shares)
    size = int((counts > 0).sum()) + extra
    seats = stages.apportioned(counts, size)
    assert seats.sum() == size
    assert ((seats > 0) == (counts > 0)).all()
    exact = counts / counts.sum() * size
    if (exact[counts > 0] >= 1).all():
        assert (np.abs(seats - exact) < 1).all()
