"""Compute what each client gains over a baseline on the same split."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from raffed.results.metric import Metric
from raffed.results.metrics import PERSONAL_ACCURACY

from ..runs.load import Runs


def client_gains(
    runs: Runs, names: Iterable[str], baseline: Iterable[str], metric: Metric = PERSONAL_ACCURACY
) -> list[list[float]]:
    """Subtract the baseline's last score from that of each client, for runs with the same seed and split.

    The result has one list for each seed; gains are fractions. The metric is that of the personal
    models after local training, when the client last took part, or `PERSONAL_BETWEEN`, which is measured on
    all clients between rounds.
    """
    seeds, splits = runs.runs["seed"], runs.runs["partition_sha256"]
    scores = runs.once(("client scores", metric.name), lambda: _last(runs, metric.name))
    others = list(baseline)
    gains: list[list[float]] = []
    for name in names:
        for other in others:
            if (
                seeds[name] == seeds[other]
                and splits[name] == splits[other]
                and name in scores
                and other in scores
            ):
                gains.append((scores[name].to_numpy(float) - scores[other].to_numpy(float)).tolist())
    known = [[value for value in values if not math.isnan(value)] for values in gains]
    return [values for values in known if values]


def _last(runs: Runs, metric: str) -> pd.DataFrame:
    """Return client x run: each client's last score of a metric, whatever its stage."""
    rows = runs.scores[runs.scores["metric"] == metric].sort_values("round", kind="stable")
    rows = rows.drop_duplicates(["run", "client"], keep="last")
    frame: pd.DataFrame = rows.pivot(index="client", columns="run", values="value")
    return frame
