"""Write metric rows into RUN/metrics/, and read them.

Only the driver writes. A file holds a few rounds and is written in one step. The name of a part contains its
rounds, such as `part-000001-000005.parquet`. A round that was flushed is closed, so parts do not overlap.
There is one exception: `join` writes all rounds into one part, and for an instant the others still exist.
Readers ignore a part whose rounds are all in another part. So at whatever instant the driver is killed, the
folder reads as complete rounds without duplicates.

run.json holds the hash of every part. It is recorded before the part gets its name. A part that run.json does
not list, or whose bytes differ, is not read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from raffed.errors import RunFolderError, UsageError, check_choice
from raffed.results.atomic import clean, replacing, sync_folder
from raffed.results.canonical import rows_sha256, sorted_rows
from raffed.results.metrics import METRICS
from raffed.results.metrics_part import PART, DamagedPartError, known_parts, read_part, table_of, write_part
from raffed.results.schema import MODELS, SCHEMA, SPLITS, Row
from raffed.results.tree import file_sha256, read_regular

__all__ = ["METRICS_FOLDER", "MetricsWriter", "read_metrics", "read_rows", "rows_sha256", "rows_until"]

METRICS_FOLDER = "metrics"
Record = Callable[[Mapping[str, str]], None]


class MetricsWriter:
    """Collect rows and write them to `folder`/metrics. `folder` is the run's own folder and is made if
    needed.

    `record` is called with the names of parts, below the run's folder, and the SHA-256 of their bytes, before
    the parts get these names.

    >>> writer = MetricsWriter(
    ...     folder, run_id="a", method="fedavg", dataset="digits", partition="iid:10", seed=0
    ... )  # doctest: +SKIP
    >>> writer.add(
    ...     [Row(round=1, model="global", split="test", metric="accuracy", value=0.5)]
    ... )  # doctest: +SKIP
    >>> writer.flush()  # .../metrics/part-000001-000001.parquet  # doctest: +SKIP
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        method: str,
        dataset: str,
        partition: str,
        seed: int,
        record: Record | None = None,
    ) -> None:
        self._record: Record = record or (lambda hashes: None)
        self.folder = Path(folder) / METRICS_FOLDER
        self._run: dict[str, str | int] = {
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
        """Keep `rows` until the next flush. All rows of a round must be in the same flush.

        Raises:
            UsageError: A model or split is unknown, METRICS has no such metric, or a round has been written
                already (`drop_after` reopens it).
        """
        for row in rows:
            if METRICS.find(row.model, row.split, row.metric) is None:
                check_choice("model of a metric row", row.model, MODELS)
                check_choice("split of a metric row", row.split, SPLITS)
                METRICS.at(row.model, row.split, row.metric)
            if row.round <= self._closed:
                raise UsageError(
                    f"round = {row.round} of metric {row.metric!r} is closed: {self.folder} is written up to "
                    f"round "
                    f"{self._closed}; call drop_after({row.round - 1}) to write it anew"
                )
            self._rows.append(row)

    def flush(self) -> Path | None:
        """Write the collected rows as one part and return its path; None if there are none."""
        with self.flushing() as hashes:
            self._record(hashes)
        return next((self.folder.parent / name for name in hashes), None)

    @contextlib.contextmanager
    def flushing(self) -> Iterator[Mapping[str, str]]:
        """Write the collected rows as one part, which gets its name when the block succeeds.

        Yields:
            The part's name and hash, which the block must record; empty if there are no rows.
        """
        if not self._rows:
            yield {}
            return
        rounds = [row.round for row in self._rows]
        path = self.folder / _part_name(min(rounds), max(rounds))
        with replacing(path) as temp:
            write_part(temp, table_of(self._rows, self._run), self._run)
            yield {_below(path): file_sha256(temp)}
        self._closed = max(rounds)
        self._rows = []

    def drop_after(self, round: int) -> None:
        """Delete every row, written or not, of rounds later than `round`. Used when a run resumes from
        `round`.

        It works from the last part backwards, one atomic step at a time. A kill in the middle leaves whole
        rounds, each once, and another call finishes the work. A part that contains rounds on both sides is
        first replaced by a shorter one, which does not count while the longer one exists. Parts that
        disappear completely are deleted without being read, damaged or not.
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
        """Put all parts into one, so that a report of a thousand runs opens a thousand files and not fifteen
        thousand.
        """
        parts = _parts(self.folder)
        if len(parts) > 1:
            rows = pa.concat_tables([read_part(path) for _, _, path in parts]).unify_dictionaries()
            self._write(self.folder / _part_name(parts[0][0], parts[-1][1]), rows)
            self._remove_joined()

    def _remove_joined(self) -> None:
        kept = {path for _, _, path in _parts(self.folder)}
        for path in self.folder.glob("part-*.parquet"):
            if PART.fullmatch(path.name) and path not in kept:
                path.unlink()
        sync_folder(self.folder)

    def _shorten(self, path: Path, first: int, round: int) -> None:
        table = read_part(path)
        self._write(
            path.with_name(_part_name(first, round)), table.filter(pc.less_equal(table["round"], round))
        )
        path.unlink()

    def _write(self, path: Path, table: pa.Table) -> None:
        with replacing(path) as temp:
            write_part(temp, table, self._run)
            self._record({_below(path): file_sha256(temp)})


def read_metrics(run_dir: Path) -> pa.Table:
    """Return every written row of a run in SCHEMA, in the order of `sorted_rows`.

    The result does not depend on how the rows are divided into parts. A run that has not flushed yet gives an
    empty table. Temporary files are ignored.

    Args:
        run_dir: The run's folder.

    Raises:
        RunFolderError: As `read_rows`.
    """
    return sorted_rows(read_rows(run_dir))


def read_rows(run_dir: Path, keep: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> pa.Table:
    """Return written rows of a run in SCHEMA, in no particular order.

    Args:
        run_dir: The run's folder.
        keep: Function from the rows of a part to those that are wanted.

    Raises:
        RunFolderError: The folder does not exist, or a part is damaged, differs from run.json, or has a later
            schema. The message names the file.
    """
    if not Path(run_dir).is_dir():
        raise RunFolderError(f"{run_dir}: there is no such run folder")
    found = [(path, read_regular(path)) for _, _, path in _parts(Path(run_dir) / METRICS_FOLDER)]
    # Read after the parts, because a running run records a part's hash before the part exists
    known = known_parts(run_dir)
    parts = [keep(known.read(path, raw)) for path, raw in found]
    return pa.concat_tables(parts or [SCHEMA.empty_table()]).unify_dictionaries()


def rows_until(run_dir: Path) -> tuple[int, str]:
    """Return the last round up to which all rounds from 1 on have readable rows, and what prevents more.

    Raises:
        RunFolderError: A part has a later schema, or run.json does not list it.
    """
    folder, done, known = Path(run_dir) / METRICS_FOLDER, 0, known_parts(run_dir)
    for _, _, path in _parts(folder):
        try:
            rounds = set(known.read(path)["round"].unique().to_pylist())
        except DamagedPartError as error:
            return done, str(error)
        while done + 1 in rounds:
            done += 1
    return done, f"{folder}: no part has the rows of round {done + 1}; put back the file that has them"


def parts_of(run_dir: Path) -> list[Path]:
    """Return the parts that a reader of a run's rows reads."""
    return [path for _, _, path in _parts(Path(run_dir) / METRICS_FOLDER)]


def _below(path: Path) -> str:
    """Return a part's name in run.json."""
    return f"{METRICS_FOLDER}/{path.name}"


def _part_name(first: int, last: int) -> str:
    return f"part-{first:06d}-{last:06d}.parquet"


def _parts(folder: Path) -> list[tuple[int, int, Path]]:
    """Return (first round, last round, path) of every part that no other part contains, in the order of
    rounds.
    """
    matches = [(PART.fullmatch(path.name), path) for path in folder.glob("part-*.parquet")]
    spans = sorted(
        ((int(m[1]), int(m[2]), path) for m, path in matches if m), key=lambda span: (span[0], -span[1])
    )
    kept: list[tuple[int, int, Path]] = []
    for span in spans:
        if not kept or span[1] > kept[-1][1]:
            kept.append(span)
    return kept
