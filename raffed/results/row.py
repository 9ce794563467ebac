"""One row of a run's metric files, before the writer adds the run's own columns."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One measurement in the units of SCHEMA. The writer adds run_id, method, dataset, partition and seed.

    Code that measures makes rows with `Metric.row` (results/metric.py), which knows the names.

    >>> Row(round=3, model="global", split="test", metric="accuracy", value=0.9, n=1000)  # doctest: +ELLIPSIS
    Row(round=3, model='global', split='test', metric='accuracy', value=0.9, client=None, ..., n=1000, ...)
    """

    round: int
    model: str
    split: str
    metric: str
    value: float
    client: int | None = None
    stage: int | None = None
    class_: int | None = None
    n: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    seconds: float | None = None
