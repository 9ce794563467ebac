"""The columns of the files RUN/metrics/part-*.parquet.

The files are in long form: one row is one measurement. SCHEMA describes the columns. METRICS
(results/metrics.py) lists the rows that a run writes, and `raffed metrics` prints them; readers may rely on
both. A row without a client belongs to the server or is a mean over clients. Accuracies are fractions in
[0, 1]. Seconds are the only column in which two equal runs differ.

SCHEMA_VERSION is raised for a new column, unit or meaning. Parts of another version are refused with an error
that names the file.
"""

from __future__ import annotations

import pyarrow as pa

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
