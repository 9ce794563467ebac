"""Compute the measures of single runs: accuracies, traffic and time."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from raffed.results import metrics as kinds
from raffed.results.metrics import CALIBRATION, SPREAD, UNSEEN, WORST_DECILE

from ..runs.load import Runs, by_run
from .classes import class_curves
from .stages import a_glo, a_loc, at_stage, last_fifth, lately, recent

LAST_ROUNDS = 10
# Columns of `Runs.runs` that say how many clients upload in a round
PARTICIPATION, UNSEEN_CLIENTS = "config.federation.participation", "config.federation.unseen_clients"
SERVER, BUFFER = "config.clock.server", "config.clock.buffer"


class Measure(NamedTuple):
    """A column of the summary: its title, and the unit it is shown in (0.01 shows a fraction in per cent)."""

    title: str
    unit: float
    digits: int
    higher_is_better: bool
    optional: bool = False  # Shown only if some run measured it.


MEASURES = {
    "accuracy_last": Measure("Aggregation, last %", 0.01, 2, True),
    "accuracy_best": Measure("best %", 0.01, 2, True),
    "accuracy_mean10": Measure(f"mean last {LAST_ROUNDS} %", 0.01, 2, True),
    "personal_last": Measure("Personalization, last %", 0.01, 2, True),
    "training_best": Measure("training samples, best %", 0.01, 2, True, optional=True),
    "personal_observed": Measure("among observed classes %", 0.01, 2, True, optional=True),
    "personal_f1": Measure("macro-F1 %", 0.01, 2, True, optional=True),
    "unseen_global": Measure("unseen clients, global %", 0.01, 2, True, optional=True),
    "unseen_personal": Measure("unseen clients, personal %", 0.01, 2, True, optional=True),
    "worst_decile_global": Measure(
        "worst tenth of the last participants, global %", 0.01, 2, True, optional=True
    ),
    "worst_decile_personal": Measure(
        "worst tenth of the last participants, personal %", 0.01, 2, True, optional=True
    ),
    "spread_global": Measure("spread over clients, global %", 0.01, 2, False, optional=True),
    "spread_personal": Measure("spread over clients, personal %", 0.01, 2, False, optional=True),
    "calibration": Measure("calibration error %", 0.01, 2, False, optional=True),
    "mb_up": Measure("MB up/round", 1, 3, False),
    "mb_down": Measure("MB down/round", 1, 3, False),
    "seconds_round": Measure("s/round", 1, 3, False),
}


def measures(runs: Runs) -> pd.DataFrame:
    """Return the columns of MEASURES for each run. A value that a run did not measure is NaN."""
    table: pd.DataFrame = runs.once("measures", lambda: _measures(runs))
    return table


def _measures(runs: Runs) -> pd.DataFrame:
    accuracy, personal = runs.series(kinds.TEST_ACCURACY), runs.series(kinds.PERSONAL_ACCURACY)
    between = runs.series(kinds.PERSONAL_BETWEEN)
    rounds = by_run(runs.series(kinds.TRAINING_LOSS))
    columns = {
        "accuracy_last": recent(accuracy, 1),
        "accuracy_best": by_run(accuracy)["value"].max(),
        "accuracy_mean10": recent(accuracy, LAST_ROUNDS),
        "accuracy_clean_mean10": recent(runs.series(kinds.CLEAN_ACCURACY), LAST_ROUNDS),
        "accuracy_mean25": recent(accuracy, 25),
        "accuracy_mean_fifth": last_fifth(accuracy),
        "accuracy_mean": by_run(accuracy)["value"].mean(),
        **_balanced(runs),
        "personal_last": recent(personal, 1),
        "personal_mean10": recent(personal, LAST_ROUNDS),
        "personal_observed": recent(runs.series(kinds.PERSONAL_OBSERVED), 1),
        "personal_f1": recent(runs.series(kinds.PERSONAL_F1), 1),
        "unseen_global": recent(runs.series(UNSEEN["global"]), 1),
        "unseen_personal": recent(runs.series(UNSEEN["personal"]), 1),
        **{f"worst_decile_{of}": recent(runs.series(metric), 1) for of, metric in WORST_DECILE.items()},
        **{f"spread_{of}": recent(runs.series(metric), 1) for of, metric in SPREAD.items()},
        "calibration": recent(runs.series(CALIBRATION), 1),
        "between_last": recent(between, 1),
        "between_mean10": recent(between, LAST_ROUNDS),
        "a_loc": a_loc(runs)["value"],
        "a_glo": a_glo(runs)["value"],
        "personal_best": by_run(personal)["value"].max(),
        "between_best": by_run(between)["value"].max(),
        **_weighted(runs),
        "training_last": recent(runs.series(kinds.TRAINING_ACCURACY), 1),
        "training_best": by_run(runs.series(kinds.TRAINING_ACCURACY))["value"].max(),
        **_selected(runs),
        **_readings(runs),
        "floats_up": (rounds["bytes_up"].mean() / 4e6) / _participants(runs),
        "mb_up": rounds["bytes_up"].mean() / 1e6,
        "mb_down": rounds["bytes_down"].mean() / 1e6,
        "seconds_round": rounds["seconds"].median(),
    }
    return pd.DataFrame({name: column.astype(float) for name, column in columns.items()}).reindex(
        runs.runs.index
    )


def _balanced(runs: Runs) -> dict[str, pd.Series[float]]:
    """Return the mean over classes of the global model's accuracy, after the last round and at its best.

    Only classes with test samples count.
    """
    curves = {name: class_curves(runs, name).mean(axis=1).dropna() for name in map(str, runs.runs.index)}
    ends = {name: (curve.iloc[-1], curve.max()) for name, curve in curves.items() if len(curve)}
    frame = pd.DataFrame.from_dict(
        ends, orient="index", columns=["balanced_last", "balanced_best"], dtype=float
    )
    return {"balanced_last": frame["balanced_last"], "balanced_best": frame["balanced_best"]}


WEIGHTED = {  # name of the measure: whose scores in which rows
    "downloaded": kinds.DOWNLOADED_ACCURACY,
    "local": kinds.LOCAL_ACCURACY,
    "personal": kinds.PERSONAL_ACCURACY,
    "between": kinds.PERSONAL_BETWEEN,
}


def _weighted(runs: Runs) -> dict[str, pd.Series[float]]:
    """Return Σ correct / Σ samples over clients after the last scored round, and in the best one."""
    rows, columns = runs.by_samples.sort_values("round", kind="stable"), dict[str, "pd.Series[float]"]()
    for name, metric in WEIGHTED.items():
        mine = rows[(rows["model"] == metric.model) & (rows["metric"] == metric.name)]
        values = mine.groupby("run")["value"]
        columns[f"{name}_weighted_last"], columns[f"{name}_weighted_best"] = values.last(), values.max()
    return columns


def _selected(runs: Runs) -> dict[str, pd.Series[float]]:
    """Return A_sel at the final stage of the clients' models and of the global model.

    `a_sel_drop` is the decline of the clients' models since the first stage.
    """
    local, whole = (
        runs.series(kinds.PERSONAL_ACCURACY),
        runs.series(kinds.GLOBAL_BETWEEN),
    )
    last = {
        name: lately(runs, at_stage(runs, rows)) for name, rows in (("a_sel", local), ("a_sel_global", whole))
    }
    return {**last, "a_sel_drop": lately(runs, at_stage(runs, local, 0)) - last["a_sel"]}


def _readings(runs: Runs) -> dict[str, pd.Series[float]]:
    """Return what a run was asked to measure in addition.

    These are the variances of eigenvalues (R1, R2 and R4 of the global model, R3 of the clients' models), and
    how many million numbers a client holds.
    """
    rows = {
        "eigenvalue_variance": kinds.SPECTRUM_BATCHES,
        "eigenvalue_variance_class": kinds.SPECTRUM_CLASSES,
        "eigenvalue_variance_client": kinds.SPECTRUM_CLIENTS,
        "eigenvalue_variance_raw": kinds.SPECTRUM_RAW,
        **{metric.name: metric for metric in (kinds.FLOATS_MODEL, kinds.FLOATS_TRAINING, kinds.FLOATS_KEPT)},
    }
    columns = {name: recent(runs.series(metric), 1) for name, metric in rows.items()}
    return {name: values / 1e6 if name.startswith("floats") else values for name, values in columns.items()}


def _participants(runs: Runs) -> pd.Series[float]:
    """Return how many clients upload in a round, from what each run planned.

    Clients that never train do not count. A server that does not wait makes a round of each upload, or of a
    buffer of them.
    """
    if PARTICIPATION not in runs.runs:
        return pd.Series(dtype=float)
    about = runs.runs.reindex(columns=["clients", PARTICIPATION, UNSEEN_CLIENTS, SERVER, BUFFER])
    clients, unseen = (pd.to_numeric(about[name]) for name in ("clients", UNSEEN_CLIENTS))
    training = clients - (unseen.fillna(0) * clients).round()
    waits = (training * about[PARTICIPATION]).round().clip(lower=1)
    buffered = waits.mask(about[SERVER] == "fedbuff", pd.to_numeric(about[BUFFER]))
    return buffered.mask(about[SERVER] == "fedasync", 1.0)
