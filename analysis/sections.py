"""The parts of a report on a paper's table, on a study and on a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from .figures.curves import in_the_dark, looks, svg
from .figures.plots import PlotPoint, gains, rank_diagram, scatter, setting_map
from .metrics.classes import class_sheet
from .metrics.compare import comparison_sheet, ranking
from .metrics.gains import client_gains
from .metrics.intervals import t_interval
from .metrics.measures import measures
from .metrics.targets import BASELINE, target_sheet
from .render.page import notice, pairs, picture, text
from .reproduction.claims import claim_sheet
from .reproduction.item_runs import Reproduction, run_folders
from .reproduction.item_views import has_table, item_view
from .reproduction.verdicts import paper_sheet, verdicts
from .runs import comparable
from .runs.groups import Group
from .runs.load import Runs
from .studies.painters import check_sheet, painted
from .studies.study import load_studies, study_folders
from .sweeps import NOTES, Sweep, trials_frame, tuning_sheet
from .table import as_html

VERDICTS = {
    "full": "A number <em>agrees</em> if it differs from the printed one by no more than the tolerance ({tolerance:g}) or our "  # noqa: E501
    "95 % interval; else it is <em>higher</em> or <em>lower</em>.",
    "proxy": "Smaller networks, less data, fewer rounds: absolute numbers are not comparable. Compared is the sign of the "  # noqa: E501
    "difference to {baseline}, paired by seed: <em>not separated</em> where the 95 % interval holds 0, "
    "<em>no claim</em> where "
    "the paper's own difference is below {tolerance:g}.",
    "smoke": "Seconds of training on digits: that every cell runs is all this shows.",
}
NO_TARGET = " <em>No target</em>: ours is not held to what is printed there."


STUDY_SCALES = {
    "full": "The paper's own settings, where it gives them.",
    "proxy": (
        "Less data, smaller networks or fewer epochs than the paper's: compared are signs and orders, not "
        "levels."
    ),
    "smoke": "Seconds of training: that the study runs is all this shows.",
}


def item_section(item: Reproduction, runs: Runs) -> str:
    """A paper's table, a study, or both: what there is of them."""
    body = paper_section(item, runs) if has_table(item) else ""
    return body + (study_section(item) if study_folders(item) else "")


def paper_section(item: Reproduction, runs: Runs) -> str:
    """A table of a paper beside ours, with what was left out."""
    about = item.about
    words = verdicts(item, runs)
    counts = ", ".join(f"{count} {word}" for word, count in words.items() if word != "–")
    reading = VERDICTS[about["scale"]].format(tolerance=about["tolerance"], baseline=text(about["baseline"]))
    reading += NO_TARGET if "no target" in words else ""
    body = f'<h2>{text(item.title)}</h2>\n<p class="soft">{text(about["unit"])}. {reading} {text(about["note"])}</p>\n'  # noqa: E501
    body += f"<p><b>{text(counts)}</b></p>\n" if counts and run_folders(item) else ""
    claims = claim_sheet(item, runs)
    if claims is not None:
        body += f'<h3>What is claimed of it</h3><div class="scroll">{as_html(claims)}</div>\n<h3>Method by method</h3>\n'  # noqa: E501
    body += f'<div class="scroll">{as_html(paper_sheet(item, runs))}</div>\n' if run_folders(item) else ""
    view = item_view(item, runs)
    body += "".join(drawing(one.figure, one.caption, css=one.css) for one in view.figures)
    for heading, sheet in view.tables.items():
        body += f'<h3>{text(heading)}</h3><div class="scroll">{as_html(sheet)}</div>\n'
    return body + _left_out(item)


def _left_out(item: Reproduction) -> str:
    reasons: dict[str, list[str]] = {}
    for name, _, why in (one.partition(": ") for one in item.about["left_out"]):
        reasons.setdefault(why, []).append(name)
    return notice("Left out", [(why, "; ".join(names)) for why, names in reasons.items()])


def study_section(item: Reproduction) -> str:
    """The figures of a study (its first seed), its tables, and what became of its claims over all seeds."""
    studies = load_studies(item)
    about, shown = studies[0].about, painted(studies[0])
    seeds = ", ".join(str(study.about["seed"]) for study in studies)
    body = f'<h2>{text(item.title)}</h2>\n<p class="soft">{text(STUDY_SCALES[item.about["scale"]])} {text(item.about["note"])} '  # noqa: E501
    body += f"Finished: seed {seeds}; drawn is seed {about['seed']}.</p>\n"
    body += "".join(drawing(one.figure, one.caption, css=one.css) for one in shown.figures)
    sheets = {"What the paper says of it": check_sheet(studies), **shown.tables}
    for heading, sheet in sheets.items():
        if sheet is not None:
            body += f'<h3>{text(heading)}</h3><div class="scroll">{as_html(sheet)}</div>\n'
    facts = {
        **about["settings"],
        "device": about["device"],
        "threads": about["threads"],
        "seconds": f"{about['seconds']:.0f}",
    }
    details = (
        pairs("Settings", facts)
        + pairs("Versions", about["versions"])
        + pairs("SHA-256 of the rows", about["rows_sha256"])
    )
    body += (
        f"<details><summary>Settings and hashes of seed "
        f"{about['seed']}</summary><div>{details}</div></details>\n"
    )
    return body + _left_out(item)


