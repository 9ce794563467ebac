"""`raffed.report`: the report on runs, and the tables of sweeps and reproductions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.api.progress import make_progress
from raffed.errors import UsageError, writing
from raffed.own.gate import check_inside
from raffed.results.files import write_text
from raffed.results.runfile import read_run
from raffed.results.storage import fetched, mirrored, named, unpacked

if TYPE_CHECKING:
    import pandas as pd

    from raffed.analysis.reproduction.verdict_rows import Value
    from raffed.analysis.runs.load import Runs
    from raffed.analysis.sweeps import Sweep
    from raffed.analysis.table import TextTable


@dataclass(frozen=True)
class WrittenReport:
    """A report that was written.

    Attributes:
        path: report.html; summary.md, summary.csv and curves.png stand beside it, and verdicts.json and
            verdicts.csv if there are reproduced tables.
        table: The summary: one row for each setting, means over seeds with half widths of 95 % intervals.
        rows: The same as the texts that are shown.
        left_out: Folder → why it is not in the report.
        whole: Whether every sweep among the places could be read.
        differences: Title → differences between methods over common seeds, with their p-values after Holm's
            correction, as texts. Empty unless two methods share two seeds.
        note: A sentence about methods with two seeds, which are too few for an interval; "" without any.
        protocols: Title of a task → what each method has by every protocol that papers have, as texts.
    """

    path: Path
    table: pd.DataFrame
    rows: list[dict[str, str]] = field(repr=False)
    left_out: Mapping[str, str]
    whole: bool
    differences: Mapping[str, pd.DataFrame] = field(default_factory=dict, repr=False)
    note: str = ""
    protocols: Mapping[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    def _repr_html_(self) -> str:
        """Return the summary as HTML, which a notebook shows."""
        return self.table.to_html()


def report(
    runs: Path | str | Sequence[Path | str], out: Path | str, *, progress: bool = True
) -> WrittenReport:
    """Summarise runs as `raffed report` does: tables, curves, and one HTML file.

    Args:
        runs: Run folders, or folders or URLs that hold some.
        out: Folder or URL for report.html, summary.md, summary.csv and curves.png.
        progress: Whether runs that are left out are named on stderr.

    Returns:
        The report, with its summary as a pandas frame.

    Raises:
        UsageError: No run can be read, or `out` cannot be written.

    Example:
        >>> raffed.report("runs", "report").table  # doctest: +SKIP
    """
    places = [runs] if isinstance(runs, str | Path) else list(runs)
    with mirrored(out) as folder, contextlib.ExitStack() as stack:
        here = [stack.enter_context(fetched(one)) for one in places]
        return reported(stack.enter_context(unpacked(here)), folder, make_progress(progress).say)


def reported(
    runs: Sequence[Path], out: Path, tell: Callable[[str], None], reload: float = 0
) -> WrittenReport:
    """Write the report on `runs`, and on the sweeps and reproductions among them, to `out`.

    `tell` receives one line about everything that is left out or cannot be checked, before anything is
    written. `reload` are the seconds after which an open page loads itself again; 0: never.

    Raises:
        UsageError: No run can be read, or `out` cannot be written.
    """
    from raffed.analysis.metrics.summary import cells, summary
    from raffed.analysis.report import find_items, protocols, without_trials, write_loaded
    from raffed.analysis.reproduction.verdict_rows import verdict_rows, write_verdicts
    from raffed.analysis.runs.load import NoRunsError, read_runs
    from raffed.analysis.sweeps import damaged_sweeps, find_sweeps, with_missing

    for place in runs:
        if out.absolute().is_relative_to(place.absolute()):  # whoever made it may have left a link there
            check_inside(place, out)
    items, sweeps = find_items(runs), find_sweeps(runs)
    loaded = with_missing(read_runs(runs, read_run), sweeps, runs)
    lost = damaged_sweeps(sweeps)
    unreadable = {} if loaded.runs.empty else loaded.unreadable  # without any run the error says everything
    left_out = {named(name): named(str(reason)) for name, reason in {**unreadable, **lost}.items()}
    for name, reason in left_out.items():
        tell(f"left out {name}: {reason}")
    try:
        with writing(out):
            path = write_loaded(loaded, out, items, sweeps, reload)
            if rows := [row for item in items for row in verdict_rows(item, loaded)]:
                write_verdicts(out, rows)
    except NoRunsError as error:
        raise UsageError(str(error)) from error
    shown = without_trials(loaded, sweeps, items)
    table = shown.runs.head(0) if shown.runs.empty else summary(shown)
    differences, note = ({}, "") if shown.runs.empty else _over_seeds(shown)
    titles, lines = ([], []) if shown.runs.empty else cells(table)
    return WrittenReport(
        path,
        table,
        [dict(zip(titles, line, strict=True)) for line in lines],
        left_out,
        not lost,
        differences,
        note,
        {} if shown.runs.empty else {task: as_frame(one.table) for task, one in protocols(shown)},
    )


def _over_seeds(runs: Runs) -> tuple[dict[str, pd.DataFrame], str]:
    """Return the paired differences of all tasks, and the note about methods with two seeds."""
    from raffed.analysis.figures.curves import tasks
    from raffed.analysis.metrics.compare import paired_tables, seeds_note
    from raffed.analysis.runs.groups import groups

    found = tasks(runs)
    tables = {
        title if len(found) == 1 else f"{title}: {' · '.join(task)}": as_frame(table)
        for task, members in found.items()
        for title, table in paired_tables(runs, members).items()
    }
    return tables, seeds_note(groups(runs))


@dataclass(frozen=True)
class ItemTables:
    """The tables of a reproduction: `tables` maps each table that exists to its title, and `path` is
    the report. `verdicts` are the rows of verdicts.json, and `first` says what the numbers show.
    """

    path: Path
    tables: tuple[tuple[str, TextTable], ...]
    verdicts: Sequence[Mapping[str, Value]]
    first: str


def write_item_tables(path: Path) -> ItemTables | str:
    """Write the table of a reproduction as Markdown, LaTeX and HTML, and its verdicts, beside its item.json.

    If the item is only a study, its table is that of its claims.

    Returns:
        The tables; or, if nothing of the item is finished, its title.
    """
    from raffed.analysis.item_tables import item_latex, item_markdown, item_tables
    from raffed.analysis.report import write_loaded
    from raffed.analysis.reproduction.differences_first import first_sentence
    from raffed.analysis.reproduction.item_runs import load_item, run_folders
    from raffed.analysis.reproduction.item_views import showable
    from raffed.analysis.reproduction.verdict_rows import verdict_rows, write_verdicts
    from raffed.analysis.runs.load import read_runs

    item = load_item(path)
    if not showable(item):
        return str(item.title)
    runs = read_runs(run_folders(item), read_run)
    table, claims = item_tables(item, runs)
    write_text(path.parent / "table.md", item_markdown(item, runs))
    write_text(path.parent / "table.tex", item_latex(item, runs))
    verdicts = verdict_rows(item, runs)
    write_verdicts(path.parent, verdicts)
    written = write_loaded(runs, path.parent / "report", [item])
    pairs = ((item.title, table), ("What is claimed of it", claims))
    return ItemTables(
        written,
        tuple((title, one) for title, one in pairs if one is not None),
        verdicts,
        first_sentence(item, runs),
    )


@dataclass(frozen=True)
class SweepTables:
    """What a sweep chose: its table, a note about the protocol, and why trials failed."""

    sweep: Sweep
    table: TextTable
    note: str
    failed: tuple[str, ...]


def write_sweep_tables(out: Path, about: Mapping[str, object]) -> SweepTables:
    """Write what a sweep chose as tuning.md and tuning.tex beside its sweep.json."""
    from raffed.analysis.sweeps import NOTES, Sweep, tuning_table
    from raffed.analysis.table import as_latex, as_markdown

    found = Sweep(out, about)
    table, note = tuning_table(found), NOTES[found.protocol]
    write_text(out / "tuning.md", f"{as_markdown(table)}\n{note}\n")
    write_text(out / "tuning.tex", as_latex(table))
    failed = [
        f"{method} {trial['name']}: {''.join(str(trial['error']).strip().splitlines()[-1:])}"
        for method, record in found.methods.items()
        for trial in record.get("trials") or []
        if trial.get("error")
    ]
    return SweepTables(found, table, note, tuple(failed))


def as_frame(table: TextTable) -> pd.DataFrame:
    """Return a table of formatted cells as a pandas frame of texts."""
    import pandas as pd

    return pd.DataFrame([list(line) for line in table.rows], columns=list(table.titles))
