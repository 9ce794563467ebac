"""GLDP's measures (docs/papers/gldp.md §7): accuracies on the test parts of all stages, after each stage, and
what is forgotten.

Where a run has no stages it counts as one with a single stage. "The last ten visits" of a stage are at most
half of the run's: where all of a short run were taken, its untrained first round would be among them.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd

from ..runs.load import Runs, by_run

VISITS = 10
PLANNED = "config.federation.rounds"
GLOBAL_READINGS = {  # what stands in for "the global model", by falling preference
    "global": ("global", "accuracy_between"),
    "oracle": ("global", "accuracy_oracle"),
    "own": ("personal", "accuracy_between"),
}


def stage_counts(runs: Runs) -> pd.Series[float]:
    """M of every run: as its split says (stages:N:S:M:…), else one more than the last stage it measured."""

    def made() -> pd.Series[float]:
        if runs.runs.empty:
            return pd.Series(dtype=float)
        seen = by_run(runs.metrics)["stage"].max()
        found = {}
        for name, split in runs.runs["partition"].items():
            said = re.match(r"stages:\d+:\d+:(\d+)", str(split))
            last = seen.get(name, math.nan)
            found[name] = int(said[1]) if said else (1 if math.isnan(last) else int(last) + 1)
        return pd.Series(found, dtype=float)

    counts: pd.Series[float] = runs.once("stage counts", made)
    return counts


def at_stage(runs: Runs, rows: pd.DataFrame, stage: int | None = None) -> pd.DataFrame:
    """The rows taken in a stage (from 0) of their run; None: in its final one."""
    wanted = (
        stage_counts(runs).reindex(rows["run"].astype(str)).to_numpy(float) - 1
        if stage is None
        else float(stage)
    )
    kept: pd.DataFrame = rows[rows["stage"].fillna(0.0).to_numpy(float) == wanted]
    return kept


def a_loc(runs: Runs) -> pd.DataFrame:
    """value: mean over clients of the last accuracy of their own model on X_i, the tests of all their stages;
    clients: how many.

        Own model: after local training, before aggregation. Only scores of the final stage are on X_i; a
        client that was never trained there is not measured.
    """
    rows = at_stage(runs, runs.scores[runs.scores["metric"] == "accuracy"])
    values = by_run(rows)["value"]
    return pd.DataFrame({"value": values.mean(), "clients": values.count()})


def a_glo(runs: Runs) -> pd.DataFrame:
    """value: mean over the last visits of the final stage of the mean over clients of the global model's
    accuracy on X_i.

        reading: `global`, the server's model; `oracle`, its layers completed by the participants' mean head,
        where heads are private; `own`, where a method answers with a client's own prototypes or model.
    """
    made: dict[str, tuple[float, str]] = {}
    for reading, (model, metric) in GLOBAL_READINGS.items():
        for run, value in lately(runs, at_stage(runs, runs.series(model, "local_test", metric))).items():
            made.setdefault(str(run), (value, reading))
    frame = pd.DataFrame.from_dict(made, orient="index", columns=["value", "reading"])
    return frame.astype({"value": float})


def recent(rows: pd.DataFrame, count: int) -> pd.Series[float]:
    """Mean of the last `count` rows of each run."""
    found: pd.Series[float] = by_run(rows)["value"].apply(lambda values: values.iloc[-count:].mean())
    return found


def lately(runs: Runs, rows: pd.DataFrame) -> pd.Series[float]:
    """Mean of the rows of one stage over its last ten visits in each run, at most half of the visits that
    the run has planned.
    """
    rounds = pd.to_numeric(runs.runs.reindex(columns=[PLANNED])[PLANNED])
    window = (rounds / stage_counts(runs) // 2).clip(1, VISITS).fillna(VISITS)
    found = {str(run): mine["value"].iloc[-int(window[str(run)]) :].mean() for run, mine in by_run(rows)}
    return pd.Series(found, dtype=float)


def a_sel(runs: Runs, whole: bool = False) -> pd.DataFrame:
    """Run x stage (from 0): A_sel^(m), mean over participants and its last visits of accuracy on the tests up
    to it.

        whole: of the global model after aggregation, for methods whose clients have none of their own; then
        over all clients, because a survey has them all.
    """
    rows = (
        runs.series("global", "local_test", "accuracy_between")
        if whole
        else runs.series("personal", "local_test")
    )
    last = int(stage_counts(runs).max()) if len(runs.runs) else 0
    found = {stage: lately(runs, at_stage(runs, rows, stage)) for stage in range(last)}
    return pd.DataFrame({stage: values for stage, values in found.items() if len(values)}).reindex(
        runs.runs.index
    )


def forgetting(runs: Runs) -> pd.Series[float]:
    """Run → mean of F_i over the clients that have one: accuracies of each client's own model when it
    last was in each stage.
    """
    rows = runs.scores[runs.scores["metric"].str.startswith("accuracy_stage")]
    found = {}
    for run, mine in by_run(rows):
        tested = mine["metric"].str.removeprefix("accuracy_stage").astype(int)
        mine = mine.assign(tested=tested, stage=mine["stage"].fillna(0).astype(int))
        count = int(stage_counts(runs)[str(run)])
        each = [stage_forgetting(_square(one, count)) for _, one in mine.groupby("client")]
        known = [value for value in each if not math.isnan(value)]
        found[run] = sum(known) / len(known) if known else math.nan
    return pd.Series(found, dtype=float)


def _square(rows: pd.DataFrame, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    table = np.full((count, count), np.nan)
    table[rows["stage"], rows["tested"]] = rows["value"]
    return table


def stage_forgetting(table: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> float:
    """F = mean over the earlier stages j of (max of a[m, j] over j ≤ m < M) − a[M, j]; a [M, M]: tests of
    stage j after stage m.

        Stages that the client missed are NaN and left out; NaN where nothing is left.
    """
    last = len(table) - 1
    falls = []
    for j in range(last):
        before = table[j:last, j]
        if not np.isnan(before).all() and not math.isnan(table[last, j]):
            falls.append(float(np.nanmax(before) - table[last, j]))
    return sum(falls) / len(falls) if falls else math.nan
