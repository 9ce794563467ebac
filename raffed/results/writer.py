"""Metric rows in and out of RUN/metrics/: written by the driver only, a few rounds a file, each file in one step.

A part's name tells its rounds, `part-000001-000005.parquet`. A round that was flushed is closed, so parts do not overlap, but
for the instant in which `join` has written all rounds into one part and not yet removed the others: readers pass over a part
whose rounds another part holds as well.
Whatever instant the driver is killed at, what lies there reads as complete rounds without a duplicate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raffed.core.errors import RunFolderError, UsageError, check_choice, check_permitted
from raffed.results.atomic import clean, replacing, sync_folder
from raffed.results.canonical import rows_sha256, sorted_rows
from raffed.results.schema import MODELS, SCHEMA, SCHEMA_VERSION, SPLITS, Row

__all__ = ["METRICS_FOLDER", "MetricsWriter", "read_metrics", "rows_sha256", "rows_until"]

METRICS_FOLDER = "metrics"
_PART = re.compile(r"part-(\d{6,})-(\d{6,})\.parquet")
_VERSION_KEY, _RUN_KEY = b"raffed.schema", b"raffed.run"


class DamagedPartError(RunFolderError):
    """A part that is not, or no longer, what was written."""


class MetricsWriter:
    """Collects rows and writes them to `folder`/metrics, `folder` being the run's own folder (it is made if needed).

    >>> writer = MetricsWriter(folder, run_id="a", method="fedavg", dataset="digits", partition="iid:10", seed=0)
    >>> writer.add([Row(round=1, model="global", split="test", metric="accuracy", value=0.5)])
    >>> writer.flush()  # .../metrics/part-000001-000001.parquet
    """

    def __init__(self, folder: Path, run_id: str, method: str, dataset: str, partition: str, seed: int) -> None:
        self.folder = Path(folder) / METRICS_FOLDER
        self._run: dict[str, object] = {
            "run_id": run_id,
            "method": method,
            "dataset": dataset,
            "partition": partition,
            "seed": seed,
        }
        self._rows: list[Row] = []
        self.folder.mkdir(parents=True, exist_ok=True)
        clean(self.folder, "part-*")
        self._remove_joined()
        self._closed = max((last for _, last, _ in _parts(self.folder)), default=-1)

    def add(self, rows: Iterable[Row]) -> None:
        """Keep `rows` until the next flush. All rows of a round belong into one flush.

        Raises:
            UsageError: an unknown model or split, or a round that is already written (`drop_after` reopens it).
        """
        for row in rows:
            if row.model not in MODELS or row.split not in SPLITS:
                check_choice("model of a metric row", row.model, MODELS)
                check_choice("split of a metric row", row.split, SPLITS)
            if row.round <= self._closed:
                raise UsageError(
                    f"round = {row.round} of metric {row.metric!r} is closed: {self.folder} is written up to round "
                    f"{self._closed}; call drop_after({row.round - 1}) to write it anew"
                )
            self._rows.append(row)

    def flush(self) -> Path | None:
        """Write what was added as one part and return its path; None if nothing was added."""
        if not self._rows:
            return None
        rounds = [row.round for row in self._rows]
        path = self.folder / _part_name(min(rounds), max(rounds))
        self._write(path, _table(self._rows, self._run))
        self._closed = max(rounds)
        self._rows = []
        return path

    def drop_after(self, round: int) -> None:
        """Forget every row, written or not, of rounds later than `round`; used when a run resumes from `round`.

        Works from the last part backwards, one atomic step at a time, so a kill in the middle leaves whole rounds, each
        once, and calling it again finishes the work. A part that straddles `round` is replaced under its old name
        first and gets its shorter name second. Parts that go completely are deleted unread, damaged or not.
        """
        self._rows = [row for row in self._rows if row.round <= round]
        for first, last, path in reversed(_parts(self.folder)):
            if first > round:
                path.unlink()
            elif last > round:
                self._shorten(path, first, round)
        sync_folder(self.folder)
        self._closed = max((last for _, last, _ in _parts(self.folder)), default=-1)

    def join(self) -> None:
        """Put all parts together into one: who reads a thousand runs opens a thousand files and not fifteen thousand."""
        parts = _parts(self.folder)
        if len(parts) > 1:
            rows = pa.concat_tables([_read_part(path) for _, _, path in parts]).unify_dictionaries()
            self._write(self.folder / _part_name(parts[0][0], parts[-1][1]), rows)
            self._remove_joined()

    def _remove_joined(self) -> None:
        kept = {path for _, _, path in _parts(self.folder)}
        for path in self.folder.glob("part-*.parquet"):
            if _PART.fullmatch(path.name) and path not in kept:
                path.unlink()
        sync_folder(self.folder)

    def _shorten(self, path: Path, first: int, round: int) -> None:
        table = _read_part(path)
        self._write(path, table.filter(pc.less_equal(table["round"], round)))
        path.rename(path.with_name(_part_name(first, round)))

    def _write(self, path: Path, table: pa.Table) -> None:
        about = {_VERSION_KEY: str(SCHEMA_VERSION).encode(), _RUN_KEY: json.dumps(self._run, sort_keys=True).encode()}
        with replacing(path) as temp:
            pq.write_table(table.replace_schema_metadata(about), temp, compression="zstd", write_page_checksum=True)


def read_metrics(run_dir: Path) -> pa.Table:
    """Return every written row of a run as SCHEMA says, in one order whatever the parts: by round, client, …

    A run that has not flushed yet gives an empty table; temporary files are not looked at.

    Raises:
        RunFolderError: no such folder, a part that is damaged, or one of a later schema; the file is named.
    """
    if not Path(run_dir).is_dir():
        raise RunFolderError(f"{run_dir}: no such run folder")
    parts = [_read_part(path) for _, _, path in _parts(Path(run_dir) / METRICS_FOLDER)]
    return sorted_rows(pa.concat_tables([SCHEMA.empty_table(), *parts]).unify_dictionaries())


def rows_until(run_dir: Path) -> tuple[int, str]:
    """The round up to which every round of a run, from 1 on, has rows that can be read, and what stands in the way of more.

    Raises:
        RunFolderError: a part of a later schema.
    """
    folder, done = Path(run_dir) / METRICS_FOLDER, 0
    for _, _, path in _parts(folder):
        try:
            rounds = set(_read_part(path)["round"].unique().to_pylist())
        except DamagedPartError as error:
            return done, str(error)
        while done + 1 in rounds:
            done += 1
    return done, f"{folder}: no part has the rows of round {done + 1}; put back the file that has them"


def _part_name(first: int, last: int) -> str:
    return f"part-{first:06d}-{last:06d}.parquet"


def _parts(folder: Path) -> list[tuple[int, int, Path]]:
    """(first round, last round, path) of every part that no other part covers, in the order of rounds."""
    matches = [(_PART.fullmatch(path.name), path) for path in folder.glob("part-*.parquet")]
    spans = sorted(((int(m[1]), int(m[2]), path) for m, path in matches if m), key=lambda span: (span[0], -span[1]))
    kept: list[tuple[int, int, Path]] = []
    for span in spans:
        if not kept or span[1] > kept[-1][1]:
            kept.append(span)
    return kept


def _read_part(path: Path) -> pa.Table:
    # ParquetFile, not read_table: a folder named `mu=0.1` above the run would become a column.
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            version = int((file.schema_arrow.metadata or {}).get(_VERSION_KEY, b"0"))
            if 1 <= version <= SCHEMA_VERSION:  # later ones added words, no column
                return file.read().replace_schema_metadata(None).cast(SCHEMA)
    except (OSError, ValueError) as error:
        check_permitted(path, error)
        raise DamagedPartError(f"{path}: damaged ({error}); put back a copy of it") from error
    raise RunFolderError(f"{path}: schema {version}, this raffed reads {SCHEMA_VERSION} at most; use the raffed that wrote it")


def _table(rows: list[Row], run: dict[str, object]) -> pa.Table:
    columns: dict[str, list[object]] = {name: [value] * len(rows) for name, value in run.items()}
    for name, values in zip(Row._fields, zip(*rows, strict=True), strict=True):
        columns[name.rstrip("_")] = list(values)
    columns["value"] = [float(row.value) for row in rows]
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in SCHEMA}, schema=SCHEMA)
