"""Compare a paper's table with ours: item.json lists the runs of each cell, printed/*.csv what is printed.

At full scale a number is judged by the item's margin (metrics/equivalence.py). At proxy scale absolute
numbers mean nothing, so the sign of each difference to the baseline is compared. Smoke runs only say that a
cell runs. A printed number that is not to be reproduced is "no target".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from ..metrics.compare import NO_SPREAD
from ..metrics.equivalence import TOO_FEW, PrintedNumber, agreement, difference
from ..metrics.intervals import LEAST_SEEDS, reported_interval
from ..metrics.stages import a_glo, a_loc
from ..runs.load import Runs
from ..table import TextTable, without_blank
from .absent import DIVERGED, NOT_RUN, absence, lost_runs, setting_absence
from .cell_values import DIGITS, values_of
from .item_runs import (
    Place,
    Reproduction,
    best_setting,
    cell_at,
    cell_names,
    measure_at,
    measure_of,
    missing_settings,
    partial_averages,
    parts_of,
    setting_means,
    stray_of,
)
from .numbers import shown
from .printed import printed_numbers, printed_value
from .table_order import places_in_order
from .term_strength import NO_TEST, untested
from .verdict_marks import SETTINGS_MISSING

LEFT_OUT = "Runs left out"
SPREAD, CLOSE_INTERVAL, WITNESSES = "Paper's s (runs)", "90 % interval of Δ", "Other sources"
ASIDES = {"a_loc": "Clients measured, at least", "a_glo": "Answered by"}
ANSWERS = {"global": "global model", "oracle": "oracle: mean of the heads", "own": "clients' own answers"}


class Line(NamedTuple):
    """A cell of the table.

    Attributes:
        row: the method.
        column: the setting.
        told: the printed number; NaN if there is none.
        ours: our values, one for each seed.
        printed_gain: the printed difference to the baseline; NaN if there is none.
        gains: our differences to the baseline, paired by seed.
        target: whether the printed value is to be reproduced.
        no_test: whether the method's terms are too weak to test anything.
        absent: the verdict if there are no values of ours.
        counted: whether values are counts or sizes, which may be exactly alike in all seeds.
        lost: number of runs with which training diverged.
        seeds: the seeds of our values.
        unsettled: the verdict if our values are not final (`unsettled`); empty if they are.
        unpaired: the same of the differences, for which those of the baseline must be final as well.
    """

    row: str
    column: str
    told: PrintedNumber
    ours: list[float]
    printed_gain: float
    gains: list[float]
    target: bool = True
    no_test: bool = False
    absent: str = NOT_RUN
    counted: bool = False
    lost: int = 0
    seeds: Sequence[int] = ()
    unsettled: str = ""
    unpaired: str = ""

    @property
    def printed(self) -> float:
        return self.told.value

    @property
    def mean(self) -> float:
        return sum(self.ours) / len(self.ours) if self.ours else math.nan

    @property
    def separated(self) -> bool:
        """Whether the 95 % interval of the gains is above or below 0.

        Gains that are not finite, as in a seed that never reaches what is counted, separate nothing, and
        neither do accuracies whose difference is the same in all seeds.
        """
        mean, half = sum(self.gains) / len(self.gains) if self.gains else 0.0, reported_interval(self.gains)
        alike = not self.counted and half <= NO_SPREAD
        return math.isfinite(mean) and abs(mean) > half and not alike


def result_lines(item: Reproduction, runs: Runs) -> list[Line]:
    """Return one line for each cell, and one for each cell of a column of averages.

    They are in the order of the paper's table, column by column.
    """
    baseline, numbers = str(item.about["baseline"]), printed_numbers(item)
    ours = {place: values_of(item, place, runs) for place in numbers}
    aside = {(cell["row"], cell["column"]) for cell in item.about["cells"] if not cell.get("target", True)}
    weak, lines = untested(item, runs), []
    for row, column in places_in_order(item, ours):
        place, against = (row, column), (baseline, column)
        parts, values = parts_of(item, place), ours[place]
        others = {} if row == baseline else ours.get(against, {})
        gain = numbers[place].value - numbers.get(against, PrintedNumber()).value
        lines.append(
            Line(
                row,
                column,
                numbers[place],
                list(values.values()),
                math.nan if row == baseline else gain,
                [values[seed] - others[seed] for seed in values if seed in others],
                target=aside.isdisjoint(parts),
                no_test=not weak.keys().isdisjoint(parts),
                absent=NOT_RUN if values else absence(item, place, runs).word,
                counted=measure_at(item, place) in DIGITS,
                lost=sum(len(lost_runs(item, part)) for part in parts),
                seeds=list(values),
                unsettled=unsettled(item, parts, runs).partition(":")[0],
                unpaired=unsettled(item, parts_of(item, place, against), runs).partition(":")[0],
            )
        )
    return lines


def unsettled(item: Reproduction, places: Sequence[Place], runs: Runs) -> str:
    """Return that runs of cells diverged, or that not all of their settings were run; "" if neither."""
    lost = dict.fromkeys(row for row, column in places if lost_runs(item, (row, column)))
    if lost:
        return f"{DIVERGED}: training diverged in some runs of {', '.join(lost)}"
    cells = [cell for place in places if (cell := cell_at(item, place)) is not None]
    rows = dict.fromkeys(cell["row"] for cell in cells if missing_settings(item, cell, runs))
    return f"{SETTINGS_MISSING}: not all settings of {', '.join(rows)} were run" if rows else ""


def verdict(line: Line, scale: str, margin: float) -> str:
    """Return the verdict on a line, in a few words. The beginning of this module explains them."""
    if not line.ours:
        return line.absent
    if scale == "smoke":
        return "runs"
    if line.unsettled or line.no_test:
        return line.unsettled or NO_TEST
    if scale == "full":
        if math.isnan(line.printed):
            return "not printed"
        if not line.target:
            return "no target"
        return agreement(line.ours, line.told, margin, counted=line.counted)
    if math.isnan(line.printed_gain) or not line.gains:
        return "–"
    return order_word(line, margin) if line.target else "no target"


def seeds_in_words(count: int, lost: int) -> str:
    """Return how many seeds a mean has, and how many are missing because training diverged."""
    return f"{count} of {count + lost}, {lost} {DIVERGED}" if lost else str(count)


def order_word(line: Line, margin: float) -> str:
    """Return whether our difference to the baseline has the sign of the printed one."""
    if line.unpaired:
        return line.unpaired
    if abs(line.printed_gain) < margin:
        return "no claim"  # The paper's own difference means no difference.
    if len(line.gains) < LEAST_SEEDS:
        return TOO_FEW
    if not line.separated:
        return "not separated"
    return "same order" if sum(line.gains) * line.printed_gain > 0 else "opposite order"


def paper_table(item: Reproduction, runs: Runs) -> TextTable:
    """Return the table of printed values, ours (mean ± 95 % interval), seeds, differences and verdicts.

    At full scale the difference is ours minus the paper's, with the 90 % interval by which it is judged, and
    what other sources print. At proxy scale it is to the baseline. Smoke runs
    are compared with nothing. If no number is printed, as for claims, the columns that compare with it
    are left out.
    """
    scale, baseline = item.about["scale"], item.about["baseline"]
    titles = ["Method", "Column", "Paper", "Ours", "Seeds"]
    full = [SPREAD, "Δ", CLOSE_INTERVAL, WITNESSES]
    titles += full if scale == "full" else [f"Paper − {baseline}", f"Ours − {baseline}"]
    title, said = _settings(item, runs) or _asides(item, runs)
    left = {(cell["row"], cell["column"]): stray_of(item, cell, runs) or "–" for cell in item.about["cells"]}
    lines = []
    for line in result_lines(item, runs):
        digits = digits_of(item, line)
        cells = [line.row, column_name(item, line.column)]
        cells += [shown([] if scale == "smoke" else [line.printed], digits), shown(line.ours, digits)]
        cells.append(seeds_in_words(len(line.ours), line.lost))
        if scale == "full":
            cells += _judged_by(item, line, digits)
        elif scale == "smoke":
            cells += ["–", "–"]
        else:
            cells += [shown([line.printed_gain], digits, sign=True), shown(line.gains, digits, sign=True)]
        cells += [said.get((line.row, line.column), "–")] if title else []
        word = verdict(line, scale, item.about["margin"])
        lines.append([*cells, word, left.get((line.row, line.column), "–")])
    titles += [title] if title else []
    whole = TextTable(
        [*titles, "Verdict", LEFT_OUT], lines, frozenset({"Method", "Column", title, "Verdict", LEFT_OUT})
    )
    blank = {"Paper", *full, f"Paper − {baseline}", "Verdict", LEFT_OUT}
    return without_blank(whole, blank | ({f"Ours − {baseline}"} if scale == "smoke" else set()))


def _judged_by(item: Reproduction, line: Line, digits: int) -> list[str]:
    """Return the print's deviation and its runs, the difference to it, its interval, and other sources."""
    told, gap = line.told, difference(line.ours, line.told)
    spread = "–" if math.isnan(told.spread) or not told.runs else f"{told.spread:g} ({told.runs})"
    interval = "–" if gap is None else " to ".join(shown([end], digits, sign=True) for end in gap.interval())
    cell = cell_at(item, (line.row, line.column)) or {}
    others = (printed_value(item.about["paper"], place) for place in cell.get("witnesses", ()))
    said = ", ".join(f"{other:g}" for other in others) or "–"
    return [spread, shown([line.mean - line.printed], digits, sign=True), interval, said]


