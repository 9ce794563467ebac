"""The files of a run: metric rows in Parquet and one run.json. Each file is written completely or not
at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raffed.results.metric import Metric, Row
    from raffed.results.metrics import METRICS
    from raffed.results.runfile import read_run, write_json
    from raffed.results.schema import SCHEMA, SCHEMA_VERSION
    from raffed.results.writer import MetricsWriter, read_metrics, rows_sha256

__all__ = [
    "METRICS",
    "SCHEMA",
    "SCHEMA_VERSION",
    "Metric",
    "MetricsWriter",
    "Row",
    "read_metrics",
    "read_run",
    "rows_sha256",
    "write_json",
]

_HOMES = {
    **dict.fromkeys(("read_run", "write_json"), "raffed.results.runfile"),
    **dict.fromkeys(("SCHEMA", "SCHEMA_VERSION"), "raffed.results.schema"),
    "METRICS": "raffed.results.metrics",
    "Metric": "raffed.results.metric",
    "Row": "raffed.results.metric",
    **dict.fromkeys(("MetricsWriter", "read_metrics", "rows_sha256"), "raffed.results.writer"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, because run.json alone does not need pyarrow."""
    if name not in _HOMES:
        raise AttributeError(f"module 'raffed.results' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
