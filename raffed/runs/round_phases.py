"""The two phases of a round in the round loop: its training was requested, or its scores were."""

from __future__ import annotations

from dataclasses import dataclass

from raffed.core.aggregation.exact_sums import PartialSum
from raffed.core.messages import Broadcast
from raffed.runs.participation import RoundPlan
from raffed.runtime.api import Asked, RoundOrder
from raffed.runtime.reports import Report, ScoreCounts


@dataclass(frozen=True)
class RoundInTraining:
    """A round whose training has been requested. `began` is time.perf_counter() at that moment.

    `pieces` are the parts of the order with one model of the server each.
    """

    plan: RoundPlan
    order: RoundOrder
    began: float
    asked: Asked[tuple[PartialSum, list[Report]]]
    pieces: list[RoundOrder]


@dataclass(frozen=True)
class RoundInScoring:
    """A round whose uploads have been aggregated and whose scores have been requested.

    `whole` is the global model, or None if there is none. `test` and `val` are its scores. `sent` is the
    score of the broadcast weights, where a server's rule scores other weights. `attack` is the score of a
    backdoor, and `train` that on the training samples.
    """

    training: RoundInTraining
    reports: list[Report]
    whole: Broadcast | None
    test: Asked[ScoreCounts] | None
    val: Asked[ScoreCounts] | None
    sent: Asked[ScoreCounts] | None
    attack: Asked[ScoreCounts] | None
    train: Asked[ScoreCounts] | None


__all__ = ["RoundInScoring", "RoundInTraining"]