def sweep_section(sweep: Sweep, runs: Runs) -> str:
    """What was chosen, at what cost."""
    body = f'<h2>Tuning · {text(sweep.folder.name)}</h2>\n<p class="soft">{text(NOTES[sweep.protocol])}</p>\n'
    body += f'<div class="scroll">{as_html(tuning_sheet(sweep, runs))}</div>\n'
    drawn = ""
    for method, about in sweep.methods.items():
        figure = setting_map(trials_frame(about))
        if figure is not None:
            caption = (
                f"{method}: score in per cent of every setting tried; of a third setting the best is shown."
            )
            drawn += drawing(figure, caption, css="natural")
    return body + (f'<div class="figures">{drawn}</div>\n' if drawn else "")


def drawing(figure: Figure, caption: str, css: str = "") -> str:
    """A figure in both colour schemes."""
    light = svg(figure)
    return picture(light, in_the_dark(light), caption, caption, css=css)


def ranking_section(runs: Runs) -> str:
    """The critical-difference diagram over tasks; nothing where it means nothing."""
    found = ranking(runs)
    if found is None:
        return ""
    caption = (
        f"Mean rank by aggregation accuracy over the {found.tasks} tasks that all these methods were run on, "
        f"1 is best. A bar "
        "joins methods that do not differ at 0.05 (Nemenyi; Demšar 2006)."
    )
    return f"<h2>Ranks over tasks</h2>\n{drawing(rank_diagram(found), caption, css='classes')}"


def task_sections(runs: Runs, members: Sequence[Group]) -> str:
    """Views of a task beyond its summary: differences, time to a target, classes, the plane of two
    accuracies, who gains.
    """
    body = ""
    sheets = {
        "Differences, paired by seed": comparison_sheet(runs, members),
        "Rounds and bytes to a target": target_sheet(runs, members),
        "Classes and forgetting (last global model)": class_sheet(runs, members),
    }
    for heading, sheet in sheets.items():
        if sheet is not None:
            body += f'<h3>{heading}</h3><div class="scroll">{as_html(sheet)}</div>\n'
    points = _points(runs, members)
    drawn = ""
    if len(points) > 1:
        caption = "Last aggregation against last personalization accuracy, 95 % intervals over seeds."
        caption += comparable.unlike(runs, members)
        drawn += drawing(scatter(points), caption, css="natural")
    return body + (f'<div class="figures">{drawn}</div>\n' if drawn else "") + _gains(runs, members)


def _points(runs: Runs, members: Sequence[Group]) -> list[PlotPoint]:
    found, numbers = measures(runs), looks(runs)
    points = []
    for group in members:
        rows = found.loc[list(group.used), ["accuracy_last", "personal_last"]].dropna()
        if len(rows):
            x, y = rows["accuracy_last"].tolist(), rows["personal_last"].tolist()
            mean = sum(x) / len(x), sum(y) / len(y)
            points.append(
                PlotPoint(
                    comparable.marked(runs, group), *mean, t_interval(x), t_interval(y), numbers[group.label]
                )
            )
    return points


def _gains(runs: Runs, members: Sequence[Group]) -> str:
    """Every client's last personal accuracy minus the baseline's on the same split, over the seeds that
    both have.
    """
    baseline = next((group for group in members if group.label.split()[0] == BASELINE), None)
    if baseline is None or runs.clients.empty:
        return ""
    differences = {}
    for group in members:
        found = (
            client_gains(runs, group.used, baseline.used)
            if not comparable.differences(runs, group, baseline)
            else []
        )
        if group is not baseline and found:
            differences[group.label] = found
    if not differences:
        return ""
    caption = (
        f"What a client gains over {baseline.label}, in points: difference of its personal models' "
        f"accuracies on its own test "
        "part when it last took part; counts are means over common seeds. Bins of 5 points."
    )
    figure = gains(dict(list(differences.items())[:6]), baseline.label)
    return f"<h3>Who gains, who loses</h3>{drawing(figure, caption, css='classes')}"
