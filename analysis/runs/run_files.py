"""Read the files of one run: run.json, and those parts of its metric rows that are as the run wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from raffed.results.rows import SCHEMA_VERSION, WORDS, by_samples
from raffed.results.runfile import BROKEN, RUN_SCHEMA, is_broken
from raffed.results.writer import open_table

from .clients import last_scores, local_seconds
from .files import JsonDict, JsonObject, as_written, read_bytes, read_object

_CONSTANT = ("method", "dataset", "partition", "seed")  # within a run
_WORDS = ("model", "split", "metric")
_KINDS = dict.fromkeys(("round", "client", "stage", "class", "n", "bytes_up", "bytes_down"), pa.int64())
_WORD = pa.dictionary(pa.int32(), pa.string())
COLUMNS = pa.schema(
    {**dict.fromkeys(_WORDS, _WORD), **_KINDS, "value": pa.float64(), "seconds": pa.float64()}
)
_PART = re.compile(r"part-(\d+)-(\d+)\.parquet")

# The errors that files raise which are valid JSON or Parquet but do not hold a run.
DAMAGED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
    OSError,
    MemoryError,
    NotImplementedError,  # pandas, of a comparison with an object
    pa.ArrowException,
    pd.errors.InvalidIndexError,
    pd.errors.IndexingError,
)


class Parts(NamedTuple):
    """The contents of one run's parts.

    They are the server's rows, the values that are equal in all rows, the clients' last scores, their scores
    added up in each round, and their times.
    """

    server: pa.Table
    constant: JsonDict
    scores: pd.DataFrame
    by_samples: pd.DataFrame
    seconds: tuple[float, float]
    unreadable: dict[str, str]


def read_run_file(folder: Path) -> JsonObject:
    """Return the contents of a folder's run.json. ValueError if it cannot be read or has another schema."""
    file = read_object(folder / "run.json")
    schema = file.get("schema", RUN_SCHEMA)
    if schema != RUN_SCHEMA:
        raise ValueError(f"it has schema {schema}, but this raffed reads schema {RUN_SCHEMA}")
    if is_broken(file):
        raise ValueError(BROKEN)
    return file


def read_parts(folder: Path, file: JsonObject) -> Parts:
    """Return the rows of a run. A part that does not match its run.json is left out and named."""
    tables, unreadable = [COLUMNS.empty_table()], dict[str, str]()
    constant: JsonDict = {}
    files = file.get("files")
    for path in _parts(folder / "metrics"):
        try:
            raw = read_bytes(path)
            if why := as_written(raw, f"metrics/{path.name}", files if isinstance(files, Mapping) else None):
                raise ValueError(why)
            table, constant = _read_part(raw)
            tables.append(table)
        except DAMAGED as error:
            unreadable[str(path)] = str(error)
    rows = pa.concat_tables(tables).unify_dictionaries()
    null = pc.is_null(rows["client"])
    seconds = local_seconds(rows)
    return Parts(rows.filter(null), constant, last_scores(rows), by_samples(rows), seconds, unreadable)


def missing_rounds(folder: Path, file: JsonObject) -> dict[str, str]:
    """Return which of the finished rounds are in no part, by the metrics folder.

    The result is empty if none is missing, or if the parts do not give their rounds.
    """
    spans = [_PART.fullmatch(path.name) for path in _parts(folder / "metrics")]
    done = number(file.get("rounds_done")) or 0
    wanted, lost = 1, []
    for span in spans:
        if span is None:
            return {}
        if wanted < int(span[1]):
            lost.append(f"{wanted}-{int(span[1]) - 1}")
        wanted = int(span[2]) + 1
    if wanted <= done:
        lost.append(f"{wanted}-{done}")
    return (
        {str(folder / "metrics"): f"no part has the rows of rounds {', '.join(lost)}; put them back"}
        if lost
        else {}
    )


def number(value: object) -> float | int | None:
    """Return the value if it is a number that can be computed with, and None otherwise."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63
    return value if known else None  # type: ignore[return-value]


def _parts(folder: Path) -> list[Path]:
    """Return the parts in the order of rounds. A part that was merged into another one is left out."""
    named = [(path, _PART.fullmatch(path.name)) for path in folder.glob("part-*.parquet")]
    spans = sorted((int(m[1]), -int(m[2]), path) for path, m in named if m)
    kept: list[tuple[int, Path]] = []
    for _, last, path in spans:
        if not kept or -last > kept[-1][0]:
            kept.append((-last, path))
    return [path for _, path in kept] + sorted(path for path, m in named if not m)


def _read_part(raw: bytes) -> tuple[pa.Table, JsonDict]:
    # ParquetFile, not read_parquet: a folder named `mu=0.1` above the run would become a column.
    with open_table(raw, WORDS) as file:
        about = file.schema_arrow.metadata or {}
        version = int(about.get(b"raffed.schema", 0))
        if version != SCHEMA_VERSION:
            raise ValueError(f"it has schema {version}, but this raffed reads schema {SCHEMA_VERSION}")
        table = file.read(columns=COLUMNS.names, use_threads=False)
        said = json.loads(about.get(b"raffed.run", b"{}"))
    if table.schema != COLUMNS:
        table = pa.table(
            {name: table[name].cast(COLUMNS.field(name).type) for name in COLUMNS.names}, schema=COLUMNS
        )
    return table, {name: said[name] for name in _CONSTANT if name in said}
