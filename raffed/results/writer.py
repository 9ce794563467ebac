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
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raffed.budget import allow_table
from raffed.errors import RunFolderError, UsageError, check_choice, check_permitted
from raffed.results.files import clean, file_sha256, read_regular, replacing, sync_folder
from raffed.results.metric import MODELS, SPLITS, Row
from raffed.results.metrics import CLIENT_LOSS, METRICS
from raffed.results.rows import SCHEMA, SCHEMA_VERSION, WORDS
from raffed.results.runfile import RUN_FILE, read_run

# One order and one hash for metric rows, independent of the files they come from and of their order there.


_NULL = np.iinfo(np.int64).min
_NULL_BITS, _NAN_BITS = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0x7FF8000000000000)
_ORDER = (
    "round",
    "client",
    "model",
    "split",
    "metric",
    "stage",
    "class",
    "value",
    "n",
    "bytes_up",
    "bytes_down",
    "method",
    "dataset",
    "partition",
    "seed",
)
_Codes = npt.NDArray[np.int64]


def sorted_rows(table: pa.Table) -> pa.Table:
    """Sort rows by round, client (server first), model, split, metric, stage and class, then by all other
    columns.
    """
    return table.take(pa.array(_order([_codes(table[name])[0] for name in _ORDER], table.num_rows)))


def rows_sha256(table: pa.Table, ignore: Collection[str] = ("run_id", "seconds")) -> str:
    """Return the SHA-256 (hex) of the rows of `table`, without the columns in `ignore`.

    The hash does not depend on the order of rows, on how they are divided into parts, or on dictionaries.
    Floats count by their IEEE-754 bits, so 0.0 and -0.0 differ; all NaNs are equal. Two executions of a run
    have equal hashes if and only if all their values have equal bits (up to collisions of SHA-256).
    """
    names = [field.name for field in SCHEMA if field.name not in ignore]
    codes, words = zip(*(_codes(table[name]) for name in names), strict=True)
    order = _order(
        [codes[names.index(name)] for name in _ORDER if name in names] + list(codes), table.num_rows
    )
    digest = hashlib.sha256(json.dumps({"rows": table.num_rows, "columns": names, "words": words}).encode())
    for column in codes:
        digest.update(column[order].astype("<i8").tobytes())
    return digest.hexdigest()


def _order(keys: list[_Codes], rows: int) -> _Codes:
    return np.lexsort(keys[::-1]).astype(np.int64) if rows else np.zeros(0, np.int64)


def _codes(column: pa.ChunkedArray) -> tuple[_Codes, list[str]]:
    """Encode a column as int64 with the same order and the same equalities, and return its words if it
    has any.
    """
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        return _word_codes(column)
    if pa.types.is_floating(column.type):
        return _float_codes(column), []
    return np.asarray(pc.fill_null(column.cast(pa.int64()), _NULL).to_numpy(), np.int64), []


def _word_codes(column: pa.ChunkedArray) -> tuple[_Codes, list[str]]:
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    words = encoded.dictionary.to_pylist()
    order = sorted(range(len(words)), key=words.__getitem__)
    rank = np.zeros(len(words), np.int64)
    rank[order] = np.arange(len(words))
    return rank[np.asarray(encoded.indices.to_numpy(), np.int64)], sorted(words)


def _float_codes(column: pa.ChunkedArray) -> _Codes:
    values = np.array(pc.fill_null(column, 0.0).to_numpy(), np.float64)
    bits = np.where(np.isnan(values), _NAN_BITS, values.view(np.uint64))
    codes = np.where(column.is_null().to_numpy(), _NULL_BITS, bits).view(np.int64)
    # The bits of negative floats sort backwards. Flipping all bits except the sign reverses that, and is
    # one-to-one.
    return np.where(codes < 0, codes ^ np.int64(0x7FFFFFFFFFFFFFFF), codes)


def without_client_losses(rows: pa.Table) -> pa.Table:
    """Return rows without the training losses of single clients, which packed records leave out."""
    kept = pc.is_null(rows["client"])
    for column, word in zip(("model", "split", "metric"), CLIENT_LOSS.place, strict=True):
        kept = pc.or_(kept, pc.not_equal(rows[column].cast(pa.string()), word))
    return rows.filter(kept)


def with_values(rows: pa.Table, values: Mapping[str, str | int]) -> pa.Table:
    """Return rows in which some columns have one value throughout: column → value."""
    for name, value in values.items():
        index = rows.schema.get_field_index(name)
        column = pa.array([value] * rows.num_rows).cast(rows.schema.field(index).type)
        rows = rows.set_column(index, rows.schema.field(index), column)
    return rows


# Open Parquet files that anybody may have made: a few bytes may stand for billions of equal rows.


