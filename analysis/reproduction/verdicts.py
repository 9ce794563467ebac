"""Compare a paper's table with ours: item.json lists the runs of each cell, printed/*.csv the printed values.

At full scale a number agrees with the printed one if they differ by no more than the item's tolerance or our
95 % interval. At proxy scale absolute numbers mean nothing, so the sign of each difference to the baseline is
compared. Smoke runs get no verdict. A printed number that is not to be reproduced is "no target".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from raffed.results.score_metrics import PERSONAL_BETWEEN, TEST_ACCURACY

from ..metrics.gains import client_gains
from ..metrics.intervals import t_interval
from ..metrics.measures import LAST_ROUNDS, measures
from ..metrics.stages import a_glo, a_loc
from ..metrics.targets import first_reaching
from ..runs.load import Runs
from ..table import TextTable, without_blank
from .item_runs import Reproduction, best_setting, cell_names, measure_of, setting_means, stray_of

PRINTED = {
    "fedmr": "fedmr.csv",
    "map": "map.csv",
    "gldp": "gldp-mpfedcon.csv",
    "mpfedcon": "gldp-mpfedcon.csv",
}
NAMES = {"fedmr": "FedMR-TMLR2023", "map": "map", "gldp": "GLDP", "mpfedcon": "MpFedcon"}
READERS = (
    "accuracy_last",
    "accuracy_best",
    "accuracy_mean10",
    "accuracy_mean",
    "balanced_last",
    "balanced_best",
    "personal_last",
    "personal_mean10",
    "between_last",
    "between_mean10",
    "losing_last",
    "gaining_last",
    "a_loc",
    "a_glo",
    "a_sel",
    "a_sel_global",
    "a_sel_drop",
    "floats_up",
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
    **dict.fromkeys(ROUNDS, 0),
    **{name: 1 for name in READERS if name.startswith("eigenvalue")},
}
LEFT_OUT = "Runs left out"
ASIDES = {"a_loc": "Clients measured, at least", "a_glo": "Answered by"}
ANSWERS = {"global": "global model", "oracle": "oracle: mean of the heads", "own": "clients' own answers"}


class Line(NamedTuple):
    """A cell of the table.

    Attributes:
        row: the method.
        column: the setting.
        printed: the printed value; NaN if there is none.
        ours: our values, one for each seed.
        printed_gain: the printed difference to the baseline; NaN if there is none.
        gains: our differences to the baseline, paired by seed.
        target: whether the printed value is to be reproduced.
    """

    row: str
    column: str
    printed: float
    ours: list[float]
    printed_gain: float
    gains: list[float]
    target: bool = True

    @property
    def mean(self) -> float:
        return sum(self.ours) / len(self.ours) if self.ours else math.nan


@functools.lru_cache(maxsize=4)
def printed_values(paper: str) -> pd.DataFrame:
    """Return the paper's numbers as text, one row for each value."""
    frame = pd.read_csv(
        Path(__file__).parents[1] / "printed" / PRINTED[paper], dtype=str, keep_default_na=False
    )
    return frame[frame["paper"] == NAMES[paper]]


def printed_value(paper: str, where: Mapping[str, str]) -> float:
    """Return the one number that the paper prints for these values of the columns.

    The result is NaN if there is none, or if it is not a number.
    """
    if not where:
        return math.nan
    frame = printed_values(paper)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    try:
        return float(frame["value"].item())
    except ValueError:
        return math.nan


def printed_places(item: Reproduction) -> dict[tuple[str, str], Mapping[str, str]]:
    """Map (row, column) to the place where the paper prints the cell or the row's average.

    Others are empty.
    """
    places = {(cell["row"], cell["column"]): cell["printed"] for cell in item.about["cells"]}
    rows = dict.fromkeys(row for row, _ in places)
    for average in item.about["averages"]:
        where = average["printed"]
        places |= {(row, average["column"]): {**where, "method": row} if where else {} for row in rows}
    return places


def result_lines(item: Reproduction, runs: Runs) -> list[Line]:
    """Return one line for each cell, and one for each cell of a column of averages."""
    paper, baseline = item.about["paper"], item.about["baseline"]
    printed = {key: printed_value(paper, where) for key, where in printed_places(item).items()}
    ours = {key: values_of(item, key, runs) for key in printed}
    aside = {(cell["row"], cell["column"]) for cell in item.about["cells"] if not cell.get("target", True)}
    parts = {average["column"]: average["of"] for average in item.about["averages"]}
    lines = []
    for (row, column), values in ours.items():
        against = ours.get((baseline, column), {})
        gains = (
            [] if row == baseline else [values[seed] - against[seed] for seed in values if seed in against]
        )
        gain = (
            math.nan if row == baseline else printed[row, column] - printed.get((baseline, column), math.nan)
        )
        target = not any((row, part) in aside for part in parts.get(column, (column,)))
        lines.append(Line(row, column, printed[row, column], list(values.values()), gain, gains, target))
    return lines


