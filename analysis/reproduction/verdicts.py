"""Compare a paper's table with ours: item.json lists the runs of each cell, printed/*.csv the printed values.

At full scale a number agrees with the printed one if they differ by no more than the item's tolerance or our
95 % interval. At proxy scale absolute numbers mean nothing, so the sign of each difference to the baseline is
compared. Smoke runs get no verdict. A printed number that is not to be reproduced is "no target".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from ..metrics.intervals import t_interval
from ..metrics.stages import a_glo, a_loc
from ..runs.load import Runs
from ..table import TextTable, without_blank
from .cell_values import DIGITS, values_of
from .item_runs import Reproduction, best_setting, cell_names, measure_of, setting_means, stray_of
from .printed import printed_places, printed_value
from .term_strength import NO_TEST, untested

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
        no_test: whether the method's terms are too weak to test anything.
    """

    row: str
    column: str
    printed: float
    ours: list[float]
    printed_gain: float
    gains: list[float]
    target: bool = True
    no_test: bool = False

    @property
    def mean(self) -> float:
        return sum(self.ours) / len(self.ours) if self.ours else math.nan


def result_lines(item: Reproduction, runs: Runs) -> list[Line]:
    """Return one line for each cell, and one for each cell of a column of averages."""
    paper, baseline = item.about["paper"], item.about["baseline"]
    printed = {key: printed_value(paper, where) for key, where in printed_places(item).items()}
    ours = {key: values_of(item, key, runs) for key in printed}
    aside = {(cell["row"], cell["column"]) for cell in item.about["cells"] if not cell.get("target", True)}
    parts = {average["column"]: average["of"] for average in item.about["averages"]}
    weak = untested(item, runs)
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
        found = list(values.values())
        idle = any((row, part) in weak for part in parts.get(column, (column,)))
        lines.append(Line(row, column, printed[row, column], found, gain, gains, target, idle))
    return lines


def verdict(line: Line, scale: str, tolerance: float) -> str:
    """Return the verdict on a line, in one or two words. The beginning of this module explains them."""
    if not line.ours:
        return "not run"
    if line.no_test and scale != "smoke":
        return NO_TEST
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


def paper_table(item: Reproduction, runs: Runs) -> TextTable:
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
