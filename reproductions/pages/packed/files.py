"""Pack a folder of runs into `records.json` and `records.parquet`, and make the folder from them again.

Unpacked JSON files are equal byte for byte, and Parquet files row for row; the seconds of single clients are
missing. Packing compares what it has packed with what it was given, and writes nothing if they differ.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from raffed.analysis.reproduction.item_runs import Reproduction
from raffed.analysis.runs.files import read_bytes, read_object, replacing, write_text

from raffed.own.gate import UnsafeNameError, within
from raffed.results.runfile import RECORDS_FILE, SEAL, sealed
from raffed.results.storage import DamagedRecordsError
from raffed.results.writer import open_table, write_part

from .index import RUN_FILE, SCHEMA_VERSION, PackedFolder, as_text, changed, contents, index_of, weights_of
from .rows import is_metrics, pack
from .trials import with_short_trials

ROWS_FILE = "records.parquet"
_CONSTANT = ("run_id", "method", "dataset", "partition", "seed")  # of a run
_MADE = frozenset({"report", "verdicts.json"})  # what a command makes again
_TEXTS = "tuning.md"  # scores of final runs, of which records hold no rows
_LEVEL = 19  # of zstd


def pack_folder(
    folder: Path, out: Path, without: Collection[str] = (), tuned: Iterable[Reproduction] = ()
) -> None:
    """Write records.json and records.parquet of a folder with runs.

    Args:
        folder: holds the runs.
        out: where the two files are written.
        without: names of folders that are left out.
        tuned: tables whose trials are packed with one row a round.

    Raises:
        ValueError: the folder holds no JSON file, or something that could not be unpacked again.
    """
    found = with_short_trials(_read_folder(folder, without), folder, tuned)
    if not found.objects:
        raise ValueError(f"{folder}: it holds no run, item or sweep; give a folder that raffed made")
    rows = pack(found.tables, dict(weights_of(found))) if found.tables else None
    index = index_of(found, rows)
    _check(folder, found, index, rows)
    out.mkdir(parents=True, exist_ok=True)
    if rows is not None:
        with replacing(out / ROWS_FILE) as temp:
            _write_rows(rows, temp)
            index["sha256"] = _sha256(temp.read_bytes())
    write_text(out / RECORDS_FILE, as_text(index))


def read_records(folder: Path, check: bool = False) -> PackedFolder:
    """Return the contents of a packed folder.

    Args:
        folder: holds records.json and, if there are rows, records.parquet.
        check: whether to compute the hash of every file's rows again, and to compare it with the
            recorded one.

    Raises:
        DamagedRecordsError: a file is missing, was changed, or is from a later version.
    """
    try:
        index = read_object(folder / RECORDS_FILE)
        if index["schema"] != SCHEMA_VERSION:
            raise ValueError(
                f"it has schema {index['schema']}, but this raffed reads schema {SCHEMA_VERSION}; update "
                "raffed"
            )
        rows = _read_rows(folder, index) if index["parquet"] else None
        found = contents(index, rows)
        if check and (wrong := changed(index, found)):
            raise ValueError(f"the rows of {wrong[0]} do not have their recorded hash")
    except (ValueError, KeyError, TypeError, AttributeError, OSError, pa.ArrowException) as error:
        raise DamagedRecordsError(
            f"{folder}: the records are damaged ({type(error).__name__}: {error}); put back a copy of both "
            f"files"
        ) from error
    return found


def unpack_folder(folder: Path, out: Path) -> None:
    """Write the files of a packed folder below `out`, in the layout of runs.

    Raises:
        DamagedRecordsError: as in `read_records`, or a file would be written outside `out`.
    """
    found = read_records(folder)
    try:
        places = {name: within(out, name) for name in [*found.tables, *found.objects, *found.texts]}
    except UnsafeNameError as error:
        raise DamagedRecordsError(f"{folder}: the records are damaged ({error})") from error
    for place in {path.parent for path in places.values()}:
        place.mkdir(parents=True, exist_ok=True)
    for name, table in found.tables.items():
        _write_table(table, places[name])
    for name, about in found.objects.items():
        write_text(places[name], _text(_rehashed(about, places[name])))
    for name, text in found.texts.items():
        write_text(places[name], text)


def _read_folder(folder: Path, without: Collection[str]) -> PackedFolder:
    """Return the JSON and Parquet files below a folder, except those of reports."""
    found = PackedFolder({}, {}, {}, {})
    for place, below, names in os.walk(folder):
        below[:] = sorted(set(below) - _MADE - set(without))
        for path in (Path(place) / name for name in sorted(set(names) - _MADE)):
            name = path.relative_to(folder).as_posix()
            if path.suffix == ".json":
                found.objects[name] = read_object(path)
            elif name.endswith(_TEXTS):
                found.texts[name] = read_bytes(path).decode()
            elif path.suffix == ".parquet":
                raw = read_bytes(path)
                found.tables[name] = open_table(raw).read()
                found.made_of[name] = _sha256(raw)
    return found


def _check(folder: Path, given: PackedFolder, index: dict[str, Any], rows: pa.Table | None) -> None:
    """Refuse records that do not give back what was packed."""
    again = contents(index, rows)
    wrong = [name for name, about in given.objects.items() if _text(again.objects[name]) != _text(about)]
    if wrong := wrong + changed(index, again):
        raise ValueError(f"{folder}: {wrong[0]} would differ after unpacking, so nothing was packed")


def _read_rows(folder: Path, index: Mapping[str, Any]) -> pa.Table:
    raw = read_bytes(folder / ROWS_FILE)
    if _sha256(raw) != index["sha256"]:
        raise ValueError(f"{ROWS_FILE} does not belong to this {RECORDS_FILE}")
    return open_table(raw).read()


def _write_rows(rows: pa.Table, path: Path) -> None:
    """Write the packed table. `value` holds losses, whose bytes compress best when stored byte by byte."""
    split = {"value": "BYTE_STREAM_SPLIT"} if "value" in rows.column_names else None
    words = [name for name in rows.column_names if name != "value"]
    pq.write_table(
        rows,
        path,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=words,
        column_encoding=split,
        row_group_size=2**24,
    )


def _write_table(table: pa.Table, path: Path) -> None:
    if is_metrics(table):
        write_part(path, table, {key: table[key][0].as_py() for key in _CONSTANT if table.num_rows})
    else:
        pq.write_table(table, path, compression="zstd")


def _rehashed(about: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return a run.json whose hashes of files, if it has any, are those of the files that were unpacked.

    Weights and partitions are not packed, and raffed takes a file that run.json lists and that is not there
    for a lost one.
    """
    files = about.get("files")
    if path.name != RUN_FILE or not isinstance(files, Mapping):
        return about
    there = {name: place for name in files if (place := within(path.parent, name)).is_file()}
    about = {**about, "files": {name: _sha256(file.read_bytes()) for name, file in there.items()}}
    return sealed(about) if SEAL in about else about


def _text(about: Mapping[str, Any]) -> str:
    """Return JSON as raffed writes it (raffed/results/runfile.py)."""
    return json.dumps(about, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
