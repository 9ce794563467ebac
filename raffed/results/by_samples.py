"""The values of a run by round: those of all clients together, and those of single clients added up.

The rows of a run have the unweighted mean over clients. Some papers print Σ correct / Σ samples instead,
which is the mean weighted by the numbers of test samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raffed.results.metric import Metric
from raffed.results.metrics import PERSONAL_ACCURACY, PERSONAL_BETWEEN

if TYPE_CHECKING:
    import pandas as pd

BY_SAMPLES = ("model", "metric", "round", "value")
RowMask = npt.NDArray[np.bool_]


def by_samples(rows: pa.Table) -> pd.DataFrame:
    """Return Σ correct / Σ samples over the clients that were scored in a round, by model, metric and round.

    A client without test samples does not count.

    Args:
        rows: Rows of a run (`raffed.results.schema`), with words as dictionaries.

    Returns:
        The columns of BY_SAMPLES. The metric is accuracy or accuracy_between, always on local test parts, and
        the value is a fraction in [0, 1].
    """
    kept = ~np.asarray(rows["client"].is_null()) & is_word(rows["split"], PERSONAL_ACCURACY.split)
    kept &= is_word(rows["metric"], PERSONAL_ACCURACY.name) | is_word(rows["metric"], PERSONAL_BETWEEN.name)
    scored = rows.select(["model", "metric", "round", "value", "n"]).filter(pa.array(kept)).to_pandas()
    scored = scored[scored["n"] > 0].astype({"model": str, "metric": str})
    scored["value"] = (scored["value"] * scored["n"]).round()  # the whole number of correct answers
    sums = scored.groupby(["model", "metric", "round"])[["value", "n"]].sum()
    values: pd.DataFrame = (sums["value"] / sums["n"]).rename("value").reset_index()
    return values.astype({"value": float})[list(BY_SAMPLES)]


def common_values(rows: pa.Table, metric: Metric) -> list[tuple[int, float]]:
    """Return (rounds done, value) of a metric over all clients and classes, by round."""
    kept = np.asarray(rows["client"].is_null()) & np.asarray(rows["class"].is_null())
    for column, word in zip(("model", "split", "metric"), metric.place, strict=True):
        kept &= is_word(rows[column], word)
    common = rows.select(["round", "value"]).filter(pa.array(kept)).sort_by("round")
    return list(zip(common["round"].to_pylist(), common["value"].to_pylist(), strict=True))


def is_word(column: pa.ChunkedArray, word: str) -> RowMask:
    """Return which values of a categorical column equal `word`.

    Comparing codes is faster than comparing texts.
    """
    codes = column.combine_chunks()
    known = codes.dictionary.to_pylist()
    if word not in known:
        return np.zeros(len(column), bool)
    return np.asarray(codes.indices.to_numpy() == known.index(word), bool)
