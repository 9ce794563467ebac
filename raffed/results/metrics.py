"""METRICS, the table of everything that a run can measure. Each metric is declared once.

The metrics are constants of score_metrics, other_metrics and evaluation_metrics. Rows are made from them
(`Metric.row`), the writer refuses rows that METRICS does not know, `raffed metrics` prints it, and analysis
reads rows by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from raffed.results import evaluation_metrics, other_metrics, score_metrics
from raffed.results.metric import Metric
from raffed.results.metric_table import METRICS

__all__ = ["METRICS", "metric_lines", "register"]

# Importing these modules fills the table
_FILLED_BY = score_metrics, other_metrics, evaluation_metrics


def register(metric: Metric) -> Metric:
    """Add a metric to METRICS, so that runs may write rows of it. See `MetricTable.register`."""
    return METRICS.register(metric)


def metric_lines(metrics: Iterable[Metric] = METRICS) -> list[tuple[str, ...]]:
    """Return metrics as lines of a table: name, model, split, rows, unit, better, when and meaning."""
    return [
        (
            one.title,
            one.model,
            one.split,
            ", ".join(one.levels),
            one.unit.name,
            one.better,
            one.when,
            f"{one.meaning} (n: {one.n})",
        )
        for one in metrics
    ]
