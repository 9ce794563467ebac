"""When a run ends before its last round: the text of `federation.stop_when`, and what it means.

    val.accuracy no better for 20 rounds
    val.accuracy no better for 20 rounds by 0.001
    val.loss below 0.1

The measures come from the clients' validation parts. No test data can decide when a run ends. This module
imports neither torch nor NumPy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from raffed.errors import UsageError

# Measure → whether a larger value is better
MEASURES = {"val.accuracy": True, "val.loss": False, "val.personal": True}
FORMS = "'val.accuracy no better for 20 rounds', with 'by 0.001' behind it, or 'val.loss below 0.1'"
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_WAITING = re.compile(rf"no better for (\d{{1,9}}) rounds?(?: by {_NUMBER})?")
_BOUND = re.compile(rf"(above|below) {_NUMBER}")


@dataclass(frozen=True)
class StopRule:
    """A rule that ends a run.

    Attributes:
        measure: One of MEASURES.
        kind: "waiting": the measure has not become better for `rounds` rounds. "above" and "below": it has
            passed `bound`.
        rounds: Number of rounds of a waiting rule.
        bound: Of a waiting rule, by how much a value must be better to count, at least 0.
    """

    measure: str
    kind: Literal["waiting", "above", "below"]
    rounds: int = 0
    bound: float = 0.0

    def reason(self, curve: ValidationCurve, round: int) -> str:
        """Return why the run ends after `round` rounds; empty if it goes on.

        Args:
            curve: The values of the measure so far, the one of this round among them.
            round: Number of rounds done.
        """
        value = curve.values.get(round)
        if value is None:
            return ""
        if self.kind == "waiting":
            best = curve.best(self.bound)
            since = 0 if best is None else best[0]
            if round - since < self.rounds:
                return ""
            found = "it was never a number" if best is None else f"best {best[1]:.4g} after round {since}"
            return f"{self.measure} no better for {self.rounds} rounds ({found})"
        passed = value > self.bound if self.kind == "above" else value < self.bound
        return f"{self.measure} {self.kind} {self.bound:g} ({value:.4g})" if passed else ""


class ValidationCurve:
    """The values of one measure, by the number of rounds done."""

    def __init__(self, measure: str, values: Iterable[tuple[int, float]] = ()) -> None:
        self.measure, self.values = measure, dict(values)

    def better(self, value: float, than: float | None, by: float = 0.0) -> bool:
        """Return whether a value is better than another one by more than `by`. NaN is never better."""
        if than is None:
            return not math.isnan(value)
        return value > than + by if MEASURES[self.measure] else value < than - by

    def best(self, by: float = 0.0) -> tuple[int, float] | None:
        """Return round and value of the last improvement by more than `by`; the earliest among equals."""
        found: tuple[int, float] | None = None
        for round, value in sorted(self.values.items()):
            if self.better(value, None if found is None else found[1], by):
                found = round, value
        return found


def read_rule(text: str) -> StopRule | None:
    """Return the rule that a text stands for; None for an empty text.

    Raises:
        UsageError: The text is not a rule.
    """
    words = " ".join(text.split())
    if not words:
        return None
    measure, _, condition = words.partition(" ")
    if measure not in MEASURES:
        raise UsageError(
            f"federation.stop_when = {text!r}: {measure!r} cannot end a run; it must be one of "
            f"{', '.join(MEASURES)}, because test data may not decide"
        )
    if waiting := _WAITING.fullmatch(condition):
        rounds, by = int(waiting[1]), float(waiting[2] or 0.0)
        if rounds and by >= 0:
            return StopRule(measure, "waiting", rounds, by)
    elif bound := _BOUND.fullmatch(condition):
        return StopRule(measure, "above" if bound[1] == "above" else "below", 0, float(bound[2]))
    raise UsageError(f"federation.stop_when = {text!r}: it must be {FORMS}")
