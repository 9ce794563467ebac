"""One part of a run's metric rows: written once, and read only if it is what was written."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raffed.errors import RunFolderError, check_permitted
from raffed.results.parquet import open_table
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.schema import SCHEMA, SCHEMA_VERSION, WORDS, Row
from raffed.results.tree import read_regular

PART = re.compile(r"part-(\d{6,})-(\d{6,})\.parquet")
_VERSION_KEY, _RUN_KEY = b"raffed.schema", b"raffed.run"


class DamagedPartError(RunFolderError):
    """A part is not, or is no longer, what was written."""


@dataclass(frozen=True)
class Known:
    """What run.json records about a run's parts.

    Attributes:
        files: Name below the run's folder → SHA-256. None without a run.json; then every part is read.
    """

    files: Mapping[str, str] | None = None

    def read(self, path: Path, raw: bytes | None = None) -> pa.Table:
        """Return the rows of a part. `raw` holds its bytes if they have been read already.

        Raises:
            DamagedPartError: The part is not what was written.
            RunFolderError: The part has another schema, or this run did not write it.
        """
        try:
            raw = read_regular(path) if raw is None else raw
        except OSError as error:
            check_permitted(path, error)
            raise DamagedPartError(
                f"{path}: cannot be read ({error.strerror}); put back a copy of it"
            ) from error
        if self.files is None:
            return read_part(path, raw)
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


def known_parts(run_dir: Path) -> Known:
    """Return what the run.json of a folder records about its parts; empty without a run.json."""
    if not (Path(run_dir) / RUN_FILE).exists():
        return Known()
    about = read_run(Path(run_dir))
    return Known(about["files"])


def read_part(path: Path, raw: bytes | None = None) -> pa.Table:
    """Return the rows of a part, whatever run.json records about it. `raw` holds its bytes if they were read
    already.
    """
    # Not read_table, which would make a column of a folder named `mu=0.1` above the run.
    try:
        source = read_regular(path) if raw is None else raw
        with open_table(source, WORDS, page_checksum_verification=True) as file:
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
