"""What is kept of the rows of single clients: each one's last scores, and how long its rounds took. The
rest is not loaded.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

RowMask = npt.NDArray[np.bool_]
SCORES = ("client", "stage", "metric", "round", "value")


def last_scores(rows: pa.Table) -> pd.DataFrame:
    """The last score of each client, stage and metric of its personal model on its local test part; stage
    NaN without stages.
    """
    kept = (
        ~np.asarray(rows["client"].is_null())
        & is_word(rows["model"], "personal")
        & is_word(rows["split"], "local_test")
    )
    frame: pd.DataFrame = rows.select(list(SCORES)).filter(pa.array(kept)).to_pandas()
    frame["stage"] = frame["stage"].astype(float)
    frame["metric"] = frame["metric"].astype(str)
    return frame.sort_values("round", kind="stable").drop_duplicates(
        ["client", "stage", "metric"], keep="last"
    )


def last_accuracies(scores: pd.DataFrame) -> pd.DataFrame:
    """client, round, value of each client's last accuracy, in whatever stage."""
    found = scores.loc[scores["metric"] == "accuracy", ["client", "round", "value"]]
    return (
        found.sort_values("round", kind="stable").drop_duplicates("client", keep="last").sort_values("client")
    )


def local_seconds(rows: pa.Table) -> tuple[float, float]:
    """Median seconds of a client's round, and per sample trained on; the first round, which warms up, is
    dropped. NaN: none.
    """
    kept = (
        ~np.asarray(rows["client"].is_null())
        & is_word(rows["model"], "local")
        & is_word(rows["metric"], "loss")
    )
    found = rows.select(["round", "seconds", "n"]).filter(pa.array(kept)).to_pandas()
    found = found[found["round"] > 1].dropna()
    if found.empty:
        return math.nan, math.nan
    return float(found["seconds"].median()), float((found["seconds"] / found["n"]).median())


def is_word(column: pa.ChunkedArray, word: str) -> RowMask:
    """Which values of a column of words are `word`; by code, which is quicker than by letters."""
    codes = column.combine_chunks()
    known = codes.dictionary.to_pylist()
    if word not in known:
        return np.zeros(len(column), bool)
    return np.asarray(codes.indices.to_numpy() == known.index(word), bool)
