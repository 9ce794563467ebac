"""Calibration error and fairness over clients, against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raffed.core.measures.final import calibration_error, spread, worst_decile


def logits_of(confidences: list[float]) -> torch.Tensor:
    """Two classes; class 0 is the answer with these confidences."""
    p = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([p, 1 - p], -1).log()


def test_a_model_that_is_right_as_often_as_it_is_sure_has_no_error() -> None:
    """Ten samples with confidence 0.8, eight of them right."""
    y = torch.tensor([0] * 8 + [1] * 2)
    assert calibration_error(logits_of([0.8] * 10), y) == pytest.approx(0.0, abs=1e-12)


def test_two_bins_count_by_their_samples() -> None:
    """0.9 and always right: gap 0.1 of 3 samples. 0.6 and always wrong: gap 0.6 of 1 sample."""
    found = calibration_error(logits_of([0.9, 0.9, 0.9, 0.6]), torch.tensor([0, 0, 0, 1]))
    assert found == pytest.approx((3 * 0.1 + 1 * 0.6) / 4)


def test_gaps_of_one_bin_cancel_and_those_of_two_do_not() -> None:
    y = torch.tensor([0, 1])
    assert calibration_error(logits_of([0.9, 0.9]), y, bins=15) == pytest.approx(0.4)
    assert calibration_error(logits_of([0.9, 0.6]), y, bins=1) == pytest.approx(abs(0.1 - 0.6) / 2)
    assert calibration_error(logits_of([0.9, 0.6]), y, bins=15) == pytest.approx((0.1 + 0.6) / 2)


def test_a_certain_model_has_its_error_rate_and_nobody_has_nan() -> None:
    y = torch.tensor([0, 0, 0, 1])
    assert calibration_error(torch.tensor([[1000.0, 0.0]] * 4), y) == 0.25
    assert math.isnan(calibration_error(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)))


def test_the_worst_decile_is_the_mean_of_the_lowest_tenth_rounded_up() -> None:
    assert worst_decile([one / 20 for one in range(20)]) == pytest.approx((0 + 1) / 2 / 20)
    assert worst_decile([0.5, 0.1, 0.9]) == 0.1
    assert worst_decile([one / 100 for one in range(11)]) == pytest.approx(0.005)
    assert math.isnan(worst_decile([]))


def test_the_spread_is_the_standard_deviation_over_clients() -> None:
    assert spread([0.0, 1.0]) == 0.5
    assert spread([0.25] * 4) == 0.0
    assert math.isnan(spread([]))


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_both_lie_in_their_ranges_and_the_worst_decile_is_at_most_the_mean(values: list[float]) -> None:
    assert 0.0 <= spread(values) <= 0.5 + 1e-12
    assert min(values) - 1e-12 <= worst_decile(values) <= sum(values) / len(values) + 1e-12
