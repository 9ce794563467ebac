"""The rows of all Parquet files of a folder as one table, from which each file's rows can be made again.

Two things are left out: the column `seconds`, which is no result, and the training losses of single clients.
Metric rows (raffed/results/metric.py) are sorted so that similar values lie side by side, which is what makes
the packed file small.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raffed.results.rows import SCHEMA
from raffed.results.writer import rows_sha256, sorted_rows, without_client_losses

FILE, HITS, WEIGHTS, SECONDS = "file", "hits", "weights", "seconds"
_ORDER = ("file", "metric", "model", "split", "stage", "class", "client", "round")
_LARGEST_HITS = 2**31
_OF_A_ROUND = {"model": "global", "split": "train", "metric": "loss"}  # the row that has the round's weights


def is_metrics(table: pa.Table) -> bool:
    """Return whether a table holds a run's metric rows and no other columns."""
    return set(table.column_names) == set(SCHEMA.names)


def kept(table: pa.Table) -> pa.Table:
    """Return what records keep of a table."""
    if is_metrics(table):
        return without_client_losses(table)
    return table.drop([name for name in table.column_names if name == SECONDS])


def digest(table: pa.Table) -> str:
    """Return the SHA-256 (hex) of the rows of one file.

    For metric rows this is the hash that a run computes of its rows: in canonical order, without run_id and
    seconds. For others it is that of their JSON text, in the order in which they were written.
    """
    if is_metrics(table):
        return rows_sha256(table)
    return hashlib.sha256(json.dumps(table.to_pylist(), sort_keys=True).encode()).hexdigest()


def pack(tables: Mapping[str, pa.Table], weights: Mapping[str, Mapping[int, bytes]]) -> pa.Table:
    """Return the rows of all files in one table.

    Args:
        tables: the rows that are kept of each file, by its path below the folder.
        weights: for each file with metric rows, the hash of the weights after each round.
    """
    metrics = [
        _with_weights(_named(table, name), weights.get(name, {}))
        for name, table in tables.items()
        if is_metrics(table)
    ]
    others = [_named(table, name) for name, table in tables.items() if not is_metrics(table)]
    packed = [_counted(_ordered(pa.concat_tables(metrics)))] if metrics else []
    nothing = pa.table({FILE: pa.array([], pa.string())})
    return pa.concat_tables([nothing, *packed, *others], promote_options="permissive")


def unpack(packed: pa.Table, columns: Mapping[str, list[str]]) -> dict[str, pa.Table]:
    """Return the rows of each file, with the columns that the file had."""
    names = packed[FILE].combine_chunks().dictionary_encode()
    codes = np.asarray(names.indices)
    order = np.argsort(codes, kind="stable")
    together = packed.take(pa.array(order)).append_column(SECONDS, pa.nulls(len(order), pa.float64()))
    ends = np.cumsum(np.bincount(codes, minlength=len(names.dictionary)))
    tables = {}
    for name, end, begin in zip(names.dictionary.to_pylist(), ends, [0, *ends[:-1]], strict=True):
        rows = together.slice(begin, end - begin)
        tables[name] = _values(rows).select(columns[name])
        if is_metrics(tables[name]):
            tables[name] = sorted_rows(tables[name].select(SCHEMA.names).cast(SCHEMA))
    return tables


def hashes_of_rounds(packed: pa.Table) -> dict[str, dict[int, str]]:
    """Return for each file the hash (hex) of the weights after each round."""
    hashes: dict[str, dict[int, str]] = {}
    if WEIGHTS in packed.column_names:
        rows = packed.select([FILE, "round", WEIGHTS]).filter(pc.is_valid(packed[WEIGHTS]))
        for row in rows.to_pylist():
            hashes.setdefault(row[FILE], {})[row["round"]] = row[WEIGHTS].hex()
    return hashes


def _named(table: pa.Table, name: str) -> pa.Table:
    """Add the column with the file's name, turn categories into plain texts, and leave out the seconds."""
    plain = {
        column: table[column].cast(pa.string())
        if pa.types.is_dictionary(table[column].type)
        else table[column]
        for column in table.column_names
        if column != SECONDS
    }
    return pa.table({FILE: pa.array([name] * table.num_rows, pa.string()), **plain})


def _with_weights(table: pa.Table, weights: Mapping[int, bytes]) -> pa.Table:
    """Add the hashes of the weights, each in the row of the round's training loss."""
    here = pc.and_(pc.is_null(table["client"]), pc.is_null(table["class"]))
    for column, word in _OF_A_ROUND.items():
        here = pc.and_(here, pc.equal(table[column], word))
    rounds = pc.if_else(here, table["round"], None).to_pylist()
    hashes = [None if number is None else weights.get(number) for number in rounds]
    return table.append_column(WEIGHTS, pa.array(hashes, pa.binary()))


def _ordered(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in _ORDER])


def _counted(table: pa.Table) -> pa.Table:
    """Move values that are exactly a whole number divided by n to the column `hits`."""
    value, n = table["value"].to_numpy(), pc.cast(table["n"], pa.float64()).to_numpy()
    with np.errstate(all="ignore"):
        hits = np.round(value * n)
        exact = (hits / n == value) & (hits >= 0) & (hits < _LARGEST_HITS) & ~np.signbit(value)
    rest = pa.array(value, mask=exact)
    counts = pa.array(np.where(exact, hits, 0).astype(np.int32), mask=~exact)
    return table.set_column(table.column_names.index("value"), "value", rest).append_column(HITS, counts)


def _values(table: pa.Table) -> pa.Table:
    """Undo `_counted`."""
    if HITS not in table.column_names:
        return table
    share = pc.divide(pc.cast(table[HITS], pa.float64()), pc.cast(table["n"], pa.float64()))
    return table.set_column(
        table.column_names.index("value"),
        "value",
        pc.if_else(pc.is_valid(table[HITS]), share, table["value"]),
    )
