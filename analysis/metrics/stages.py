"""Compute the measures of GLDP (docs/papers/gldp.md §7): accuracies after each stage, and forgetting.

The accuracies are on the test parts of all stages. A run without stages counts as a run with a single stage.
"The last ten visits" of a stage are at most half of the run's visits. Otherwise they would include the
untrained first round of a short run.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd

from raffed.results import metrics as scores

from ..runs.load import Runs, by_run

VISITS = 10
PLANNED = "config.federation.rounds"
GLOBAL_READINGS = {  # what stands in for "the global model", by falling preference
    "global": scores.GLOBAL_BETWEEN,
    "oracle": scores.ORACLE_BETWEEN,
    "own": scores.PERSONAL_BETWEEN,
}


def stage_counts(runs: Runs) -> pd.Series[float]:
    """Return the number of stages M of every run.

    The name of the split gives it (stages:N:S:M:…); otherwise it is one more than the last stage that was
    measured.
    """

    def compute() -> pd.Series[float]:
        if runs.runs.empty:
            return pd.Series(dtype=float)
        seen = by_run(runs.metrics)["stage"].max()
        stages = {}
        for name, split in runs.runs["partition"].items():
            said = re.match(r"stages:\d+:\d+:(\d+)", str(split))
            last = seen.get(name, math.nan)
            stages[name] = int(said[1]) if said else (1 if math.isnan(last) else int(last) + 1)
        return pd.Series(stages, dtype=float)

    counts: pd.Series[float] = runs.once("stage counts", compute)
    return counts


def at_stage(runs: Runs, rows: pd.DataFrame, stage: int | None = None) -> pd.DataFrame:
    """Return the rows that a run measured in a stage, counted from 0, or with None in its final stage."""
    wanted = (
        stage_counts(runs).reindex(rows["run"].astype(str)).to_numpy(float) - 1
        if stage is None
        else float(stage)
    )
    kept: pd.DataFrame = rows[rows["stage"].fillna(0.0).to_numpy(float) == wanted]
    return kept


def a_loc(runs: Runs) -> pd.DataFrame:
    """Return `value`, the mean accuracy of the clients' own models, and `clients`, their number, by run.

    The accuracy is each client's last one on X_i, the tests of all its stages. Its own model is measured
    after local training and before aggregation. Only scores of the final stage are on X_i, so a client that
    was never trained there is not measured.
    """
    rows = at_stage(runs, runs.scores[runs.scores["metric"] == scores.PERSONAL_ACCURACY.name])
    values = by_run(rows)["value"]
    return pd.DataFrame({"value": values.mean(), "clients": values.count()})


def a_glo(runs: Runs) -> pd.DataFrame:
    """Return `value` and `reading` for each run: the accuracy of the global model on the clients' X_i.

    The value is the mean over clients and over the last visits of the final stage. The reading is `global`
    for the server's model, `oracle` if private heads are replaced by the participants' mean head, and `own`
    if a method answers with a client's own prototypes or model.
    """
    values: dict[str, tuple[float, str]] = {}
    for reading, metric in GLOBAL_READINGS.items():
        for run, value in lately(runs, at_stage(runs, runs.series(metric))).items():
            values.setdefault(str(run), (value, reading))
    frame = pd.DataFrame.from_dict(values, orient="index", columns=["value", "reading"])
    return frame.astype({"value": float})


def recent(rows: pd.DataFrame, count: int) -> pd.Series[float]:
    """Return the mean of the last `count` rows of each run."""
    means: pd.Series[float] = by_run(rows)["value"].apply(lambda values: values.iloc[-count:].mean())
    return means


def last_fifth(rows: pd.DataFrame) -> pd.Series[float]:
    """Return the mean of the last fifth of the rows of each run, of one row at least.

    So runs of equal training in rounds of different lengths are read over the same part of it.
    """
    means: pd.Series[float] = by_run(rows)["value"].apply(
        lambda values: values.iloc[-max(round(len(values) / 5), 1) :].mean()
    )
    return means


def lately(runs: Runs, rows: pd.DataFrame) -> pd.Series[float]:
    """Return the mean of the rows of one stage over its last ten visits in each run.

    At most half of the visits that the run has planned are used.
    """
    rounds = pd.to_numeric(runs.runs.reindex(columns=[PLANNED])[PLANNED])
    window = (rounds / stage_counts(runs) // 2).clip(1, VISITS).fillna(VISITS)
    means = {str(run): mine["value"].iloc[-int(window[str(run)]) :].mean() for run, mine in by_run(rows)}
    return pd.Series(means, dtype=float)


def a_sel(runs: Runs, whole: bool = False) -> pd.DataFrame:
    """Return run x stage, counted from 0: A_sel^(m), the accuracy on the tests up to stage m.

    The value is the mean over participants and over the last visits of the stage. With `whole` it is that of
    the global model after aggregation, for methods whose clients have no model of their own. It is then a
    mean over all clients, because a survey measures all of them.
    """
    rows = runs.series(scores.GLOBAL_BETWEEN if whole else scores.PERSONAL_ACCURACY)
    last = int(stage_counts(runs).max()) if len(runs.runs) else 0
    by_stage = {stage: lately(runs, at_stage(runs, rows, stage)) for stage in range(last)}
    return pd.DataFrame({stage: values for stage, values in by_stage.items() if len(values)}).reindex(
        runs.runs.index
    )


def forgetting(runs: Runs) -> pd.Series[float]:
    """Return for each run the mean of F_i over the clients that have one.

    F_i follows from the accuracies of the client's own model when it last was in each stage.
    """
    rows = runs.scores[runs.scores["metric"].str.startswith(scores.STAGE_ACCURACY.name)]
    means = {}
    for run, mine in by_run(rows):
        tested = mine["metric"].str.removeprefix(scores.STAGE_ACCURACY.name).astype(int)
        mine = mine.assign(tested=tested, stage=mine["stage"].fillna(0).astype(int))
        count = int(stage_counts(runs)[str(run)])
        each = [stage_forgetting(_square(client, count)) for _, client in mine.groupby("client")]
        known = [value for value in each if not math.isnan(value)]
        means[run] = sum(known) / len(known) if known else math.nan
    return pd.Series(means, dtype=float)


def _square(rows: pd.DataFrame, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    table = np.full((count, count), np.nan)
    table[rows["stage"], rows["tested"]] = rows["value"]
    return table


def stage_forgetting(table: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> float:
    """Return F, the mean over the earlier stages j of (max of a[m, j] over j ≤ m < M) − a[M, j].

    a[m, j] is the accuracy on the tests of stage j after stage m. Stages that the client missed are NaN and
    are left out. The result is NaN if none is left.
    """
    last = len(table) - 1
    falls = []
    for j in range(last):
        before = table[j:last, j]
        if not np.isnan(before).all() and not math.isnan(table[last, j]):
            falls.append(float(np.nanmax(before) - table[last, j]))
    return sum(falls) / len(falls) if falls else math.nan
