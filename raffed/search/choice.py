"""Which of the trials of a method is chosen, and what choosing cost. Does not use Ray."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from raffed.search.request import NEVER_RUN, SEED_AXIS
from raffed.search.trials import Trial, trial_name


def choose(trials: Sequence[Trial]) -> Trial | None:
    """Return the finished trial with the highest score, the first of equals; None if none has a score.

    Trials that differ only in the seed count as one, with the mean of their scores, if all of them finished.
    """
    scored = [trial for trial in over_seeds(trials) if not math.isnan(trial.score)]
    return max(scored, key=lambda trial: trial.score) if scored else None


def over_seeds(trials: Sequence[Trial]) -> list[Trial]:
    """Return one trial for each setting without its seed, with the mean score over the seeds.

    Without an axis of seeds these are the trials themselves. A setting of which a seed has no score has none.
    """
    if not any(SEED_AXIS in trial.settings for trial in trials):
        return list(trials)
    together: dict[str, list[Trial]] = {}
    for trial in trials:
        settings = {name: value for name, value in trial.settings.items() if name != SEED_AXIS}
        together.setdefault(trial_name(settings), []).append(replace(trial, settings=settings))
    return [
        replace(
            same[0],
            name=name,
            rounds=sum(one.rounds for one in same),
            seconds=sum(one.seconds for one in same),
            score=statistics.fmean(one.score for one in same),  # of equal scores in any order it is equal
        )
        for name, same in together.items()
    ]


def cost(trials: Sequence[Trial]) -> dict[str, float]:
    """Return the cost of choosing: trials begun, their rounds, and the seconds of their processes."""
    begun = [trial for trial in trials if trial.state != NEVER_RUN]
    return {
        "trials": len(begun),
        "rounds": sum(t.rounds for t in begun),
        "seconds": sum(t.seconds for t in begun),
    }


__all__ = ["choose", "cost", "over_seeds"]
