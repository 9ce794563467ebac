"""Write a report on runs: one self-contained report.html, summary.md, summary.csv and curves.png."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from raffed.results.storage import named

from .figures.budget_curves import BUDGETS, budget_figure
from .figures.curves import NAMED, PANELS, class_heat_map, curves, panel_figure, tasks
from .heading import first_lines, heading, segments, title
from .metrics.compare import established_best, seeds_note
from .metrics.measures import MEASURES
from .metrics.protocols import Protocols, protocol_table
from .metrics.summary import alike, marked, shared_effort, summary, to_markdown, write_csv
from .render.page import Picture, block, render
from .reproduction.item_runs import Reproduction, load_item, tried_names
from .reproduction.item_views import showable
from .runs.comparable import apart, unlike
from .runs.differing import differing, grouped_notices
from .runs.files import replacing, write_text
from .runs.groups import Group, groups, method_titles
from .runs.load import NoRunsError, Runs, flatten, read_runs, reasons, section
from .runs.method_names import METHOD_NAMES
from .runs.run_files import DAMAGED
from .sections import drawing, item_section, ranking_section, sweep_section, task_sections
from .sweeps import Sweep, damaged_sweeps, trials_of

TITLE = "raffed report"
PARTS = {  # of run.json → heading
    "config": "Configuration",
    "versions": "Versions",
    "hashes": "Hashes",
    "hardware": "Hardware",
}


def write_report(paths: Iterable[Path | str], out: Path) -> Path:
    """Write a report on all runs at or below the given paths.

    Args:
        paths: run folders, or folders that hold some.
        out: the folder for report.html, summary.md, summary.csv and curves.png. It is made if it does not
            exist.

    Returns:
        The path of report.html, which opens without a network.

    Raises:
        NoRunsError: no run can be read. The message gives the reason for each path.
    """
    return write_loaded(read_runs(paths), out)


def write_loaded(
    runs: Runs,
    out: Path,
    items: Sequence[Reproduction] = (),
    sweeps: Sequence[Sweep] = (),
    reload: float = 0,
) -> Path:
    """Write a report on runs that are already loaded.

    Args:
        runs: the runs. Trials of sweeps appear only in the sections of their sweeps if there are other runs
            too. Trials of the rows of tables are left out.
        out: the folder for the report.
        items: reproductions of papers' tables and studies, each with a section. A report can consist of these
            alone.
        sweeps: searches for hyperparameters, each with a section.
        reload: seconds after which an open page loads itself again; 0: never.

    Raises:
        NoRunsError: there is neither a run nor an item to show.
    """
    whole, runs = runs, without_trials(runs, sweeps, items)
    if runs.runs.empty and not any(showable(item) for item in items):
        raise NoRunsError(f"no run to report on ({reasons(runs) or 'no path given'})")
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    if runs.runs.empty:
        sections = [_item(item, runs) for item in items]
        page = render("figures.html.j2", title=title(runs, items), sections=sections, reload=reload)
        write_text(out / "report.html", page)
        return out / "report.html"
    with replacing(out / "summary.csv") as temp:
        write_csv(summary(runs), temp)
    runs, whole = runs.called(METHOD_NAMES), whole.called(METHOD_NAMES)
    table = summary(runs)
    note = seeds_note(groups(runs))
    write_text(out / "summary.md", to_markdown(table) + (f"\nNote: {note}.\n" if note else ""))
    with replacing(out / "curves.png") as temp:
        curves(runs).savefig(temp, dpi=110)
    write_text(out / "report.html", _html(runs, table, items, sweeps, whole, reload))
    return out / "report.html"


def without_trials(runs: Runs, sweeps: Sequence[Sweep], items: Sequence[Reproduction]) -> Runs:
    """Return the runs that are results: without the trials of sweeps and of the rows of tables."""
    tried = set(tried_names(items))
    of_tables = [str(name) for name, folder in runs.runs["folder"].items() if Path(folder).name in tried]
    return runs.without([*trials_of(runs, sweeps), *of_tables])


def stop_reloading(page: Path) -> None:
    """Change a page that loads itself again into one that does not."""
    text = page.read_text(encoding="utf-8")
    write_text(
        page, re.sub(r'^(<html lang="en") data-reload="[^"]*"', r"\1", text, count=1, flags=re.MULTILINE)
    )


def find_items(paths: Iterable[Path | str]) -> list[Reproduction]:
    """Return the reproductions at or below `paths` that have something to show; skip a damaged item.json."""
    items = []
    for path in map(Path, paths):
        for folder, below, names in os.walk(path):
            below[:] = [] if "run.json" in names else sorted(set(below) - {"runs"})
            if "item.json" in names:
                with contextlib.suppress(*DAMAGED):
                    item = load_item(Path(folder) / "item.json")
                    items += [item] if showable(item) else []
    return items


def _html(
    runs: Runs,
    table: pd.DataFrame,
    items: Sequence[Reproduction],
    sweeps: Sequence[Sweep],
    whole: Runs,
    reload: float,
) -> Markup:
    """Return the page. `runs` leaves out the trials of sweeps, and `whole` includes them."""
    sections = [_item(item, runs) for item in items]
    sections += [
        _readable(partial(sweep_section, sweep, whole), str(sweep.folder / "sweep.json"))
        for sweep in sweeps
        if not sweep.damage
    ]
    sections.append(_readable(partial(ranking_section, runs), "the ranks of the methods"))
    sections += [
        _readable(partial(_task, runs, table, task, members), f"a run of {' · '.join(task)}")
        for task, members in tasks(runs).items()
    ]
    about = heading(runs, items, whole)
    ordered = runs.runs.sort_values(["dataset", "partition", "method", "seed"]).index
    return render(
        "protocols.html.j2",
        title=f"{about.title} – {TITLE}",
        about=about,
        first=first_lines(runs),
        reload=reload,
        facts=_facts(runs),
        protocols=protocols(runs, list(table["method"])),
        lost=list({**runs.unreadable, **damaged_sweeps(sweeps)}.items()),
        sections=sections,
        runs=[_run(runs, str(name)) for name in ordered],
    )


def protocols(runs: Runs, order: Sequence[str] = ()) -> list[tuple[str, Protocols]]:
    """Return for each task what every method has by each protocol; tasks without a measure are left out.

    The methods have the order of these labels; those of other labels come first.
    """
    places = {label: place for place, label in enumerate(order)}
    by_task = (
        (task, protocol_table(runs, sorted(members, key=lambda group: places.get(group.label, -1))))
        for task, members in tasks(runs).items()
    )
    return [(" · ".join(task), shown) for task, shown in by_task if shown is not None]


def _item(item: Reproduction, runs: Runs) -> Markup:
    return _readable(partial(item_section, item, runs), str(item.folder / "item.json"))


def _readable(make: Callable[[], Markup], where: str) -> Markup:
    """Return a section, or a notice in its place if a file behind it is damaged."""
    try:
        return make()
    except DAMAGED as error:
        lines = [(where, f"damaged ({type(error).__name__}: {error})")]
        return render("damaged.html.j2", lines=lines)


def _facts(runs: Runs) -> list[tuple[int, str]]:
    states = Counter(state or "state unknown" for state in runs.runs["state"])
    counts = {
        "run": len(runs.runs),
        "method": runs.runs["method"].nunique(),
        "seed": runs.runs["seed"].nunique(),
    }
    facts = [(count, what if count == 1 else f"{what}s") for what, count in counts.items()]
    return facts + [(count, state) for state, count in sorted(states.items())]


def _task(runs: Runs, table: pd.DataFrame, task: tuple[str, str], members: list[Group]) -> Markup:
    dataset, partition = task
    names = {group.partition for group in members}
    better = {name: measure for name, measure in MEASURES.items() if measure.higher_is_better}
    rows = table[(table["dataset"] == dataset) & table["partition"].isin(names)].reset_index(drop=True)
    labels = list(enumerate(rows["method"]))
    hidden = ["dataset", *(["partition"] if len(names) == 1 else [])]
    hidden += alike(rows)
    best = {measure.title: established_best(runs, members, name) for name, measure in better.items()}
    sure = {(row, title) for title, leaders in best.items() for row, label in labels if label in leaders}
    return render(
        "task.html.j2",
        dataset=dataset,
        partition=partition,
        summary=marked(rows, hidden, sure),
        effort=shared_effort(runs, members),
        apart=apart(runs, members),
        comparable=grouped_notices(runs, members),
        differing=differing(runs, members),
        left_out=[pair for group in members for pair in group.left_out],
        few_seeds=seeds_note(members),
        sure=bool(sure),
        panels=[(panel, _panel(runs, task, panel)) for panel in PANELS],
        budgets=[picture for budget in BUDGETS for picture in _budget(runs, task, budget)],
        classes=_classes(runs, task),
        views=task_sections(runs, members, list(rows["method"])),
    )


def _panel(runs: Runs, task: tuple[str, str], panel: str) -> Picture | None:
    """The curves of one measure; None where no run has measured it."""
    figure, members = panel_figure(runs, task, panel), tasks(runs)[task]
    if figure is None:
        return None
    caption = f"{panel}. Line: mean over seeds; band: lowest to highest seed."
    caption += " Names stand beside the highest last values." if len(members) > NAMED else ""
    caption += unlike(runs, members)
    return drawing(figure, caption, alt=f"{panel} against round; the table above has its last values")


def _budget(runs: Runs, task: tuple[str, str], budget: str) -> list[Picture]:
    """The curves of each measure against what was spent, where they say more than those against rounds."""
    pictures = []
    for panel in PANELS:
        figure = budget_figure(runs, task, panel, budget)
        if figure is not None:
            said = BUDGETS[budget].title.lower()
            caption = f"{panel} against {said}. Line: mean over seeds; band: lowest to highest seed."
            caption += unlike(runs, tasks(runs)[task])
            pictures.append(drawing(figure, caption, alt=f"{panel} against {said}"))
    return pictures


def _classes(runs: Runs, task: tuple[str, str]) -> Picture | None:
    """The accuracy on each class; None where no run has measured it."""
    figure = class_heat_map(runs, task)
    if figure is None:
        return None
    caption = (
        "Accuracy in per cent of the final global model on each class of the server's test set, mean over "
        "seeds."
    )
    return drawing(figure, caption + unlike(runs, tasks(runs)[task]), css="classes")


def _run(runs: Runs, name: str) -> Markup:
    row, file = runs.runs.loc[name], runs.files[name]
    plain = {
        key: value
        for key, value in file.items()
        if not isinstance(value, dict) and value is not None and key != "segments"
    }
    done = {"folder": named(str(row["folder"])), "rounds with metrics": f"{row['rounds_done']:.0f}"}
    blocks = [block("Run", {**done, **plain})]
    blocks += [block(heading, flatten(section(file, part))) for part, heading in PARTS.items()]
    parts = segments(file)
    if len(parts) > 1:  # The run was computed with a pause, and each part may be by other versions.
        blocks += [block(f"Rounds {part.get('from')} to {part.get('to')}", flatten(part)) for part in parts]
    reference = str(row["method"])
    method = method_titles(runs).get(reference, reference)
    about = {
        "method": method,
        "reference": row["method"],
        "seed": f"{row['seed']:.0f}",
        "state": row["state"],
    }
    return render("run.html.j2", name=name, blocks=blocks, **about)
