"""The index of packed records: every JSON file of a folder, and what was in every Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from raffed.results.rows import SCHEMA

from .rows import digest, hashes_of_rounds, is_metrics, unpack

Json: TypeAlias = Mapping[str, Any]
SCHEMA_VERSION = 2
RUN_FILE = "run.json"
_ROUND_HASHES = "round_hashes"
_IN_ROWS = "in the column weights"


class PackedFolder(NamedTuple):
    """The contents of a folder.

    Attributes:
        objects: the JSON files, by path below the folder.
        texts: texts that cannot be made from the other files, by path below the folder.
        tables: the rows of the Parquet files that records keep, by path below the folder.
    """

    objects: dict[str, Json]
    texts: dict[str, str]
    tables: dict[str, pa.Table]


def index_of(packed: PackedFolder, rows: pa.Table) -> dict[str, Any]:
    """Return the index of a folder. `rows` is the packed table."""
    known = _hashes_of_runs(rows)
    return {
        "schema": SCHEMA_VERSION,
        "files": {
            name: {**about, _ROUND_HASHES: _IN_ROWS}
            if name in known and known[name] == about.get(_ROUND_HASHES)
            else about
            for name, about in packed.objects.items()
        },
        "texts": packed.texts,
        "parquet": {name: _of_table(table) for name, table in packed.tables.items()},
    }


def contents(index: Json, rows: pa.Table) -> PackedFolder:
    """Return the folder that `index_of` has described, with the rows of the packed table."""
    columns = {name: list(about.get("columns", SCHEMA.names)) for name, about in index["parquet"].items()}
    known = _hashes_of_runs(rows)
    objects = {
        name: {**about, _ROUND_HASHES: known[name]} if about.get(_ROUND_HASHES) == _IN_ROWS else about
        for name, about in index["files"].items()
    }
    return PackedFolder(objects, dict(index["texts"]), unpack(rows, columns))


def changed(index: Json, packed: PackedFolder) -> list[str]:
    """Return the Parquet files whose rows are not those that the index has the hash of."""
    return [
        name
        for name, about in index["parquet"].items()
        if name not in packed.tables or digest(packed.tables[name]) != about["rows_sha256"]
    ]


def run_of(part: str) -> str:
    """Return the path of the run.json to which RUN/metrics/part-….parquet belongs."""
    return (PurePosixPath(part).parent.parent / RUN_FILE).as_posix()


def weights_of(packed: PackedFolder) -> Iterator[tuple[str, dict[int, bytes]]]:
    """Yield each Parquet file of a run, with the hash of the run's weights after each round."""
    for name in packed.tables:
        hashes = packed.objects.get(run_of(name), {}).get(_ROUND_HASHES)
        if isinstance(hashes, list):
            yield name, {number: bytes.fromhex(str(text)) for number, text in enumerate(hashes, start=1)}


def _hashes_of_runs(rows: pa.Table) -> dict[str, list[str]]:
    """Return the hashes of the weights of each run.json, in the order of rounds."""
    by_run: dict[str, dict[int, str]] = {}
    for part, hashes in hashes_of_rounds(rows).items():
        by_run.setdefault(run_of(part), {}).update(hashes)
    return {name: [by_round[number] for number in sorted(by_round)] for name, by_round in by_run.items()}


def _of_table(table: pa.Table) -> dict[str, Any]:
    """Return what the index says of one Parquet file."""
    about = {"rows": table.num_rows, "rows_sha256": digest(table)}
    return about if is_metrics(table) else {**about, "columns": table.column_names}
