"""Compute what each client gains over a baseline on the same split."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from ..runs.load import Runs


def client_gains(
    runs: Runs, names: Iterable[str], baseline: Iterable[str], metric: str = "accuracy"
) -> list[list[float]]:
    """Subtract the baseline's last score from that of each client, for runs with the same seed and split.

    The result has one list for each seed; gains are fractions. The metric is `accuracy`, measured after local
    training when the client last took part, or `accuracy_between`, measured on all clients between rounds.
    """
    seeds, splits = runs.runs["seed"], runs.runs["partition_sha256"]
    scores = runs.once(("client scores", metric), lambda: _last(runs, metric))
    others = list(baseline)
    found: list[list[float]] = []
    for name in names:
        for other in others:
            if (
                seeds[name] == seeds[other]
                and splits[name] == splits[other]
                and name in scores
                and other in scores
            ):
                found.append((scores[name].to_numpy(float) - scores[other].to_numpy(float)).tolist())
    known = [[value for value in values if not math.isnan(value)] for values in found]
    return [values for values in known if values]


def _last(runs: Runs, metric: str) -> pd.DataFrame:
    """Return client x run: each client's last score of a metric, whatever its stage."""
    rows = runs.scores[runs.scores["metric"] == metric].sort_values("round", kind="stable")
    rows = rows.drop_duplicates(["run", "client"], keep="last")
    frame: pd.DataFrame = rows.pivot(index="client", columns="run", values="value")
    return frame
