"""What is read off one run: accuracies, traffic, time."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from .load import Runs

LAST_ROUNDS = 10


class Measure(NamedTuple):
    """A column: its title, and how many of its units make one shown (0.01 shows fractions in %)."""

    title: str
    unit: float
    digits: int
    higher_is_better: bool


MEASURES = {
    "accuracy_last": Measure("Aggregation, last %", 0.01, 2, True),
    "accuracy_best": Measure("best %", 0.01, 2, True),
    "accuracy_mean10": Measure(f"mean last {LAST_ROUNDS} %", 0.01, 2, True),
    "personal_last": Measure("Personalization, last %", 0.01, 2, True),
    "mb_up": Measure("MB up/round", 1, 3, False),
    "mb_down": Measure("MB down/round", 1, 3, False),
    "seconds_round": Measure("s/round", 1, 3, False),
}


def measures(runs: Runs) -> pd.DataFrame:
    """The columns of MEASURES for each run (index: run); NaN where a run has no such rows."""
    made: pd.DataFrame = runs.once("measures", lambda: _measures(runs))
    return made


def _measures(runs: Runs) -> pd.DataFrame:
    accuracy, personal = runs.series("global", "test"), runs.series("personal", "local_test")
    by_run = runs.series("global", "train", "loss").groupby("run", observed=True)
    columns = {
        "accuracy_last": _last(accuracy, 1),
        "accuracy_best": accuracy.groupby("run", observed=True)["value"].max(),
        "accuracy_mean10": _last(accuracy, LAST_ROUNDS),
        "personal_last": _last(personal, 1),
        "personal_mean10": _last(personal, LAST_ROUNDS),
        "floats_up": (by_run["bytes_up"].mean() / 4e6) / _participants(runs),
        "mb_up": by_run["bytes_up"].mean() / 1e6,
        "mb_down": by_run["bytes_down"].mean() / 1e6,
        "seconds_round": by_run["seconds"].median(),
    }
    return pd.DataFrame({name: column.astype(float) for name, column in columns.items()}).reindex(runs.runs.index)


def _participants(runs: Runs) -> pd.Series[float]:
    """Clients a round, from what each run planned."""
    if "config.federation.participation" not in runs.runs:
        return pd.Series(dtype=float)
    return (pd.to_numeric(runs.runs["clients"]) * runs.runs["config.federation.participation"]).round().clip(lower=1)


def _last(rows: pd.DataFrame, count: int) -> pd.Series[float]:
    return rows.groupby("run", observed=True)["value"].apply(lambda values: values.iloc[-count:].mean())
