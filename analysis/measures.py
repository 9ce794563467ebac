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
    rows = runs.metrics
    server = rows[rows["client"].isna() & rows["class"].isna()].sort_values("round", kind="stable")
    accuracy = _values(server, "global", "test", "accuracy")
    personal = _values(server, "personal", "local_test", "accuracy")
    train = server[(server["model"] == "global") & (server["split"] == "train") & (server["metric"] == "loss")]
    by_run = train.groupby("run", observed=True)
    columns = {
        "accuracy_last": _last(accuracy, 1),
        "accuracy_best": accuracy.groupby("run", observed=True)["value"].max(),
        "accuracy_mean10": _last(accuracy, LAST_ROUNDS),
        "personal_last": _last(personal, 1),
        "mb_up": by_run["bytes_up"].mean() / 1e6,
        "mb_down": by_run["bytes_down"].mean() / 1e6,
        "seconds_round": by_run["seconds"].median(),
    }
    return pd.DataFrame({name: column.astype(float) for name, column in columns.items()}).reindex(runs.runs.index)


def _values(server: pd.DataFrame, model: str, split: str, metric: str) -> pd.DataFrame:
    return server[(server["model"] == model) & (server["split"] == split) & (server["metric"] == metric)]


def _last(rows: pd.DataFrame, count: int) -> pd.Series[float]:
    return rows.groupby("run", observed=True)["value"].apply(lambda values: values.iloc[-count:].mean())