def column_name(item: Reproduction, column: str) -> str:
    """Return the name of a column. One of averages says so if the scale has only some of its columns."""
    mean = partial_averages(item).get(column)
    return column if mean is None else f"{column} of {len(mean['of'])} of {mean['whole']} columns"


def digits_of(item: Reproduction, line: Line) -> int:
    """Return the decimal places of a cell, which depend on its own measure."""
    return DIGITS.get(measure_at(item, (line.row, line.column)), 2)


def _settings(item: Reproduction, runs: Runs) -> tuple[str, dict[tuple[str, str], str]] | None:
    """Return which of several settings is the best, and what each scored; None if there are no settings."""
    cells = [cell for cell in item.about["cells"] if cell.get("settings")]
    if not cells:
        return None
    texts = {}
    for cell in cells:
        means = setting_means(item, cell, runs)
        if all(math.isnan(mean) for mean in means.values()):
            continue
        best = best_setting(item, cell, runs)
        others = ", ".join(
            setting_absence(item, cell, setting, runs) if math.isnan(mean) else f"{mean:.2f}"
            for setting, mean in means.items()
            if setting != best
        )
        texts[cell["row"], cell["column"]] = f"{best} (others: {others})" if others else best
    return "Best setting", texts


def _asides(item: Reproduction, runs: Runs) -> tuple[str, dict[tuple[str, str], str]]:
    """Return an additional column that some measures need, and its text for every cell.

    It gives the number of clients behind A_loc, and the model that A_glo was measured on.
    """
    texts, titles = {}, dict[str, str]()
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
        texts[cell["row"], cell["column"]] = text
    return " / ".join(titles[measure] for measure in ASIDES if measure in titles), texts
