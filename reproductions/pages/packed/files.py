"""Pack a folder of runs into `records.parquet`, and make the folder from it again.

Unpacked JSON files hold what was packed, and Parquet files the rows that records keep (`rows.kept`). Packing
compares what it has packed with what it was given, and writes nothing if they differ.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from raffed.analysis.reproduction.item_runs import Reproduction
from raffed.analysis.runs.files import LARGEST, object_in, read_bytes, read_object, replacing, write_text

from raffed.own.gate import UnsafeNameError, within
from raffed.results.runfile import RECORDS_FILE, SEAL, seal_of, sealed
from raffed.results.storage import DamagedRecordsError
from raffed.results.writer import open_table, write_part

from .index import RUN_FILE, SCHEMA_VERSION, PackedFolder, changed, contents, index_of, run_of, weights_of
from .rows import digest, is_metrics, kept, pack
from .trials import with_short_trials

INDEX = b"raffed.records"  # key of the index in the Parquet file
_CONSTANT = ("run_id", "method", "dataset", "partition", "seed")  # of a run
_LEFT_OUT = frozenset({"report", "verdicts.json", "checkpoints"})  # a command makes them again
_TEXTS = "tuning.md"  # scores of final runs, of which records hold no rows
_LEVEL = 19  # of zstd
_NUMBERS = ("value", "hits", "round", "client")  # which are smallest if they are stored byte by byte


def pack_folder(folder: Path, out: Path, tuned: Iterable[Reproduction] = ()) -> None:
    """Write the records.parquet of a folder with runs.

    Args:
        folder: holds the runs.
        out: where the file is written.
        tuned: tables whose trials are packed with one row a round.

    Raises:
        ValueError: the folder holds no JSON file, or something that could not be unpacked again.
    """
    packed = _with_kept_hashes(with_short_trials(_read_folder(folder), folder, tuned))
    if not packed.objects:
        raise ValueError(f"{folder}: it holds no run, item or sweep; give a folder that raffed made")
    rows = pack(packed.tables, dict(weights_of(packed)))
    index = index_of(packed, rows)
    _check(folder, packed, index, rows)
    out.mkdir(parents=True, exist_ok=True)
    with replacing(out / RECORDS_FILE) as temp:
        write_records(index, rows, temp)


def read_records(folder: Path, check: bool = False) -> PackedFolder:
    """Return the contents of a packed folder.

    Args:
        folder: holds records.parquet.
        check: whether to compute the hash of every file's rows again, and to compare it with the
            recorded one.

    Raises:
        DamagedRecordsError: the file is missing, was changed, or is from another version.
    """
    try:
        index, rows = read_file(within(folder, RECORDS_FILE))
        if index["schema"] != SCHEMA_VERSION:
            raise ValueError(
                f"it has schema {index['schema']}, but this raffed reads schema {SCHEMA_VERSION}; use the "
                "raffed that wrote it"
            )
        packed = contents(index, rows)
        if check and (wrong := changed(index, packed)):
            raise ValueError(f"the rows of {wrong[0]} do not have their recorded hash")
    except (ValueError, KeyError, TypeError, AttributeError, OSError, pa.ArrowException) as error:
        raise DamagedRecordsError(
            f"{folder}: the records are damaged ({type(error).__name__}: {error}); put back a copy of "
            f"{RECORDS_FILE}"
        ) from error
    return packed


def unpack_folder(folder: Path, out: Path) -> None:
    """Write the files of a packed folder below `out`, in the layout of runs.

    Raises:
        DamagedRecordsError: as in `read_records`, or a file would be written outside `out`.
    """
    packed = read_records(folder)
    try:
        places = {name: within(out, name) for name in [*packed.tables, *packed.objects, *packed.texts]}
    except UnsafeNameError as error:
        raise DamagedRecordsError(f"{folder}: the records are damaged ({error})") from error
    for place in {path.parent for path in places.values()}:
        place.mkdir(parents=True, exist_ok=True)
    for name, table in packed.tables.items():
        _write_table(table, places[name])
    for name, about in packed.objects.items():
        write_text(places[name], _text(_rehashed(about, places[name])))
    for name, text in packed.texts.items():
        write_text(places[name], text)


def write_records(index: Mapping[str, Any], rows: pa.Table, path: Path) -> None:
    """Write the packed table, with the index in the metadata of its file."""
    text = json.dumps(sealed(index), sort_keys=True)
    packed = pa.Codec("zstd", _LEVEL).compress(text.encode(), asbytes=True)
    split = {name: "BYTE_STREAM_SPLIT" for name in _NUMBERS if name in rows.column_names}
    with pq.ParquetWriter(
        path,
        rows.schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name in rows.column_names if name not in split],
        column_encoding=split,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(rows, row_group_size=2**24)
        writer.add_key_value_metadata({INDEX: base64.b64encode(packed)})


def read_file(path: Path) -> tuple[dict[str, Any], pa.Table]:
    """Return the index and the packed table in a file, neither of which may take more than its share."""
    with open_table(read_bytes(path)) as file:
        packed = pa.BufferReader(base64.b64decode(file.metadata.metadata[INDEX]))
        index = object_in(pa.CompressedInputStream(packed, "zstd").read(LARGEST + 1))
        if index[SEAL] != seal_of(index):
            raise ValueError("the index was changed")
        return index, file.read().replace_schema_metadata()


def _read_folder(folder: Path) -> PackedFolder:
    """Return what records keep of the JSON and Parquet files below a folder."""
    packed = PackedFolder({}, {}, {})
    for place, below, names in os.walk(folder):
        below[:] = sorted(set(below) - _LEFT_OUT)
        for path in (Path(place) / name for name in sorted(set(names) - _LEFT_OUT)):
            name = path.relative_to(folder).as_posix()
            if path.suffix == ".json":
                packed.objects[name] = read_object(path)
            elif name.endswith(_TEXTS):
                packed.texts[name] = read_bytes(path).decode()
            elif path.suffix == ".parquet":
                packed.tables[name] = kept(open_table(read_bytes(path)).read())
    return packed


def _with_kept_hashes(packed: PackedFolder) -> PackedFolder:
    """Add to the hashes of each finished run that of the rows which are kept of it."""
    parts: dict[str, list[pa.Table]] = {}
    for name, table in packed.tables.items():
        parts.setdefault(run_of(name), []).append(table)
    hashes = {
        name: {**packed.objects[name]["hashes"], "kept": digest(pa.concat_tables(tables))}
        for name, tables in parts.items()
        if "hashes" in packed.objects.get(name, {})
    }
    runs = {name: _sealed({**packed.objects[name], "hashes": digests}) for name, digests in hashes.items()}
    return packed._replace(objects={**packed.objects, **runs})


def _check(folder: Path, given: PackedFolder, index: dict[str, Any], rows: pa.Table) -> None:
    """Refuse records that do not give back what was packed."""
    again = contents(index, rows)
    wrong = [name for name, about in given.objects.items() if _text(again.objects[name]) != _text(about)]
    if wrong := wrong + changed(index, again):
        raise ValueError(f"{folder}: {wrong[0]} would differ after unpacking, so nothing was packed")


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
    hashes = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in there.items()}
    return _sealed({**about, "files": hashes})


def _sealed(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run.json with the seal of what it now holds, if it had one."""
    return sealed(about) if SEAL in about else about


def _text(about: Mapping[str, Any]) -> str:
    """Return JSON as raffed writes it (raffed/results/runfile.py)."""
    return json.dumps(about, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
