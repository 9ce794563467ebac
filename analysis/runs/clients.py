"""Reduce the rows of single clients to each client's last scores and the time its rounds took.

The other rows of clients are not loaded.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa

from raffed.results.metrics import CLIENT_LOSS, PERSONAL_ACCURACY
from raffed.results.rows import is_word

SCORES = ("client", "stage", "metric", "round", "value")


def last_scores(rows: pa.Table) -> pd.DataFrame:
    """Return the last score of each client, stage and metric of its personal model on its local test set.

    The stage is NaN in runs without stages.
    """
    kept = (
        ~np.asarray(rows["client"].is_null())
        & is_word(rows["model"], PERSONAL_ACCURACY.model)
        & is_word(rows["split"], PERSONAL_ACCURACY.split)
    )
    frame: pd.DataFrame = rows.select(list(SCORES)).filter(pa.array(kept)).to_pandas()
    frame["stage"] = frame["stage"].astype(float)
    frame["metric"] = frame["metric"].astype(str)
    return frame.sort_values("round", kind="stable").drop_duplicates(
        ["client", "stage", "metric"], keep="last"
    )


def last_accuracies(scores: pd.DataFrame) -> pd.DataFrame:
    """Return client, round and value of each client's last accuracy, whatever its stage."""
    rows = scores.loc[scores["metric"] == PERSONAL_ACCURACY.name, ["client", "round", "value"]]
    return (
        rows.sort_values("round", kind="stable").drop_duplicates("client", keep="last").sort_values("client")
    )


def local_seconds(rows: pa.Table) -> tuple[float, float]:
    """Return the median seconds of a client's round, and of one training sample; NaN without measurements.

    The first round is left out, because it includes the warm-up.
    """
    kept = (
        ~np.asarray(rows["client"].is_null())
        & is_word(rows["model"], CLIENT_LOSS.model)
        & is_word(rows["metric"], CLIENT_LOSS.name)
    )
    timed = rows.select(["round", "seconds", "n"]).filter(pa.array(kept)).to_pandas()
    timed = timed[timed["round"] > 1].dropna()
    if timed.empty:
        return math.nan, math.nan
    return float(timed["seconds"].median()), float((timed["seconds"] / timed["n"]).median())
