"""Run folders on disk → two DataFrames. What cannot be read is named and left out; the rest is still reported."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

NEWEST_SCHEMA = 2
_WORDS = ("run_id", "method", "dataset", "partition", "model", "split", "metric")
_COLUMNS = {name: pa.string() for name in _WORDS}
_COLUMNS |= {name: pa.int64() for name in ("seed", "round", "client", "stage", "class", "n", "bytes_up", "bytes_down")}
_COLUMNS |= {"value": pa.float64(), "seconds": pa.float64()}
_SCHEMA = pa.schema({"run": pa.string(), **_COLUMNS})


class NoRunsError(ValueError):
    """None of the paths holds a run that can be read."""


@dataclass(frozen=True)
class Runs:
    """What was found below the paths.

    metrics: the rows of all runs as raffed/results/schema.py describes them, and `run`, a name unique in this object;
        client, stage, class, n and bytes are floats whose NaN is the schema's null.
    runs: one row a run, indexed by `run`: folder, run_id, method, dataset, partition, seed, state, rounds_done,
        rounds_planned, seconds, …, and the configuration flattened to `config.local.lr` and the like.
    files: what run.json held, by `run`.
    unreadable: why something was left out, by the path of the folder or file.
    """

    metrics: pd.DataFrame
    runs: pd.DataFrame
    files: Mapping[str, Mapping[str, Any]]
    unreadable: Mapping[str, str]


def load_runs(paths: Iterable[Path | str]) -> Runs:
    """Read every run at or below `paths`: finished, running, or killed. A folder found twice counts once."""
    unreadable: dict[str, str] = {}
    folders: dict[Path, Path] = {}
    for path in map(Path, paths):
        found = list(_run_folders(path))
        folders |= {folder.resolve(): folder for folder in reversed(found)}
        if not found:
            unreadable[str(path)] = "no run.json at or below it" if path.is_dir() else "no such folder"
    files: dict[str, Mapping[str, Any]] = {}
    tables, rows = [_SCHEMA.empty_table()], []
    for name, folder in _names(sorted(folders.values())).items():
        file = _read_run_file(folder, unreadable)
        if file is None:
            continue
        table = _read_parts(folder, name, unreadable)
        files[name] = file
        tables.append(table)
        rows.append({"run": name, "folder": str(folder), **_about(file, table)})
    metrics = pa.concat_tables(tables).to_pandas(categories=["run", *_WORDS])
    return Runs(metrics, pd.DataFrame(rows, columns=None if rows else ["run"]).set_index("run"), files, unreadable)


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"local": {"lr": 0.1}} → {"local.lr": 0.1}; lists become their JSON text."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value) if isinstance(value, list) else value
    return flat


def section(file: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under `name`; an empty one if it is missing or something else."""
    found = file.get(name)
    return found if isinstance(found, Mapping) else {}


def _run_folders(path: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(path):
        below.sort()
        if "run.json" in names:
            below.clear()
            yield Path(folder)


def _names(folders: list[Path]) -> dict[str, Path]:
    """Folder names where they are unique, else paths below the common folder."""
    if len({folder.resolve().name for folder in folders}) == len(folders):
        return {folder.resolve().name: folder for folder in folders}
    base = os.path.commonpath([folder.resolve() for folder in folders])
    return {folder.resolve().relative_to(base).as_posix(): folder for folder in folders}


def _read_run_file(folder: Path, unreadable: dict[str, str]) -> Mapping[str, Any] | None:
    try:
        file = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        unreadable[str(folder)] = f"run.json is damaged ({error})"
        return None
    if not isinstance(file, dict):
        unreadable[str(folder)] = f"run.json holds a {type(file).__name__}, wanted an object"
    elif not (folder / "metrics").is_dir():
        unreadable[str(folder)] = "no metrics/ beside run.json"
    else:
        return file
    return None


def _read_parts(folder: Path, run: str, unreadable: dict[str, str]) -> pa.Table:
    parts = [_SCHEMA.empty_table()]
    for path in sorted((folder / "metrics").glob("part-*.parquet")):
        try:
            parts.append(_read_part(path, run))
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            unreadable[str(path)] = str(error)
    return pa.concat_tables(parts)


def _read_part(path: Path, run: str) -> pa.Table:
    # ParquetFile, not read_parquet: a folder named `mu=0.1` above the run would become a column.
    with pq.ParquetFile(path) as file:
        version = int((file.schema_arrow.metadata or {}).get(b"raffed.schema", NEWEST_SCHEMA))
        if version > NEWEST_SCHEMA:
            raise ValueError(f"schema {version}, this analysis reads up to {NEWEST_SCHEMA}; update raffed")
        table = file.read(columns=list(_COLUMNS))
    columns = {name: table[name].cast(kind) for name, kind in _COLUMNS.items()}
    return pa.table({"run": pa.array([run] * table.num_rows, pa.string()), **columns}, schema=_SCHEMA)


def _about(file: Mapping[str, Any], table: pa.Table) -> dict[str, Any]:
    """The row of `Runs.runs`. Rows that were measured win over what run.json says."""
    config = section(file, "config")
    data, federation = section(config, "data"), section(config, "federation")
    said = {"method": config.get("method"), "dataset": data.get("dataset"), "partition": data.get("split")}
    about = {name: table[name][0].as_py() if table.num_rows else _text(value) for name, value in said.items()}
    about["seed"] = table["seed"][0].as_py() if table.num_rows else _number(config.get("seed"))
    done = max(table["round"].to_pylist()) if table.num_rows else _number(file.get("rounds_done")) or 0
    about |= {"rounds_done": done, "rounds_planned": _number(federation.get("rounds"))}
    about |= {name: _number(file.get(name)) for name in ("seconds",)}
    for name in ("run_id", "state", "execution", "started", "commit", "partition_sha256", "error"):
        about[name] = _text(file.get(name))
    nested = {name: section(file, name) for name in ("config", "versions", "hashes", "hardware")}
    return {**about, **flatten(nested)}


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _number(value: object) -> float | int | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