def values_of(item: Reproduction, key: tuple[str, str], runs: Runs, measure: str = "") -> dict[int, float]:
    """Return the values of a cell by seed, also for a cell of a column of averages.

    An average is the mean over its columns, for the seeds that all of them have.
    """
    row, column = key
    average = next((one for one in item.about.get("averages", ()) if one["column"] == column), None)
    if average is None:
        return cell_values(item, key, runs, measure)
    seeds = [cell_values(item, (row, one), runs, measure) for one in average["of"]]
    common = set.intersection(*map(set, seeds)) if seeds else set()
    return {seed: sum(one[seed] for one in seeds) / len(seeds) for seed in sorted(common)}


def cell_values(item: Reproduction, key: tuple[str, str], runs: Runs, measure: str = "") -> dict[int, float]:
    """Map each seed to the measure of a cell's run, in the unit that the paper prints.

    The measure is the cell's own, or the one that is named. The result is empty if there is no such cell.
    """
    cells = {(cell["row"], cell["column"]): cell for cell in item.about["cells"]}
    names = cell_names(item, cells[key], runs, measure) if key in cells else []
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
    found = measures(runs).loc[names, measure] * (1 if measure in DIGITS else 100)
    seeds = runs.runs.loc[names, "seed"]
    return {
        int(seed): float(value)
        for seed, value in sorted(zip(seeds, found, strict=True))
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
    found = {}
    for name in names:
        seed = seeds[name]
        if seed in curves and name in matrix:
            curve = curves[seed]
            target = float(curve.max() if best else curve.iloc[-LAST_ROUNDS:].mean())
            reached = first_reaching(matrix[name], target)
            found[seed] = (
                float(curve.index[-1]) if name in baseline else (math.inf if math.isnan(reached) else reached)
            )
    return dict(sorted(found.items()))


def _moved(runs: Runs, names: Sequence[str], baseline: Sequence[str], sign: int) -> dict[int, float]:
    """Map each seed to the percentage of clients whose score moved against the baseline.

    A client counts if its last score between rounds is above (sign 1) or below (sign −1) that of the same
    client in the baseline's run of the same seed.
    """
    found = {}
    for name in names:
        for gains in client_gains(runs, [name], baseline, PERSONAL_BETWEEN):
            found[int(runs.runs["seed"][name])] = 100 * sum(sign * gain > 0 for gain in gains) / len(gains)
    return dict(sorted(found.items()))


def verdict(line: Line, scale: str, tolerance: float) -> str:
    """Return the verdict on a line, in one or two words. The beginning of this module explains them."""
    if not line.ours:
        return "not run"
    if scale == "full":
        if math.isnan(line.printed):
            return "not printed"
        if not line.target:
            return "no target"
        half = t_interval(line.ours)
        room = max(tolerance, 0.0 if math.isnan(half) else half)
        delta = line.mean - line.printed
        return "agrees" if abs(delta) <= room else ("higher" if delta > 0 else "lower")
    if scale != "proxy" or math.isnan(line.printed_gain) or not line.gains:
        return "–"
    return _order(line, tolerance) if line.target else "no target"


def _order(line: Line, tolerance: float) -> str:
    if abs(line.printed_gain) < tolerance:
        return "no claim"  # The paper's own difference is within its noise.
    mean, half = sum(line.gains) / len(line.gains), t_interval(line.gains)
    if math.isnan(half):
        return "one seed"
    if abs(mean) <= half:
        return "not separated"
    return "same order" if mean * line.printed_gain > 0 else "opposite order"


def paper_sheet(item: Reproduction, runs: Runs) -> TextTable:
    """Return the table of printed values, ours (mean ± 95 % interval), seeds, differences and verdicts.

    At full scale the difference is ours minus the paper's, at other scales it is to the baseline. If the
    paper prints no number, as for claims, the columns that compare with it are left out.
    """
    scale, baseline = item.about["scale"], item.about["baseline"]
    titles = ["Method", "Column", "Paper", "Ours", "Seeds"]
    titles += ["Δ"] if scale == "full" else [f"Paper − {baseline}", f"Ours − {baseline}"]
    digits = DIGITS.get(item.about["measure"], 2)
    title, said = _settings(item, runs) or _asides(item, runs)
    left = {(cell["row"], cell["column"]): stray_of(item, cell, runs) or "–" for cell in item.about["cells"]}
    parts, lines = _parts(item), []
    for line in result_lines(item, runs):
        cells = [
            line.row,
            parts.get(line.column, line.column),
            shown([line.printed], digits),
            shown(line.ours, digits),
        ]
        cells.append(str(len(line.ours)))
        if scale == "full":
            cells.append(shown([line.mean - line.printed], digits, sign=True))
        else:
            cells += [shown([line.printed_gain], digits, sign=True), shown(line.gains, digits, sign=True)]
        beside = [said.get((line.row, line.column), "–")] if title else []
        lines.append(
            [
                *cells,
                *beside,
                verdict(line, scale, item.about["tolerance"]),
                left.get((line.row, line.column), "–"),
            ]
        )
    titles += [title] if title else []
    whole = TextTable(
        [*titles, "Verdict", LEFT_OUT], lines, frozenset({"Method", "Column", title, "Verdict", LEFT_OUT})
    )
    return without_blank(whole, {"Paper", "Δ", f"Paper − {baseline}", "Verdict", LEFT_OUT})


def _parts(item: Reproduction) -> dict[str, str]:
    """Return the name of a column of averages if the scale has only some of its columns."""
    averages = [(one["column"], len(one["of"]), one.get("whole", 0)) for one in item.about["averages"]]
    return {column: f"{column} of {of} of {whole} columns" for column, of, whole in averages if of < whole}


def _settings(item: Reproduction, runs: Runs) -> tuple[str, dict[tuple[str, str], str]] | None:
    """Return which of several settings is the best, and what each scored; None if there are no settings."""
    cells = [cell for cell in item.about["cells"] if cell.get("settings")]
    if not cells:
        return None
    found = {}
    for cell in cells:
        means = setting_means(item, cell, runs)
        if all(math.isnan(mean) for mean in means.values()):
            continue
        best = best_setting(item, cell, runs)
        others = ", ".join(
            "not run" if math.isnan(mean) else f"{mean:.2f}"
            for setting, mean in means.items()
            if setting != best
        )
        found[cell["row"], cell["column"]] = f"{best} (others: {others})" if others else best
    return "Best setting", found


def _asides(item: Reproduction, runs: Runs) -> tuple[str, dict[tuple[str, str], str]]:
    """Return an additional column that some measures need, and its text for every cell.

    It gives the number of clients behind A_loc, and the model that A_glo was measured on.
    """
    found, titles = {}, dict[str, str]()
    for cell in item.about["cells"]:
        measure = measure_of(item, cell)
        if measure not in ASIDES:
            continue
        titles[measure] = ASIDES[measure]
        names = cell_names(item, cell, runs)
        if measure == "a_loc":
            counts = a_loc(runs)["clients"].reindex(names).dropna().astype(int)
            of = pd.to_numeric(runs.runs.loc[names, "clients"]).max()
            text = f"{min(counts)} of {of:.0f}" if len(counts) else "–"
        else:
            text = (
                ", ".join(
                    ANSWERS[word] for word in dict.fromkeys(a_glo(runs)["reading"].reindex(names).dropna())
                )
                or "–"
            )
        found[cell["row"], cell["column"]] = text
    return " / ".join(titles[measure] for measure in ASIDES if measure in titles), found


def verdicts(item: Reproduction, runs: Runs) -> dict[str, int]:
    """Map each verdict to the number of cells that have it."""
    counts: dict[str, int] = {}
    for line in result_lines(item, runs):
        word = verdict(line, item.about["scale"], item.about["tolerance"])
        counts[word] = counts.get(word, 0) + 1
    return counts


def shown(values: Iterable[float], digits: int, sign: bool = False) -> str:
    """Write mean ± half width of the 95 % interval; a dash without a value, `never` for an infinite one."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "–"
    mean, half = sum(known) / len(known), t_interval(known)
    if math.isinf(mean):
        return "never"
    text = f"{mean:+.{digits}f}" if sign else f"{mean:.{digits}f}"
    return text.replace("-", "−") if math.isnan(half) else f"{text.replace('-', '−')} ± {half:.{digits}f}"
