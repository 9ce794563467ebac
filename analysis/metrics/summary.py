"""Summarise experiments: one row for each, mean ± 95 % t-interval over seeds, in several formats."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..render.cells import for_csv
from ..render.page import render
from ..runs.comparable import MARK, PREFIX, stated
from ..runs.conditions import RAFFED, engine_of
from ..runs.groups import Group, groups
from ..runs.load import Runs, section
from ..runs.method_names import AFTER, scored
from ..table import TextTable, as_latex, as_markdown, as_text
from .intervals import reported_interval
from .measures import MEASURES, Measure, measures
from .own_metrics import own_columns, own_measures

COMPARABLE = "Comparable"
WORDS = ("Run", "Method", "Engine", "Data set", "Partition", "State", "Comparable")  # titles of such columns
_TITLES = {
    "method": "Method",
    "engine": "Engine",
    "dataset": "Data set",
    "partition": "Partition",
    "run": "Run",
    "seed": "Seed",
    "seeds": "Seeds",
    "rounds": "Rounds",
    "state": "State",
}
EFFORT = {
    "local_epochs": "Local epochs",
    "steps_round": "Steps/round",
    "overrides": "Overrides",
    "scored": "Scored",
}


def summary(runs: Runs, over_seeds: bool = True) -> pd.DataFrame:
    """Summarise runs in a table, sorted by task and then by falling accuracy.

    Args:
        runs: the runs, from `load_runs`.
        over_seeds: whether a row is the mean over the seeds of one experiment. If False, each run has its own
            row.

    Returns:
        A DataFrame with the names of the experiment and these columns:

        - accuracy_last, accuracy_best, accuracy_mean10: accuracy of the global model on the server's test
          set, at the last evaluated round, at the best one, and as the mean of the last 10. All accuracies
          are fractions in [0, 1].
        - personal_last: mean over clients of the accuracy of each personal model on its own local test set.
        - personal_observed: the same, where only classes of the client's training data may be the answer.
        - personal_f1: mean over clients of the macro-F1 of the same models.
        - worst_decile_global, worst_decile_personal, spread_global, spread_personal, calibration: what runs
          with `measures = fairness` or `calibration` have measured after the last round.
        - mb_up, mb_down: 10^6 bytes in a round for all participants together, mean over rounds.
        - seconds_round: median over rounds.
        - columns that end in _ci: half width of the 95 % t-interval over seeds; NaN for fewer than three
          seeds, which are too few, and for unfinished runs that have not done the same number of rounds.
        - columns that end in _seeds: the number of seeds that have the measure.
        - own:NAME:MODEL:BETTER:UNIT: last value of a metric of the user's own, if a run has any.
        - engine: what executed the runs, if it was an author's engine for some.
        - reference: the method's reference, if a method of the user's own is shown by its title.
        - rounds_done, rounds_most: the rounds of the shortest and of the longest run that is used.
        - local_epochs, steps_round, overrides, scored: what `effort` returns; each is present if it differs.
        - comparable, comparable_set: present if some row may not be compared with most of its task. The first
          is "yes" or the reason; rows of a task with the same number in the second may be compared.
    """
    measured = measures(runs).join(own_measures(runs))
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
    if not frame["reference"].any():
        frame = frame.drop(columns=["reference"])
    if (frame["engine"] == RAFFED).all():
        frame = frame.drop(columns=["engine"])
    frame = frame.drop(columns=alike(frame))
    if (frame["comparable"] == "yes").all():
        frame = frame.drop(columns=["comparable", "comparable_set"])
    order = ["dataset", "partition", "accuracy_last", "method"]
    return frame.sort_values(order, ascending=[True, True, False, True], kind="stable").reset_index(drop=True)


def _group_row(group: Group, measured: pd.DataFrame, runs: Runs) -> dict[str, object]:
    names = list(group.used)
    row: dict[str, object] = {"method": group.label, "dataset": group.dataset, "partition": group.partition}
    row["seeds"] = len(names)
    of_group = measured.loc[names]  # Looked up once, because a lookup by label takes milliseconds.
    done = runs.runs.loc[names, "rounds_done"]
    whole = (runs.runs.loc[names, "state"] == "finished") & (runs.runs.loc[names, "damage"] == "")
    alike = done.nunique() == 1 or whole.all()
    for measure in (*MEASURES, *own_columns(measured.columns)):
        values = [value for value in of_group[measure].tolist() if not math.isnan(value)]
        row[measure] = sum(values) / len(values) if values else math.nan
        row[f"{measure}_ci"] = reported_interval(values) if alike else math.nan
        row[f"{measure}_seeds"] = len(values)
    row |= effort(runs, group)
    row["engine"] = engine_of(runs.files[group.used[0]])
    row["reference"] = group.reference
    row["rounds_done"] = int(done.min())
    row["rounds_most"] = int(done.max())
    row["rounds_planned"] = runs.runs.loc[names, "rounds_planned"].max()
    row["state"] = group.state
    row["comparable"], row["comparable_set"] = stated(runs, group)
    return row


def effort(runs: Runs, group: Group) -> dict[str, str]:
    """Return how long a client of a group trains in a round, and what the method overrides, as texts.

    local_epochs has the epochs of each pass of shared training, and says whether private training follows.
    steps_round is the mean over clients and seeds of the steps of shared training. overrides has the settings
    of the run that the method does not follow. scored says whether clients' own models are scored as they
    were downloaded, before training. What no run.json says is a dash.
    """
    about = [section(runs.files[name], "effective") for name in group.used]
    epochs = [f"{pass_['epochs']:g}" for pass_ in about[0].get("shared", []) if "epochs" in pass_]
    steps = [run["steps"] for run in about if "steps" in run]
    settings = section(about[0], "overridden").items()
    used = [f"{name} = {'own rule' if pair['used'] is None else pair['used']}" for name, pair in settings]
    private = ["private"] if epochs and "private" in about[0] else []
    return {
        "local_epochs": " + ".join(epochs + private) or "–",
        "steps_round": f"{sum(steps) / len(steps):.4g}" if steps else "–",
        "overrides": ", ".join(used) or ("none" if epochs else "–"),
        "scored": scored(section(runs.files[group.used[0]], "config").get("method")),
    }


def alike(table: pd.DataFrame) -> list[str]:
    """Return the columns of `effort` in which the rows of a table do not differ.

    When a method of the user's own is scored is not known, which alone is no difference.
    """
    same = [name for name in EFFORT if name in table and table[name].nunique() == 1]
    known = {"scored"} & {*table} - {*same}
    return same + [name for name in known if set(table[name]) == {AFTER, "–"}]


def shared_effort(runs: Runs, members: Sequence[Group]) -> str:
    """Return a sentence about the effort that all groups of a task have in common; "" without any."""
    told = [effort(runs, group) for group in members]
    common = [
        f"{title[0].lower()}{title[1:]} {told[0][name]}"
        for name, title in EFFORT.items()
        if len({row[name] for row in told}) == 1 and told[0][name] not in ("–", AFTER)
    ]
    return f"The same for every row: {', '.join(common)}." if common else ""


def cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the formatted cells of a summary.

    Accuracies are in per cent, as `mean ± half width`. Rounds are `done/planned` if these differ.
    """
    first = ("run", "method", "engine", "dataset", "partition", "seed", "seeds")
    names = [name for name in first if name in table]
    known = {**MEASURES, **own_columns(table.columns)}
    shown = {
        name: measure
        for name, measure in known.items()
        if name in table and (not measure.optional or table[name].notna().any())
    }
    titles = [_TITLES[name] for name in names] + [m.title for m in shown.values()] + ["Rounds", "State"]
    said = "comparable" in table
    spent = [name for name in EFFORT if name in table]
    at = len(names) + len(shown)
    titles[at:at] = [EFFORT[name] for name in spent]
    titles += [COMPARABLE] if said else []
    lines = []
    for _, row in table.iterrows():
        line = [
            f"{row[name]:.0f}" if isinstance(row[name], float) else " ".join(str(row[name]).split())
            for name in names
        ]
        line += [_measured(row, name, measure) for name, measure in shown.items()]
        line += [str(row[name]) for name in spent]
        line += [_rounds(row["rounds_done"], row["rounds_most"], row["rounds_planned"]), str(row["state"])]
        lines.append([*line, *([str(row["comparable"])] if said else [])])
    return titles, lines


