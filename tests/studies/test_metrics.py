"""What studies measure, against closed forms (docs/papers/map.md §E4)."""

from __future__ import annotations

import math

import pytest
import torch
from raffed.reproductions.studies.metrics import (
    mean_cosine,
    mean_distance,
    mean_log_angle,
    mean_square,
    proxy_norm,
    spreads,
)

from raffed.core.params import Params


def test_the_proxy_norm_is_the_mean_of_the_norms_and_not_the_norm_of_the_mean() -> None:
    w = torch.tensor([[3.0, 4.0], [100.0, 0.0], [-3.0, -4.0]])
    assert proxy_norm(w, [0, 2]) == 5.0


def test_distances_count_every_unordered_pair_once_and_no_row_with_itself() -> None:
    """Corners (0,0), (3,4), (0,0): 5, 0 and 5 inside; to (6,8): 10, 5, 10."""
    w = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [6.0, 8.0]])
    assert mean_distance(w, [0, 1, 2]) == pytest.approx(10 / 3)
    assert mean_distance(w, [0, 1, 2], [3]) == pytest.approx(25 / 3)
    assert mean_distance(w, [0, 3]) == pytest.approx(10.0)
    assert math.isnan(mean_distance(w, [0]))


def test_the_log_angle_is_0_at_right_angles_and_log_2_between_opposites_whatever_the_lengths() -> None:
    w = torch.tensor([[2.0, 0.0], [0.0, 5.0], [-0.1, 0.0]])
    assert mean_log_angle(w, [0, 1]) == pytest.approx(0.0, abs=1e-9)
    assert mean_log_angle(w, [0], [2]) == pytest.approx(math.log(2))
    assert mean_log_angle(w, [0, 1, 2]) == pytest.approx(math.log(2) / 3, abs=1e-9)
    assert mean_log_angle(w[[0, 0]], [0, 1]) == pytest.approx(math.log(1e-12))


def test_the_cosine_to_a_direction_is_a_mean_over_classes() -> None:
    w = torch.tensor([[1.0, 0.0], [0.0, 3.0], [-2.0, 0.0]])
    assert mean_cosine(w, [0, 1], torch.tensor([7.0, 0.0])) == pytest.approx(0.5)
    assert mean_cosine(w, [2], torch.tensor([7.0, 0.0])) == pytest.approx(-1.0)


def test_spread_within_and_between_classes() -> None:
    """Class 0 at x = 0 and 2, class 3 at x = 10 and 14: distances to the means 1 and 2, means 11 apart."""
    z = torch.tensor([[0.0, 1.0], [10.0, 1.0], [2.0, 1.0], [14.0, 1.0]])
    intra, inter = spreads(z, torch.tensor([0, 3, 0, 3]))
    assert (intra, inter) == (pytest.approx(1.5), pytest.approx(11.0))


def test_the_mean_square_is_per_number() -> None:
    a, b = (Params({"w": torch.full((2, 3), v), "b": torch.full((4,), v)}) for v in (1.0, 3.0))
    assert mean_square(a, b) == 4.0
    assert mean_square(a, a) == 0.0
