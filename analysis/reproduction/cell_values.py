"""Measure the runs of a cell of a table, in the unit that the paper prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from raffed.results.metrics import PERSONAL_BETWEEN, TEST_ACCURACY

from ..metrics.gains import client_gains
from ..metrics.measures import LAST_ROUNDS, measures
from ..metrics.targets import first_reaching
from ..runs.load import Runs
from .item_runs import Reproduction, cell_names, measure_of, parts_of

READERS = (
    "accuracy_last",
    "accuracy_best",
    "accuracy_mean10",
    "accuracy_clean_mean10",
    "accuracy_mean25",
    "accuracy_mean_fifth",
    "accuracy_mean",
    "balanced_last",
    "balanced_best",
    "personal_last",
    "personal_mean10",
    "between_last",
    "between_mean10",
    "losing_last",
    "gaining_last",
    "personal_best",
    "between_best",
    "downloaded_weighted_last",
    "downloaded_weighted_best",
    "local_weighted_last",
    "local_weighted_best",
    "personal_weighted_last",
    "personal_weighted_best",
    "between_weighted_last",
    "between_weighted_best",
    "training_last",
    "training_best",
    "a_loc",
    "a_glo",
    "a_sel",
    "a_sel_global",
    "a_sel_drop",
    "floats_up",
    "seconds_round",
    "eigenvalue_variance",
    "eigenvalue_variance_class",
    "eigenvalue_variance_client",
    "eigenvalue_variance_raw",
    "rounds_to_baseline",
    "personal_rounds_to_baseline",
)


ROUNDS = {  # what counts rounds: of which accuracy
    "rounds_to_baseline": TEST_ACCURACY,
    "personal_rounds_to_baseline": PERSONAL_BETWEEN,
}


SIGNS = {"losing_last": -1, "gaining_last": 1}  # what counts clients: which way they moved


DIGITS = {
    "floats_up": 3,
    "seconds_round": 2,
    **dict.fromkeys(ROUNDS, 0),
    **{name: 1 for name in READERS if name.startswith("eigenvalue")},
}


def values_of(item: Reproduction, key: tuple[str, str], runs: Runs, measure: str = "") -> dict[int, float]:
    """Return the values of a cell by seed, also for a cell of a column of averages.

    An average is the mean over its columns, for the seeds that all of them have. Of several settings the
    values are those of the cell's best one, whichever measure is named.
    """
    parts = [cell_values(item, part, runs, measure) for part in parts_of(item, key)]
    common = set.intersection(*map(set, parts)) if parts else set()
    return {seed: sum(values[seed] for values in parts) / len(parts) for seed in sorted(common)}


def cell_values(item: Reproduction, key: tuple[str, str], runs: Runs, measure: str = "") -> dict[int, float]:
    """Map each seed to the measure of a cell's run, in the unit that the paper prints.

    The measure is the cell's own, or the one that is named. The result is empty if there is no such cell.
    """
    cells = {(cell["row"], cell["column"]): cell for cell in item.about["cells"]}
    names = cell_names(item, cells[key], runs) if key in cells else []
    if not names:
        return {}
    measure = measure or measure_of(item, cells[key])
    if measure in ROUNDS or measure in SIGNS:
        against = cells.get((item.about["baseline"], key[1]))
        baseline = cell_names(item, against, runs) if against else []
        return (
            _rounds_to(runs, names, baseline, measure)
            if measure in ROUNDS
            else _moved(runs, names, baseline, SIGNS[measure])
        )
    values = measures(runs).loc[names, measure] * (1 if measure in DIGITS else 100)
    seeds = runs.runs.loc[names, "seed"]
    return {
        int(seed): float(value)
        for seed, value in sorted(zip(seeds, values, strict=True))
        if not math.isnan(value)
    }


def _rounds_to(runs: Runs, names: Sequence[str], baseline: Sequence[str], measure: str) -> dict[int, float]:
    """Map each seed to the first round whose accuracy reaches the baseline's; infinite if none does.

    The baseline's accuracy is its best one on the test set, or between rounds the mean of its last ten
    (MpFedcon). The baseline's own number is all its rounds, by the papers' definition.
    """
    matrix, best = runs.matrix(ROUNDS[measure]), measure == "rounds_to_baseline"
    seeds = {str(name): int(seed) for name, seed in runs.runs["seed"].items()}
    curves = {seeds[name]: matrix[name].dropna() for name in baseline if name in matrix}
    rounds = {}
    for name in names:
        seed = seeds[name]
        if seed in curves and name in matrix:
            curve = curves[seed]
            target = float(curve.max() if best else curve.iloc[-LAST_ROUNDS:].mean())
            reached = first_reaching(matrix[name], target)
            rounds[seed] = (
                float(curve.index[-1]) if name in baseline else (math.inf if math.isnan(reached) else reached)
            )
    return dict(sorted(rounds.items()))


def _moved(runs: Runs, names: Sequence[str], baseline: Sequence[str], sign: int) -> dict[int, float]:
    """Map each seed to the percentage of clients whose score moved against the baseline.

    A client counts if its last score between rounds is above (sign 1) or below (sign −1) that of the same
    client in the baseline's run of the same seed.
    """
    shares = {}
    for name in names:
        for gains in client_gains(runs, [name], baseline, PERSONAL_BETWEEN):
            shares[int(runs.runs["seed"][name])] = 100 * sum(sign * gain > 0 for gain in gains) / len(gains)
    return dict(sorted(shares.items()))
