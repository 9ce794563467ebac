"""One line an experiment: mean ± 95 % t-interval over seeds, as a DataFrame, text, Markdown, HTML or
LaTeX.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from ..render.cells import for_csv
from ..render.page import render
from ..runs.comparable import stated
from ..runs.groups import Group, groups
from ..runs.load import Runs
from ..table import TextTable, as_latex, as_markdown, as_text
from .intervals import t_interval
from .measures import MEASURES, Measure, measures

COMPARABLE = "Comparable"
_TITLES = {
    "method": "Method",
    "dataset": "Data set",
    "partition": "Partition",
    "run": "Run",
    "seed": "Seed",
    "seeds": "Seeds",
    "rounds": "Rounds",
    "state": "State",
}


def summary(runs: Runs, over_seeds: bool = True) -> pd.DataFrame:
    """One row a group of seeds, or with `over_seeds=False` one row a run, by task and falling accuracy.

    accuracy_last, accuracy_best, accuracy_mean10: aggregation accuracy (the global model on the server's test
        set) at the last evaluated round, the highest, and the mean of the last 10 evaluated rounds; fractions
        in [0, 1].
    personal_last: personalization accuracy, the mean over clients of each personal model on its own local
    test set. personal_observed, personal_f1: of the same models, where only classes of the client's training
    data may be the answer, and
        the mean over clients of macro-F1.
    mb_up, mb_down: 10^6 bytes a round, all participants together, mean over rounds. seconds_round: median
    over rounds. …_ci: half width of the 95 % t-interval over seeds; NaN below two seeds. rounds_done: of the
    shortest run used. comparable, comparable_set: only where there is something to say: "yes", or what keeps
    a row from being compared with most of
        its task; rows of a task with one number may be compared.
    """
    measured = measures(runs)
    if over_seeds:
        rows = [_group_row(group, measured, runs) for group in groups(runs)]
    else:
        rows = [
            {"run": name, "seed": runs.runs.at[name, "seed"]}
            | _group_row(group._replace(used=(name,), state=str(runs.runs.at[name, "state"])), measured, runs)
            for group in groups(runs)
            for name in (*group.used, *(other for other, _ in group.left_out))
        ]
    frame = pd.DataFrame(rows)
    if (frame["comparable"] == "yes").all():
        frame = frame.drop(columns=["comparable", "comparable_set"])
    order = ["dataset", "partition", "accuracy_last", "method"]
    return frame.sort_values(order, ascending=[True, True, False, True], kind="stable").reset_index(drop=True)


def _group_row(group: Group, measured: pd.DataFrame, runs: Runs) -> dict[str, object]:
    names = list(group.used)
    row: dict[str, object] = {"method": group.label, "dataset": group.dataset, "partition": group.partition}
    row["seeds"] = len(names)
    found = measured.loc[names]  # once: a lookup by label costs milliseconds
    for measure in MEASURES:
        values = [value for value in found[measure].tolist() if not math.isnan(value)]
        row[measure] = sum(values) / len(values) if values else math.nan
        row[f"{measure}_ci"] = t_interval(values)
    row["rounds_done"] = int(runs.runs.loc[names, "rounds_done"].min())
    row["rounds_planned"] = runs.runs.loc[names, "rounds_planned"].max()
    row["state"] = group.state
    row["comparable"], row["comparable_set"] = stated(runs, group)
    return row


def cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Titles and formatted cells of a summary: percent, `mean ± half width`, `done/planned` rounds, – for
    nothing.
    """
    names = [name for name in ("run", "method", "dataset", "partition", "seed", "seeds") if name in table]
    shown = {name: m for name, m in MEASURES.items() if not m.optional or table[name].notna().any()}
    titles = [_TITLES[name] for name in names] + [m.title for m in shown.values()] + ["Rounds", "State"]
    said = "comparable" in table
    titles += [COMPARABLE] if said else []
    lines = []
    for _, row in table.iterrows():
        line = [
            f"{row[name]:.0f}" if isinstance(row[name], float) else " ".join(str(row[name]).split())
            for name in names
        ]
        line += [_measured(row[name], row[f"{name}_ci"], measure) for name, measure in shown.items()]
        line += [_rounds(row["rounds_done"], row["rounds_planned"]), str(row["state"])]
        lines.append([*line, *([str(row["comparable"])] if said else [])])
    return titles, lines


def _measured(mean: float, half: float, measure: Measure) -> str:
    if math.isnan(mean):
        return "–"
    shown = f"{mean / measure.unit:.{measure.digits}f}"
    return (
        shown
        if math.isnan(half) or not (measure.higher_is_better or half)
        else f"{shown} ± {half / measure.unit:.{measure.digits}f}"
    )


def _rounds(done: int, planned: float | None) -> str:
    return f"{done}" if planned is None or math.isnan(planned) or planned == done else f"{done}/{planned:.0f}"


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """The summary for spreadsheets: numbers as they are, names so that none is a formula."""
    words = {
        name: [for_csv(one) if isinstance(one, str) else one for one in table[name]]
        for name in table.columns
        if not pd.api.types.is_numeric_dtype(table[name])
    }
    table.assign(**words).to_csv(path, index=False)


def to_text(table: pd.DataFrame) -> str:
    """Columns aligned with spaces: words to the left, numbers to the right."""
    return as_text(_sheet(table))


def to_markdown(table: pd.DataFrame) -> str:
    """A GitHub table; what could be Markdown or HTML in a name is escaped."""
    return as_markdown(_sheet(table))


def to_html(table: pd.DataFrame, hide: Collection[str] = ()) -> str:
    """A <table> of class `summary`; the best mean of a column is <strong> where methods compete on one task.
    `hide`: columns that what is around the table says already.
    """
    return str(render("table.html.j2", sheet=marked(table, hide)))


def marked(table: pd.DataFrame, hide: Collection[str] = ()) -> TextTable:
    """The summary as a table in which the best mean of a column is strong; `hide`: columns to leave out."""
    sheet = _sheet(table.drop(columns=list(hide)))
    best = {(row, list(sheet.titles).index(title)) for row, title in _best(table)}
    return sheet._replace(strong=frozenset(best))


def to_latex(table: pd.DataFrame) -> str:
    """A booktabs tabular."""
    return as_latex(_sheet(table))


def _sheet(table: pd.DataFrame) -> TextTable:
    titles, lines = cells(table)
    return TextTable(
        titles, lines, frozenset({"Run", "Method", "Data set", "Partition", "State", COMPARABLE})
    )


def _best(table: pd.DataFrame) -> set[tuple[int, str]]:
    """(row, title) of the highest accuracies of each task that has two rows or more that may be compared."""
    best = set()
    table = table.reset_index(drop=True)
    kinds = ["dataset", "partition", *(["comparable_set"] if "comparable_set" in table else [])]
    for _, rivals in table.groupby(kinds):
        for name, measure in MEASURES.items():
            values = (rivals[name].dropna() / measure.unit).round(measure.digits)
            if measure.higher_is_better and len(values) > 1:
                best |= {(int(row), measure.title) for row in values.index[values == values.max()]}
    return best
