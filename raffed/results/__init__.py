"""What a run leaves behind: metric rows in Parquet and one run.json, both written completely or not at all."""

from raffed.results.runfile import read_run, write_json
from raffed.results.schema import SCHEMA, SCHEMA_VERSION, Row
from raffed.results.writer import MetricsWriter, read_metrics, rows_sha256

__all__ = ["SCHEMA", "SCHEMA_VERSION", "MetricsWriter", "Row", "read_metrics", "read_run", "rows_sha256", "write_json"]