def open_table(source: bytes | Path, words: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet file to read it.

    Args:
        source: The file, or its bytes.
        words: Columns of texts of which each is kept once, however many rows have it.

    Raises:
        ValueError: The file is damaged, or claims more memory than it may take (`raffed.budget`).
    """
    where = source if isinstance(source, Path) else pa.BufferReader(source)
    file = pq.ParquetFile(where, read_dictionary=list(words), page_checksum_verification=True)
    try:
        allow_table(file.metadata, "its table")
    except ValueError:
        file.close()
        raise
    return file


# One part of a run's metric rows: written once, and read only if it is what was written.


PART = re.compile(r"part-(\d{6,})-(\d{6,})\.parquet")
_VERSION_KEY, _RUN_KEY = b"raffed.schema", b"raffed.run"


class DamagedPartError(RunFolderError):
    """A part is not, or is no longer, what was written."""


def _hashes_of(run_dir: Path) -> Mapping[str, str] | None:
    """Return name below the run's folder → SHA-256, as run.json records it; None without a run.json."""
    return read_run(run_dir)["files"] if (run_dir / RUN_FILE).exists() else None


def _checked_part(path: Path, hashes: Mapping[str, str] | None, raw: bytes | None = None) -> pa.Table:
    """Return the rows of a part. `raw` holds its bytes if they have been read already.

    Raises:
        DamagedPartError: The part is not what was written.
        RunFolderError: The part has another schema, or this run did not write it.
    """
    try:
        raw = read_regular(path) if raw is None else raw
    except OSError as error:
        check_permitted(path, error)
        raise DamagedPartError(f"{path}: cannot be read ({error.strerror}); put back a copy of it") from error
    if hashes is not None:
        recorded = hashes.get(_below(path))
        if recorded is None:
            raise RunFolderError(
                f"{path}: this run did not write it, because {RUN_FILE} does not list it; remove it"
            )
        if recorded != hashlib.sha256(raw).hexdigest():
            raise DamagedPartError(
                f"{path}: damaged (it was changed: {RUN_FILE} has another hash); put back a copy of it"
            )
    return read_part(path, raw)


def read_part(path: Path, raw: bytes | None = None) -> pa.Table:
    """Return the rows of a part, whatever run.json records about it. `raw` holds its bytes if they were read
    already.
    """
    # Not read_table, which would make a column of a folder named `mu=0.1` above the run.
    try:
        source = read_regular(path) if raw is None else raw
        with open_table(source, WORDS) as file:
            version = int((file.schema_arrow.metadata or {}).get(_VERSION_KEY, b"0"))
            if version == SCHEMA_VERSION:
                return file.read().replace_schema_metadata(None).cast(SCHEMA)
    except (OSError, ValueError) as error:
        raise DamagedPartError(f"{path}: damaged ({error}); put back a copy of it") from error
    raise RunFolderError(
        f"{path}: it has schema {version}, but this raffed reads schema {SCHEMA_VERSION}; use the "
        "raffed that wrote it"
    )


def write_part(path: Path, table: pa.Table, run: Mapping[str, str | int]) -> None:
    """Write rows as Parquet. `run` holds the values that are equal in all of them."""
    about = {_VERSION_KEY: str(SCHEMA_VERSION).encode(), _RUN_KEY: json.dumps(run, sort_keys=True).encode()}
    pq.write_table(table.replace_schema_metadata(about), path, compression="zstd", write_page_checksum=True)


def table_of(rows: list[Row], run: Mapping[str, str | int]) -> pa.Table:
    """Return rows as a table in SCHEMA. `run` holds the values that are equal in all of them."""
    columns: dict[str, list[object]] = {name: [value] * len(rows) for name, value in run.items()}
    for name, values in zip(Row._fields, zip(*rows, strict=True), strict=True):
        columns[name.rstrip("_")] = list(values)
    columns["value"] = [float(row.value) for row in rows]
    return pa.table(
        {field.name: pa.array(columns[field.name], field.type) for field in SCHEMA}, schema=SCHEMA
    )


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
        self.columns: dict[str, str | int] = {
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
            write_part(temp, table_of(self._rows, self.columns), self.columns)
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
            write_part(temp, table, self.columns)
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
    read = [(path, read_regular(path)) for path in parts_of(run_dir)]
    # Read after the parts, because a running run records a part's hash before the part exists
    hashes = _hashes_of(Path(run_dir))
    parts = [keep(_checked_part(path, hashes, raw)) for path, raw in read]
    return pa.concat_tables(parts or [SCHEMA.empty_table()]).unify_dictionaries()


def rows_until(run_dir: Path) -> tuple[int, str]:
    """Return the last round up to which all rounds from 1 on have readable rows, and what prevents more.

    Raises:
        RunFolderError: A part has a later schema, or run.json does not list it.
    """
    folder, done, hashes = Path(run_dir) / METRICS_FOLDER, 0, _hashes_of(Path(run_dir))
    for _, _, path in _parts(folder):
        try:
            rounds = set(_checked_part(path, hashes)["round"].unique().to_pylist())
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
