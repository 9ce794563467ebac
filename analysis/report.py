"""Runs → DIR/report.html (one self-contained file), summary.md, summary.csv, curves.png."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from .figures.curves import PANELS, class_heat_map, curves, in_the_dark, panel_figure, svg, tasks
from .metrics.summary import summary, to_html, to_markdown, write_csv
from .render.page import notice, page, pairs, picture, text
from .reproduction.item_runs import Reproduction, load_item
from .reproduction.item_views import showable
from .runs.comparable import notices, unlike
from .runs.files import replacing, write_text
from .runs.groups import Group, differing
from .runs.load import NoRunsError, Runs, flatten, read_runs, reasons, section
from .runs.run_files import DAMAGED
from .sections import item_section, ranking_section, sweep_section, task_sections
from .sweeps import Sweep, damaged_sweeps, trials_of

READING = (
    "<p>Accuracies are in per cent, ± is the 95 % t-interval over seeds. <em>Aggregation</em> is the global "
    "model on the "
    "server's test set: at the last evaluated round, at its best round (chosen on test data, so optimistic), "
    "and the mean "
    "of the last 10 evaluated rounds, or of all where there are fewer. <em>Personalization</em> is the mean "
    "over clients of "
    "each client's own model on its own local test set; beside it the same where only the classes of the "
    "client's training "
    "data may be the answer, and macro-F1 over all classes. MB are 10<sup>6</sup> bytes a round that the "
    "method sends for "
    "all participants together; seconds are the median wall time of a round on the machine that ran it. The "
    "highest mean of "
    "a task is marked. Experiments whose partition (by its hash), network, data, budget or numerics differ "
    "are <em>not "
    "comparable</em>: what differs is named, none of them is marked, and no difference between them is "
    "tested.</p>\n"
    "<p>By classes, all of the last global model: <em>head</em>, <em>medium</em> and <em>tail</em> are the "
    "third of the "
    "classes with most, middling and fewest training samples; <em>held</em> is the mean over all pairs of a "
    "client and a "
    "class it has samples of, <em>missing</em> over all pairs of a client and a class it has none of; "
    "<em>forgetting</em> "
    "is how far a class has fallen from its best earlier round, mean over classes. A <em>difference paired "
    "by seed</em> "
    "compares runs with one split, one start and one order of batches.</p>\n"
)


def write_report(paths: Iterable[Path | str], out: Path) -> Path:
    """Load the runs below `paths`, write the report into the folder `out` and return the path of report.html.

    Raises:
        NoRunsError: not one run could be read; the message says why for each path.
    """
    return write_loaded(read_runs(paths), out)


def write_loaded(
    runs: Runs, out: Path, items: Sequence[Reproduction] = (), sweeps: Sequence[Sweep] = ()
) -> Path:
    """As `write_report`, for runs that are loaded already, with the papers' tables, studies and sweeps that
    they belong to.

        The trials of sweeps count in the sweeps' own sections alone, where there are other runs.
        Studies need no run, nor what is printed alone: a report on them has their sections and nothing else.
    """
    whole, runs = runs, runs.without(trials_of(runs, sweeps))
    if runs.runs.empty and not any(showable(item) for item in items):
        raise NoRunsError(f"no run to report on ({reasons(runs) or 'no path given'})")
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    if runs.runs.empty:
        body = "".join(
            _readable(partial(item_section, item, runs), str(item.folder / "item.json")) for item in items
        )
        write_text(out / "report.html", page("raffed report", f"<h1>Figures</h1>\n{body}"))
        return out / "report.html"
    table = summary(runs)
    write_text(out / "summary.md", to_markdown(table))
    with replacing(out / "summary.csv") as temp:
        write_csv(table, temp)
    with replacing(out / "curves.png") as temp:
        curves(runs).savefig(temp, dpi=110)
    write_text(out / "report.html", _html(runs, table, items, sweeps, whole))
    return out / "report.html"


def unhashed(runs: Runs) -> str:
    """A line about runs whose rows nobody can check here."""
    count = len(runs.unhashed)
    begun = "1 run was begun" if count == 1 else f"{count} runs were begun"
    return (
        f"{begun} by a raffed that wrote down no hashes of files: whether rows were changed, only `raffed "
        f"verify` can tell"
    )


def find_items(paths: Iterable[Path | str]) -> list[Reproduction]:
    """The reproductions at or below `paths` that have finished runs or studies; a damaged item.json is
    passed over.
    """
    found = []
    for path in map(Path, paths):
        for folder, below, names in os.walk(path):
            below[:] = [] if "run.json" in names else sorted(set(below) - {"runs"})
            if "item.json" in names:
                with contextlib.suppress(*DAMAGED):
                    item = load_item(Path(folder) / "item.json")
                    found += [item] if showable(item) else []
    return found


def _html(
    runs: Runs, table: pd.DataFrame, items: Sequence[Reproduction], sweeps: Sequence[Sweep], whole: Runs
) -> str:
    """whole: the runs, and the trials of sweeps."""
    lost = {**runs.unreadable, **damaged_sweeps(sweeps)}
    body = _head(runs) + notice("Could not be read, and is not in this report", lost.items())
    if runs.unhashed:
        body += f'<p class="soft">{text(unhashed(runs))}</p>\n'
    body += "".join(
        _readable(partial(item_section, item, runs), str(item.folder / "item.json")) for item in items
    )
    whole_sweeps = [sweep for sweep in sweeps if not sweep.damage]
    body += "".join(
        _readable(partial(sweep_section, one, whole), str(one.folder / "sweep.json")) for one in whole_sweeps
    )
    body += _readable(partial(ranking_section, runs), "the ranks of the methods")
    for task, members in tasks(runs).items():
        body += _readable(partial(_task, runs, table, task, members), f"a run of {' · '.join(task)}")
    body += "<h2>How to read this</h2>\n" + READING + "<h2>Runs</h2>\n"
    body += "".join(
        _run(runs, str(name))
        for name in runs.runs.sort_values(["dataset", "partition", "method", "seed"]).index
    )
    return page("raffed report", body)


def _readable(make: Callable[[], str], where: str) -> str:
    """A section, or where a file behind it is damaged a line that says so."""
    try:
        return make()
    except DAMAGED as error:
        return notice(
            "Could not be read, and is not in this report",
            [(where, f"damaged ({type(error).__name__}: {error})")],
        )


def _head(runs: Runs) -> str:
    states = Counter(state or "state unknown" for state in runs.runs["state"])
    counts = {
        "run": len(runs.runs),
        "method": runs.runs["method"].nunique(),
        "seed": runs.runs["seed"].nunique(),
    }
    facts = [(count, what if count == 1 else f"{what}s") for what, count in counts.items()]
    facts += [(count, state) for state, count in sorted(states.items())]
    items = "".join(f"<li><b>{count}</b> {text(what)}</li>" for count, what in facts)
    return f'<h1>Federated runs</h1>\n<ul class="facts">{items}</ul>\n'


def _task(runs: Runs, table: pd.DataFrame, task: tuple[str, str], members: list[Group]) -> str:
    dataset, partition = task
    names = {group.partition for group in members}
    rows = table[(table["dataset"] == dataset) & table["partition"].isin(names)].reset_index(drop=True)
    body = f"<h2>{text(dataset or 'unknown data')} · {text(partition or 'unknown partition')}</h2>\n"
    body += f'<div class="scroll">{to_html(rows, hide=["dataset", *(["partition"] if len(names) == 1 else [])])}</div>\n'  # noqa: E501
    body += notice("What may be compared", notices(runs, members))
    body += notice("Not the same for all of these", differing(runs, members))
    body += notice("Left out of the means", [pair for group in members for pair in group.left_out])
    panels = (_panel(runs, task, panel) for panel in PANELS)
    body += f'<h3>Accuracy against round</h3><div class="figures">{"".join(panels)}</div>\n'
    return body + _classes(runs, task) + task_sections(runs, members)


def _panel(runs: Runs, task: tuple[str, str], panel: str) -> str:
    figure = panel_figure(runs, task, panel)
    if figure is None:
        return f'<p class="soft">{panel}: not measured by these runs.</p>'
    caption = f"{panel}. Line: mean over seeds; band: lowest to highest seed." + unlike(
        runs, tasks(runs)[task]
    )
    drawing = svg(figure)
    return picture(
        drawing, in_the_dark(drawing), caption, f"{panel} against round; the table above has its last values"
    )


def _classes(runs: Runs, task: tuple[str, str]) -> str:
    figure = class_heat_map(runs, task)
    if figure is None:
        return '<p class="soft">Accuracy per class: not measured by these runs.</p>\n'
    caption = (
        "Accuracy in per cent of the final global model on each class of the server's test set, mean over "
        "seeds."
    )
    caption += unlike(runs, tasks(runs)[task])
    drawing = svg(figure)
    return "<h3>Accuracy per class</h3>" + picture(
        drawing, in_the_dark(drawing), caption, caption, css="classes"
    )


def _run(runs: Runs, name: str) -> str:
    row, file = runs.runs.loc[name], runs.files[name]
    title = (
        f"<b>{text(name)}</b> · {text(row['method'])} · seed {row['seed']:.0f} · "
        f"{text(row['state'] or 'state unknown')}"
    )
    plain = {
        key: value
        for key, value in file.items()
        if not isinstance(value, dict) and value is not None and key != "segments"
    }
    blocks = pairs(
        "Run", {"folder": row["folder"], "rounds with metrics": f"{row['rounds_done']:.0f}", **plain}
    )
    for part, heading in {
        "config": "Configuration",
        "versions": "Versions",
        "hashes": "Hashes",
        "hardware": "Hardware",
    }.items():
        blocks += pairs(heading, flatten(section(file, part)))
    segments = [one for one in _list(file.get("segments")) if isinstance(one, Mapping)]
    for one in (
        segments if len(segments) > 1 else []
    ):  # computed with a pause: each part may be by other versions
        blocks += pairs(f"Rounds {one.get('from')} to {one.get('to')}", flatten(one))
    return f"<details><summary>{title}</summary><div>{blocks}</div></details>\n"


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
