"""The rule that ends a run early: its text, and the round in which it fires."""

from __future__ import annotations

import math

import pytest

from raffed.config.federation import MEASURES, StopRule, ValidationCurve, read_rule
from raffed.errors import UsageError

NAN = math.nan


def ends(text: str, values: list[float], every: int = 1) -> int | None:
    """The number of rounds done when the rule ends a run with these values, evaluated every few rounds."""
    rule = read_rule(text)
    assert rule is not None
    curve = ValidationCurve(rule.measure)
    for index, value in enumerate(values):
        round = (index + 1) * every
        curve.values[round] = value
        if rule.reason(curve, round):
            return round
    return None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("val.accuracy no better for 20 rounds", StopRule("val.accuracy", "waiting", 20)),
        ("val.loss no better for 3 rounds by 1e-3", StopRule("val.loss", "waiting", 3, 0.001)),
        ("val.personal above 0.9", StopRule("val.personal", "above", 0, 0.9)),
    ],
)
def test_a_text_stands_for_a_rule(text: str, rule: StopRule) -> None:
    assert read_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "val.accuracy",
        "val.accuracy no better for 0 rounds",
        "val.accuracy above 0.9 or so",
    ],
)
def test_another_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="no better for 20 rounds"):
        read_rule(text)


@pytest.mark.parametrize("measure", ["test.accuracy", "accuracy", "global"])
def test_test_data_cannot_end_a_run(measure: str) -> None:
    with pytest.raises(UsageError, match="test data may not decide"):
        read_rule(f"{measure} no better for 2 rounds")


@pytest.mark.parametrize(
    ("text", "values", "round"),
    [
        # The best is that of round 2; round 4 is the second round after it
        ("val.accuracy no better for 2 rounds", [0.1, 0.5, 0.4, 0.5, 0.9], 4),
        ("val.accuracy no better for 2 rounds", [0.1, 0.2, 0.3, 0.4], None),
        # An improvement by 0.05 does not count if 0.1 is asked for
        ("val.accuracy no better for 2 rounds by 0.1", [0.5, 0.55, 0.58, 0.9], 3),
        ("val.accuracy no better for 3 rounds by 0.1", [0.5, 0.55, 0.61, 0.65], None),
        ("val.loss no better for 1 round", [3.0, 2.0, 2.0], 3),
        ("val.accuracy no better for 2 rounds", [NAN, NAN, 0.1], 2),
        ("val.accuracy above 0.5", [0.5, 0.51], 2),
        ("val.loss below 0.5", [0.5, 0.49], 2),
    ],
)
def test_a_rule_ends_the_run_in_its_first_round(text: str, values: list[float], round: int | None) -> None:
    assert ends(text, values) == round


def test_waiting_counts_rounds_and_not_evaluations() -> None:
    # Evaluated after rounds 5, 10 and 15: the best is that of round 5, and round 15 is 10 rounds later
    assert ends("val.accuracy no better for 10 rounds", [0.5, 0.4, 0.3], every=5) == 15


@pytest.mark.parametrize(("measure", "larger"), MEASURES.items())
def test_the_best_round_is_the_earliest_of_equals(measure: str, larger: bool) -> None:
    values = [0.2, 0.7, 0.7, 0.5] if larger else [0.7, 0.2, 0.2, 0.5]
    curve = ValidationCurve(measure, enumerate(values, 1))
    assert curve.best() == (2, values[1])
