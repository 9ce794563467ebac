"""Columns of the summary for metrics of the user's own, which run.json describes."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from ..runs.load import Runs
from .measures import Measure
from .stages import recent

OWN = "own"  # what the names of these columns begin with
# Models and samples of which the last value is shown; on "train" is what a method reports of itself
SHOWN = (("global", "test"), ("global", "train"), ("local", "train"), ("personal", "local_test"))
ARROWS = {"higher": " ↑", "lower": " ↓"}


def own_measures(runs: Runs) -> pd.DataFrame:
    """Return the last value of each metric of the user's own, for each run.

    The columns are called own:NAME:MODEL:BETTER:UNIT. A value that a run did not measure is NaN.
    """
    table: pd.DataFrame = runs.once("own measures", lambda: _own_measures(runs))
    return table


def _own_measures(runs: Runs) -> pd.DataFrame:
    columns: dict[str, pd.Series[float]] = {}
    for (name, better, unit), those in sorted(_described(runs).items()):
        for model, split in SHOWN:
            rows = runs.metrics
            kept = (rows["metric"] == name) & (rows["model"] == model) & (rows["split"] == split)
            kept &= rows["run"].isin(those)  # others may call another metric so
            recorded = rows[kept & rows["class"].isna()].sort_values("round", kind="stable")
            if len(recorded):
                columns[f"{OWN}:{name}:{model}:{better}:{unit}"] = recent(recorded, 1)
    return pd.DataFrame(columns).reindex(runs.runs.index).astype(float)


def _described(runs: Runs) -> dict[tuple[str, str, str], list[str]]:
    """Return name, direction and unit of every metric that a run.json describes, with the runs that do so."""
    described: dict[tuple[str, str, str], list[str]] = {}
    for run, file in runs.files.items():
        listed = file.get("metrics")
        for metric in listed if isinstance(listed, list) else []:
            kind = str(metric["name"]), str(metric["better"]), str(metric["unit"]).replace(":", " ")
            described.setdefault(kind, []).append(run)
    return described


def own_columns(columns: Collection[str]) -> dict[str, Measure]:
    """Return those of the columns that are such metrics, with how they are shown."""
    beside = ("_ci", "_seeds")  # the columns of a summary that belong to one of these
    return {
        name: _measure(name) for name in columns if name.startswith(f"{OWN}:") and not name.endswith(beside)
    }


def _measure(column: str) -> Measure:
    _, name, model, better, unit = column.split(":")
    fraction = unit == "fraction"
    words = " %" if fraction else "" if unit == "number" else f" in {unit}"
    title = f"{name}, {model}{words}{ARROWS.get(better, '')}"
    return Measure(title, 0.01 if fraction else 1, 2 if fraction else 4, better == "higher", optional=True)