def _measured(row: pd.Series[Any], name: str, measure: Measure) -> str:
    """Write a mean with its interval, and the number of seeds behind it if not all have the measure."""
    mean, half, seeds = row[name], row[f"{name}_ci"], row[f"{name}_seeds"]
    if math.isnan(mean):
        return "–"
    shown = f"{mean / measure.unit:.{measure.digits}f}"
    if not math.isnan(half) and (measure.higher_is_better or half):
        shown += f" ± {half / measure.unit:.{measure.digits}f}"
    return shown if seeds == row.get("seeds", seeds) else f"{shown} (of {seeds:.0f})"


def _rounds(done: int, most: int, planned: float | None) -> str:
    said = f"{done}" if done == most else f"{done}–{most}"
    return said if planned is None or math.isnan(planned) or planned == done else f"{said}/{planned:.0f}"


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write the summary as CSV.

    Numbers are not rounded, and no name is read as a formula by a spreadsheet.
    """
    words = {
        name: [for_csv(cell) if isinstance(cell, str) else cell for cell in table[name]]
        for name in table.columns
        if not pd.api.types.is_numeric_dtype(table[name])
    }
    table.assign(**words).to_csv(path, index=False)


def to_text(table: pd.DataFrame) -> str:
    """Format a summary for a terminal, in columns aligned with spaces.

    Args:
        table: a table from `summary`.

    Returns:
        Lines without a line break at the end. Words are aligned to the left, numbers to the right.
    """
    return as_text(_text_table(table))


def to_markdown(table: pd.DataFrame) -> str:
    """Format a summary as a GitHub table.

    Args:
        table: a table from `summary`.

    Returns:
        A table in which nothing that a name contains is read as Markdown, HTML or a link.
    """
    return as_markdown(_text_table(table))


def to_html(table: pd.DataFrame, hide: Collection[str] = (), best: Collection[str] = ()) -> str:
    """Format a summary as an HTML table.

    Args:
        table: a table from `summary`.
        hide: names of columns to leave out.
        best: titles of columns in which a difference is established, such as "Aggregation, last %". A table
            alone does not tell; `analysis.metrics.compare.established_best` tests it.

    Returns:
        A <table> of class `summary` in which every name is escaped. The best mean of the columns of `best` is
        <strong> if several methods of the task may be compared.
    """
    strong = {(row, title) for row, title in _best(table) if title in best}
    return str(render("table.html.j2", text_table=marked(table, hide, strong)))


def marked(table: pd.DataFrame, hide: Collection[str], strong: Collection[tuple[int, str]]) -> TextTable:
    """The summary as a table for a page, in which some cells are strong.

    `hide` names columns to leave out. `strong` holds (row, title of a column), with rows counted from 0.
    """
    text_table = _text_table(table.drop(columns=list(hide)))
    cells_at = {(row, list(text_table.titles).index(title)) for row, title in strong}
    hints = _hints(table, list(text_table.titles).index("Method"))
    return _short_reasons(text_table._replace(strong=frozenset(cells_at), hints=hints))


def _short_reasons(table: TextTable) -> TextTable:
    """Move the reasons why rows may not be compared, and notes, into hints, and mark such rows.

    The reasons made rows taller than a screen. A page lists all of them below its table. The mark is in the
    first column, because on most screens the last one is scrolled out of sight.
    """
    if COMPARABLE not in table.titles:
        return table
    at, method = (list(table.titles).index(title) for title in (COMPARABLE, "Method"))
    long = {(row, at): line[at] for row, line in enumerate(table.rows) if _in_short(line[at]) != line[at]}
    rows = []
    for line in table.rows:
        shown = list(line)
        shown[at] = _in_short(line[at])
        shown[method] += MARK if line[at].startswith(PREFIX) else ""
        rows.append(shown)
    return table._replace(rows=rows, hints={**table.hints, **long})


def _in_short(said: str) -> str:
    if said.startswith(PREFIX):
        return PREFIX.removesuffix(": ")
    verdict, _, note = said.partition("; ")
    return f"{verdict}, with a note" if note else said


def _hints(table: pd.DataFrame, column: int) -> dict[tuple[int, int], str]:
    """Return the references of methods that are shown by their titles."""
    if "reference" not in table:
        return {}
    return {(row, column): str(text) for row, text in enumerate(table["reference"]) if text}


def to_latex(table: pd.DataFrame) -> str:
    """Format a summary as a LaTeX table.

    Args:
        table: a table from `summary`.

    Returns:
        A tabular with the rules of booktabs, in which nothing that a name contains is read as a command.
    """
    return as_latex(_text_table(table))


def _text_table(table: pd.DataFrame) -> TextTable:
    titles, lines = cells(table)
    return TextTable(
        titles,
        lines,
        frozenset({*WORDS, EFFORT["overrides"], EFFORT["scored"]}),
    )


def _best(table: pd.DataFrame) -> set[tuple[int, str]]:
    """Return (row, title) of the highest accuracies of each task with two or more comparable rows."""
    best = set()
    table = table.reset_index(drop=True)
    kinds = ["dataset", "partition", *(["comparable_set"] if "comparable_set" in table else [])]
    for _, rivals in table.groupby(kinds):
        for name, measure in {**MEASURES, **own_columns(table.columns)}.items():
            values = (rivals[name].dropna() / measure.unit).round(measure.digits)
            if measure.higher_is_better and len(values) > 1:
                best |= {(int(row), measure.title) for row in values.index[values == values.max()]}
    return best
