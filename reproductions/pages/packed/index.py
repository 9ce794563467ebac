"""The contents of records.json: every JSON file of a folder, and where the rows of every Parquet file are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeAlias

import pandas as pd
import pyarrow as pa
from raffed.analysis.runs.clients import local_seconds

from raffed.results.schema import SCHEMA

from .rows import digest, hashes_of_rounds, is_metrics, unpack

Json: TypeAlias = Mapping[str, Any]
SCHEMA_VERSION = 1
RUN_FILE = "run.json"
_ROUND_HASHES = "round_hashes"
_IN_ROWS = "in the column weights of records.parquet"
_ON_ONE_LINE = ("runs", "files", "texts", "parquet")


class PackedFolder(NamedTuple):
    """The contents of a folder.

    Attributes:
        objects: the JSON files, by path below the folder.
        texts: texts that cannot be made from the other files, by path below the folder.
        tables: the rows of the Parquet files, by path below the folder.
        made_of: the SHA-256 (hex) of the Parquet files that were packed.
    """

    objects: dict[str, Json]
    texts: dict[str, str]
    tables: dict[str, pa.Table]
    made_of: dict[str, str]


def index_of(found: PackedFolder, rows: pa.Table | None) -> dict[str, Any]:
    """Return the contents of records.json. `rows` is the packed table; None without Parquet files."""
    runs = {name: one for name, one in found.objects.items() if _is_run(name)}
    known = {} if rows is None else _hashes_of_runs(rows)
    short = {
        name: {**one, _ROUND_HASHES: _IN_ROWS} if known.get(name, []) == one.get(_ROUND_HASHES) else one
        for name, one in runs.items()
    }
    common = shared(list(short.values()))
    return {
        "schema": SCHEMA_VERSION,
        "shared": common,
        "runs": {name: difference(one, common) for name, one in short.items()},
        "files": {name: one for name, one in found.objects.items() if not _is_run(name)},
        "texts": found.texts,
        "parquet": {name: _of_table(table, found.made_of[name]) for name, table in found.tables.items()},
    }


def contents(index: Json, rows: pa.Table | None) -> PackedFolder:
    """Return the folder that `index_of` has described, with the rows of the packed table."""
    columns = {name: list(one.get("columns", SCHEMA.names)) for name, one in index["parquet"].items()}
    made_of = {name: str(one["file_sha256"]) for name, one in index["parquet"].items()}
    known = {} if rows is None else _hashes_of_runs(rows)
    objects: dict[str, Json] = dict(index["files"])
    for name, more in index["runs"].items():
        one = merged(index["shared"], more)
        in_rows = one.get(_ROUND_HASHES) == _IN_ROWS
        objects[name] = {**one, _ROUND_HASHES: known[name]} if in_rows else one
    return PackedFolder(objects, dict(index["texts"]), {} if rows is None else unpack(rows, columns), made_of)


def changed(index: Json, found: PackedFolder) -> list[str]:
    """Return the Parquet files whose rows are not those that records.json has the hash of."""
    return [
        name
        for name, one in index["parquet"].items()
        if name not in found.tables or digest(found.tables[name]) != one["rows_sha256"]
    ]


def as_text(index: Json) -> str:
    """Return records.json: one line for each file of the folder, the rest indented."""
    parts = []
    for key, value in index.items():
        if key in _ON_ONE_LINE:
            lines = [f"    {json.dumps(name)}: {_line(one)}" for name, one in sorted(value.items())]
            parts.append(f"  {json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n  }")
        else:
            text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
            parts.append(f"  {json.dumps(key)}: " + text.replace("\n", "\n  "))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def run_of(part: str) -> str:
    """Return the path of the run.json to which RUN/metrics/part-….parquet belongs."""
    return (PurePosixPath(part).parent.parent / RUN_FILE).as_posix()


def weights_of(found: PackedFolder) -> Iterator[tuple[str, dict[int, bytes]]]:
    """Yield each Parquet file of a run, with the hash of the run's weights after each round."""
    for name in found.tables:
        hashes = found.objects.get(run_of(name), {}).get(_ROUND_HASHES)
        if isinstance(hashes, list):
            yield name, {number: bytes.fromhex(str(one)) for number, one in enumerate(hashes, start=1)}


def _is_run(name: str) -> bool:
    return PurePosixPath(name).name == RUN_FILE


def _line(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _hashes_of_runs(rows: pa.Table) -> dict[str, list[str]]:
    """Return the hashes of the weights of each run.json, in the order of rounds."""
    found: dict[str, dict[int, str]] = {}
    for part, hashes in hashes_of_rounds(rows).items():
        found.setdefault(run_of(part), {}).update(hashes)
    return {name: [one[number] for number in sorted(one)] for name, one in found.items()}


def _of_table(table: pa.Table, made_of: str) -> dict[str, Any]:
    """Return what records.json says of one Parquet file."""
    about: dict[str, Any] = {"rows": table.num_rows, "rows_sha256": digest(table), "file_sha256": made_of}
    if not is_metrics(table):
        return {**about, "columns": table.column_names}
    names = ("client_seconds", "client_sample_seconds")
    times = dict(zip(names, local_seconds(table), strict=True))
    return {**about, **{name: value for name, value in times.items() if not pd.isna(value)}}


def shared(objects: Sequence[Json]) -> dict[str, Any]:
    """Return what all objects have in common: equal values, and the shared part of nested objects."""
    if not objects:
        return {}
    first, *rest = objects
    found: dict[str, Any] = {}
    for key, value in first.items():
        if not all(key in one for one in rest):
            continue
        values = [value, *(one[key] for one in rest)]
        if all(isinstance(one, Mapping) for one in values):
            found[key] = shared(values)
        elif all(_same(one, value) for one in values):
            found[key] = value
    return found


def difference(one: Json, common: Json) -> dict[str, Any]:
    """Return what `merged` must add to `common` to give `one`."""
    found: dict[str, Any] = {}
    for key, value in one.items():
        if key not in common:
            found[key] = value
        elif isinstance(value, Mapping) and (rest := difference(value, common[key])):
            found[key] = rest
    return found


def merged(common: Json, more: Json) -> dict[str, Any]:
    """Undo `difference`."""
    found = dict(common)
    for key, value in more.items():
        nested = isinstance(value, Mapping) and isinstance(common.get(key), Mapping)
        found[key] = merged(common[key], value) if nested else value
    return found


def _same(one: object, other: object) -> bool:
    """Return whether two values have the same JSON text; 1, 1.0 and True do not."""
    return repr(one) == repr(other)
