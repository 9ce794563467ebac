"""One part of a run's metric rows: written once, and read only if it is what was written."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raffed.errors import RunFolderError, check_permitted
from raffed.results.metric import FRACTION
from raffed.results.metrics import METRICS
from raffed.results.parquet import open_table
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.schema import SCHEMA, SCHEMA_VERSION, WORDS, Row
from raffed.results.tree import read_regular

PART = re.compile(r"part-(\d{6,})-(\d{6,})\.parquet")
_VERSION_KEY, _RUN_KEY = b"raffed.schema", b"raffed.run"
_PLACE = (
    "round",
    "client",
    "model",
    "split",
    "metric",
    "stage",
    "class",
)  # no two rows of a run are equal in all of these columns


class DamagedPartError(RunFolderError):
    """A part is not, or is no longer, what was written."""


@dataclass(frozen=True)
class Known:
    """What run.json records about a run's parts.

    Attributes:
        run_id: The run; None without a run.json.
        files: Name below the run's folder → SHA-256. None if an old version of raffed began the run, which
            recorded no hashes. A part is then read if its rows are rows that a run can write.
    """

    run_id: str | None = None
    files: Mapping[str, str] | None = None

    def read(self, path: Path, raw: bytes | None = None) -> pa.Table:
        """Return the rows of a part. `raw` holds its bytes if they have been read already.

        Raises:
            DamagedPartError: The part is not what was written.
            RunFolderError: The part has a later schema, or this run did not write it.
        """
        try:
            raw = read_regular(path) if raw is None else raw
        except OSError as error:
            check_permitted(path, error)
            raise DamagedPartError(
                f"{path}: cannot be read ({error.strerror}); put back a copy of it"
            ) from error
        if self.files is None:
            table = read_part(path, raw)
            self._check_rows(path, raw, table)
            return table
        recorded = self.files.get(f"{path.parent.name}/{path.name}")
        if recorded is None:
            raise RunFolderError(
                f"{path}: this run did not write it, because {RUN_FILE} does not list it; remove it"
            )
        if recorded != hashlib.sha256(raw).hexdigest():
            raise DamagedPartError(
                f"{path}: damaged (it was changed: {RUN_FILE} has another hash); put back a copy of it"
            )
        return read_part(path, raw)

    def _check_rows(self, path: Path, raw: bytes, table: pa.Table) -> None:
        if self.run_id is None:
            return
        why = impossible(table, path)
        writer = _written_by(raw)
        if writer not in (None, self.run_id):
            why = f"it belongs to the run {writer}"
        if why:
            raise DamagedPartError(f"{path}: damaged ({why}); put back a copy of it")


def known_parts(run_dir: Path) -> Known:
    """Return what the run.json of a folder records about its parts; empty without a run.json."""
    if not (Path(run_dir) / RUN_FILE).exists():
        return Known()
    about = read_run(Path(run_dir))
    return Known(about["run_id"], about.get("files"))


def impossible(table: pa.Table, path: Path) -> str:
    """Return why no run can have written these rows into a part of that name; empty if one can."""
    span = PART.fullmatch(path.name)
    rounds = pc.min_max(table["round"]).as_py()
    if span and table.num_rows and not int(span[1]) <= rounds["min"] <= rounds["max"] <= int(span[2]):
        return "it has rows of rounds that its name does not hold"
    if table.group_by(list(_PLACE)).aggregate([]).num_rows < table.num_rows:
        return "it has rows twice"
    words = table["metric"].cast(pa.string())
    names, numbered = METRICS.of_unit(FRACTION)
    share = pc.is_in(words, value_set=pa.array(sorted(names), pa.string()))
    for name in sorted(numbered):
        share = pc.or_(share, pc.starts_with(words, name))
    values = table["value"].filter(share)
    outside = pc.or_(pc.less(values, FRACTION.low), pc.greater(values, FRACTION.high))
    if pc.any(outside).as_py():
        return "it has an accuracy that is not in [0, 1]"
    counts = (table[name] for name in ("n", "bytes_up", "bytes_down"))
    if any(pc.any(pc.less(column, 0)).as_py() for column in counts):
        return "it has a count below 0"
    return ""


def read_part(path: Path, raw: bytes | None = None) -> pa.Table:
    """Return the rows of a part, whatever run.json records about it. `raw` holds its bytes if they were read
    already.
    """
    # Not read_table, which would make a column of a folder named `mu=0.1` above the run.
    try:
        source = read_regular(path) if raw is None else raw
        with open_table(source, WORDS, page_checksum_verification=True) as file:
            version = int((file.schema_arrow.metadata or {}).get(_VERSION_KEY, b"0"))
            if 1 <= version <= SCHEMA_VERSION:  # later versions added metrics but no columns
                return file.read().replace_schema_metadata(None).cast(SCHEMA)
    except (OSError, ValueError) as error:
        raise DamagedPartError(f"{path}: damaged ({error}); put back a copy of it") from error
    raise RunFolderError(
        f"{path}: it has schema {version}, but this raffed reads schemas up to {SCHEMA_VERSION}; use the "
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


def _written_by(raw: bytes) -> str | None:
    """Return the run that a part names as its own; None if it names none."""
    said: dict[str, str] | None = None
    with open_table(raw) as file, contextlib.suppress(ValueError):
        said = json.loads((file.schema_arrow.metadata or {}).get(_RUN_KEY, b"{}"))
    run_id = said.get("run_id") if isinstance(said, dict) else None
    return run_id if isinstance(run_id, str) else None
