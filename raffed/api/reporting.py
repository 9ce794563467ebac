"""`raffed.report`, `verify`, `bundle` and `replay`: what is done with runs that were made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.api.running import Shown, make_progress
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
    from raffed.bundles.making import Bundled
    from raffed.bundles.replaying import Replay
    from raffed.runs.events import RoundEvent
    from raffed.runs.verify_files import Certificate


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
        here = [stack.enter_context(fetched(place)) for place in places]
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
    if shown.runs.empty:
        return WrittenReport(path, shown.runs.head(0), [], left_out, not lost)
    table = summary(shown)
    differences, note = _over_seeds(shown)
    titles, lines = cells(table)
    return WrittenReport(
        path,
        table,
        [dict(zip(titles, line, strict=True)) for line in lines],
        left_out,
        not lost,
        differences,
        note,
        {task: as_frame(protocol.table) for task, protocol in protocols(shown)},
    )


def _over_seeds(runs: Runs) -> tuple[dict[str, pd.DataFrame], str]:
    """Return the paired differences of all tasks, and the note about methods with two seeds."""
    from raffed.analysis.figures.curves import tasks
    from raffed.analysis.metrics.compare import paired_tables, seeds_note
    from raffed.analysis.runs.groups import groups

    by_task = tasks(runs)
    tables = {
        title if len(by_task) == 1 else f"{title}: {' · '.join(task)}": as_frame(table)
        for task, members in by_task.items()
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
        tuple((title, content) for title, content in pairs if content is not None),
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

    sweep = Sweep(out, about)
    table, note = tuning_table(sweep), NOTES[sweep.protocol]
    write_text(out / "tuning.md", f"{as_markdown(table)}\n{note}\n")
    write_text(out / "tuning.tex", as_latex(table))
    failed = [
        f"{method} {trial['name']}: {''.join(str(trial['error']).strip().splitlines()[-1:])}"
        for method, record in sweep.methods.items()
        for trial in record.get("trials") or []
        if trial.get("error")
    ]
    return SweepTables(sweep, table, note, tuple(failed))


def as_frame(table: TextTable) -> pd.DataFrame:
    """Return a table of formatted cells as a pandas frame of texts."""
    import pandas as pd

    return pd.DataFrame([list(line) for line in table.rows], columns=list(table.titles))


# Check runs, and hand them to reviewers.


def bundle(place: Path | str, out: Path | str, *, license: str = "") -> Bundled:
    """Write a run, a comparison, a sweep or a reproduced table into one zip, as `raffed bundle` does.

    The zip holds configurations, partitions, measurements, hashes, the versions of all packages, the source
    code of the user's own, and, unless it is a single run, report.html. It holds no data and no weights. The
    folder of the data and the machines are left out; other texts are not searched for names or secrets. The
    same results in the same environment give the same bytes.

    Args:
        place: Folder or URL of a run, of several such as a comparison, of a sweep, or of an item of
            `raffed reproduce`; finished runs are bundled.
        out: The new file.
        license: Terms of use of the results, as a text or a URL.

    Returns:
        What was written: the file, its hash, the runs in it, and what was left out.

    Raises:
        UsageError: There are no finished runs, or `out` exists.
        RunFolderError: A run is damaged or was edited.

    Example:
        >>> raffed.bundle("runs/map", "map.zip").sha256  # doctest: +SKIP
    """
    from raffed.bundles.making import bundle as bundled

    with fetched(place, whole=True) as folder:
        return bundled(
            folder, Path(out), license, lambda runs, report: reported([runs], report, lambda line: None).path
        )


def replay(
    archive: Path | str,
    out: Path | str,
    *,
    rounds: int = 0,
    only: Sequence[str] = (),
    data_root: str | None = None,
    trust_code: bool = False,
    progress: bool | Shown = True,
) -> Replay:
    """Execute the runs of a bundle again and compare them, as `raffed replay` does.

    The bundle may come from a stranger. It is checked completely before anything is written, and the runs are
    executed serially in this process. Nothing is downloaded.

    Args:
        archive: The zip that `raffed bundle` wrote.
        out: A new folder: `recorded` gets the bundle's results, `again` the new ones, and replay.json the
            outcome.
        rounds: Number of rounds to execute of each run; 0: all.
        only: Names of runs in the bundle; empty: all.
        data_root: Folder of the data sets.
        trust_code: Whether code that the bundle brings may be executed.
        progress: Whether rounds are counted on stderr or below the notebook's cell; or what counts them.

    Returns:
        All checks; `replay.ok` says whether everything has the recorded bits.

    Raises:
        UsageError: The file is not a bundle as raffed writes it, its code is not trusted, or its data are not
            here.

    Example:
        >>> raffed.replay("map.zip", "again").ok  # doctest: +SKIP
        True
    """
    from raffed.bundles.replaying import replay as replayed

    shown = make_progress(progress)

    def watch(name: str, event: RoundEvent) -> None:
        shown.say(f"{name}: executed {event.round} of {event.rounds} rounds again")

    return replayed(Path(archive), Path(out), rounds, only, data_root, trust_code, watch)


def verify(
    run: Path | str,
    rounds: int = 3,
    *,
    progress: bool | Shown = True,
    accept_changed_code: bool = False,
    author_python: str = "",
) -> Certificate:
    """Check every hash in a run's folder, and execute some of its rounds again, as `raffed verify` does.

    Args:
        run: Folder or URL of the run. Nothing in it is changed.
        rounds: Number of rounds to execute again, at least 0. As many as were run means all.
        progress: Whether the rounds are counted on stderr or below the notebook's cell; or what counts them.
        accept_changed_code: Whether own code may be another than that which the run was made with.
        author_python: Interpreter that executes an author's engine; without it: this one.

    Returns:
        All checks with their outcomes; `certificate.ok` says whether everything has the recorded bits.

    Raises:
        RunFolderError: No run can be read there.
        UsageError: The run cannot be set up here, because its data or a GPU is missing.

    Example:
        >>> raffed.verify("runs/map").ok  # doctest: +SKIP
        True
    """
    from raffed.runs.verify import verify as verified

    shown = make_progress(progress)
    with fetched(run, whole=True) as folder:

        def watch(done: int, of: int) -> None:
            shown.say(f"executed {done} of {of} rounds again")

        return verified(folder, rounds, watch, accept_changed_code, author_python)
