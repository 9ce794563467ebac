"""The rows of a run's metric files: their columns, and the values of a run by round.

The files RUN/metrics/part-*.parquet are in long form: one row is one measurement. SCHEMA describes the
columns. METRICS (results/metrics.py) lists the rows that a run writes, and `raffed metrics` prints them;
readers may rely on both. A row without a client belongs to the server or is a mean over clients. Accuracies
are fractions in [0, 1]. Seconds are the only column in which two equal runs differ.

SCHEMA_VERSION is raised for a new column, unit or meaning. Parts of another version are refused with an error
that names the file.

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


SCHEMA_VERSION = 5

_WORD = pa.dictionary(pa.int32(), pa.string())


def _field(name: str, kind: pa.DataType, meaning: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"meaning": meaning})


SCHEMA: pa.Schema = pa.schema(
    [
        _field("run_id", _WORD, "the run's name, as in run.json"),
        _field("method", _WORD, "key of the method in METHODS"),
        _field("dataset", _WORD, "name of the data set"),
        _field("partition", _WORD, "the split as typed, e.g. dirichlet:100:0.5"),
        _field("seed", pa.int64(), "the run's seed"),
        _field("round", pa.int32(), "communication round, counted from 1; 0 is before any training"),
        _field(
            "client", pa.int32(), "client index; null is the server, or a mean over clients", nullable=True
        ),
        _field(
            "stage",
            pa.int32(),
            "stage of a continual split, counted from 0; null without stages",
            nullable=True,
        ),
        _field("class", pa.int32(), "class index; null is all classes together", nullable=True),
        _field("model", _WORD, "global, personal or local: whose weights were measured"),
        _field(
            "split", _WORD, "test (the server's), local_test (the client's), val or train: on which samples"
        ),
        _field(
            "metric",
            _WORD,
            "accuracy: a fraction in [0, 1]; loss: nats, mean over samples; others by their name",
        ),
        _field("value", pa.float64(), "the measurement, in the metric's unit; NaN if it was not a number"),
        _field("n", pa.int64(), "samples (for means over clients: clients) behind the value", nullable=True),
        _field(
            "bytes_up",
            pa.int64(),
            "bytes the method sends from clients to the server this round",
            nullable=True,
        ),
        _field(
            "bytes_down",
            pa.int64(),
            "bytes the method sends from server to clients this round",
            nullable=True,
        ),
        _field(
            "seconds", pa.float64(), "wall time in s; the one column two equal runs differ in", nullable=True
        ),
    ]
)
WORDS = tuple(field.name for field in SCHEMA if field.type == _WORD)


BY_SAMPLES = ("model", "metric", "round", "value")
RowMask = npt.NDArray[np.bool_]


def by_samples(rows: pa.Table) -> pd.DataFrame:
    """Return Σ correct / Σ samples over the clients that were scored in a round, by model, metric and round.

    A client without test samples does not count.

    Args:
        rows: Rows of a run (`raffed.results.rows`), with words as dictionaries.

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
