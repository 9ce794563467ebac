"""The trials of tuned tables in records: one row a round, beside the item that lists them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
from raffed.analysis.reproduction.item_runs import Reproduction, tried_names
from raffed.analysis.runs.load import section

from .index import PackedFolder, run_of
from .rows import is_metrics

TRIALS_FILE = "trials.parquet"
_COLUMNS = ("run", "round", "value")


def with_short_trials(packed: PackedFolder, folder: Path, items: Iterable[Reproduction]) -> PackedFolder:
    """Return the contents of a folder with a table of its trials in the place of their runs.

    The table has the accuracy by which a setting was chosen, after every round, as far as each trial came.
    item.json has the settings, the seeds, and how the trials ended. Trials of which the folder has such a
    table alone, because it was unpacked, are kept.

    Args:
        packed: The contents.
        folder: The folder.
        items: The tables of reproductions in it.
    """
    objects, tables = dict(packed.objects), dict(packed.tables)
    for item in items:
        names = set(tried_names([item]))
        place = (PurePosixPath(item.folder.relative_to(folder).as_posix()) / TRIALS_FILE).as_posix()
        parts = {
            path: table
            for path, table in tables.items()
            if is_metrics(table) and PurePosixPath(run_of(path)).parent.name in names
        }
        rows = [
            _chosen_by(path, table, section(item.about, "search")["select"]) for path, table in parts.items()
        ]
        if place in tables:
            before = tables[place].select(_COLUMNS)
            there = pa.array([PurePosixPath(run_of(path)).parent.name for path in parts], pa.string())
            rows.append(before.filter(pc.invert(pc.is_in(before["run"], value_set=there))))
        for path in parts:
            del tables[path]
        objects = {path: old for path, old in objects.items() if PurePosixPath(path).parent.name not in names}
        if rows:
            whole = pa.concat_tables(rows)
            tables[place] = whole.sort_by([("run", "ascending"), ("round", "ascending")])
    return packed._replace(objects=objects, tables=tables)


def _chosen_by(path: str, table: pa.Table, select: str) -> pa.Table:
    """Return the validation accuracy after each round of one part of a trial's rows."""
    here = pc.and_(pc.is_null(table["client"]), pc.is_null(table["class"]))
    for column, word in (("model", select), ("split", "val"), ("metric", "accuracy")):
        here = pc.and_(here, pc.equal(table[column], word))
    kept = table.filter(here)
    run = PurePosixPath(run_of(path)).parent.name
    return pa.table(
        {"run": pa.array([run] * kept.num_rows, pa.string()), **{n: kept[n] for n in _COLUMNS[1:]}}
    )
