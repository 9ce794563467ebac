"""The metric rows of a run with a modelled attack."""

from __future__ import annotations

from collections.abc import Sequence

from raffed.core.aggregation.modelled_attacks import attackers
from raffed.core.measures.scores import ScoreCounts
from raffed.results.metrics import ATTACK_SUCCESS, ATTACKING
from raffed.results.row import Row
from raffed.runtime.api import Asked
from raffed.runtime.setup import Setup


def attack_rows(
    setup: Setup, number: int, participants: Sequence[int], score: Asked[ScoreCounts] | None
) -> list[Row]:
    """Return the rows about an attack: how many participants attacked, and how often a backdoor succeeds.

    Args:
        setup: The run.
        number: Number of rounds done.
        participants: The clients that trained.
        score: Score of the global model on images with the patch, where the target counts as right. None
            without a backdoor, or if the round is not evaluated.
    """
    plan = setup.config.faults
    if not plan.attack:
        return []
    who = attackers(plan, setup.config.seed, setup.partition.num_clients)
    rows = [ATTACKING.row(number, float(len(who & set(participants))), n=len(participants))]
    if score is not None:
        found = score()
        rows.append(ATTACK_SUCCESS.row(number, found.accuracy, n=found.n))
    return rows


__all__ = ["attack_rows"]
