"""Make the sections of a report: papers' tables, studies, sweeps, ranks, and the views of a task."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.figure import Figure

from .figures.curves import looks
from .figures.plots import PlotPoint, client_dots, gains, rank_diagram, scatter
from .figures.search_plots import SearchedTrial, history, pruning, searched_trials
from .figures.series import plain_charts
from .figures.setting_plots import setting_map, varied
from .figures.theme import in_the_dark, svg
from .metrics.classes import class_table
from .metrics.compare import HOLM, HOLM_NOTE, paired_tables, ranking
from .metrics.gains import client_gains
from .metrics.intervals import reported_interval
from .metrics.measures import measures
from .metrics.targets import baseline_of, target_table
from .render.page import Picture, block, picture, render
from .reproduction.claims import claim_counts, claim_table
from .reproduction.differences_first import difference_matrix, first_sentence
from .reproduction.item_runs import Reproduction, run_folders
from .reproduction.item_views import has_table, item_view
from .reproduction.matrix import heads, matrix_of, unplaced
from .reproduction.published_tables import published_tables
from .reproduction.verdict_marks import MARKS
from .reproduction.verdicts import paper_table
from .runs import comparable
from .runs.groups import Group
from .runs.load import Runs
from .studies import check_table, load_studies, painted, study_folders
from .sweeps import NOTES, Sweep, trials_frame, tuning_table

MOST_GAINS = 6  # methods whose clients' gains are drawn
MOST_DOTS = 12  # methods whose clients are drawn as dots
SCALES = {
    "full": "The paper's own settings, where it gives them.",
    "proxy": (
        "Less data, smaller networks or fewer epochs than the paper's: compared are signs and orders, not "
        "levels."
    ),
    "smoke": "Seconds of training: that the study runs is all this shows.",
}


def item_section(item: Reproduction, runs: Runs) -> Markup:
    """Show a paper's table, a study, or both, depending on what the item has."""
    table = paper_section(item, runs) if has_table(item) else Markup()
    return table + (study_section(item) if study_folders(item) else Markup())


def paper_section(item: Reproduction, runs: Runs) -> Markup:
    """Show a paper's table in its own shape: claims, then ours over the printed numbers, then the views.

    All numbers in a long list, and what was left out, are folded.
    """
    about, ran = item.about, bool(run_folders(item))
    if about["scale"] not in SCALES:
        raise KeyError(about["scale"])
    view, matrix = item_view(item, runs), matrix_of(item, runs) if ran else None
    return render(
        "paper.html.j2",
        title=item.title,
        unit=about["unit"],
        scale=about["scale"],
        margin=f"{about['margin']:g}",
        baseline=about["baseline"],
        note=about["note"],
        first=first_sentence(item, runs),
        differences=difference_matrix(item, runs),
        marks=MARKS,
        claims=claim_table(item, runs),
        claimed=claim_counts(item, runs),
        matrix=matrix,
        heads=heads(matrix.columns) if matrix else [],
        results=paper_table(item, runs) if ran else None,
        pictures=[drawing(*figure) for figure in view.figures],
        tables={**published_tables(item), **view.tables},
        left_out=_left_out(unplaced(item) if ran else about["left_out"]),
    )


def _left_out(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each reason with the names of what was left out for it."""
    reasons: dict[str, list[str]] = {}
    for name, _, why in (line.partition(": ") for line in lines):
        reasons.setdefault(why, []).append(name)
    return list(reasons.items())


def study_section(item: Reproduction) -> Markup:
    """Show a study: the figures of its first seed, its tables, and how its claims fared over all seeds."""
    studies = load_studies(item)
    about, shown = studies[0].about, painted(studies[0])
    machine = {"device": about["device"], "threads": about["threads"], "seconds": f"{about['seconds']:.0f}"}
    return render(
        "study.html.j2",
        title=item.title,
        scale=SCALES[item.about["scale"]],
        note=item.about["note"],
        seeds=", ".join(str(study.about["seed"]) for study in studies),
        seed=about["seed"],
        pictures=[drawing(*figure) for figure in shown.figures],
        tables={"What the paper says of it": check_table(studies), **shown.tables},
        blocks=[
            block("Settings", {**about["settings"], **machine}),
            block("Versions", about["versions"]),
            block("SHA-256 of the rows", about["rows_sha256"]),
        ],
        left_out=_left_out(item.about["left_out"]),
    )


def sweep_section(sweep: Sweep, runs: Runs) -> Markup:
    """Show which settings a sweep chose, and what the choice cost."""
    pictures = []
    for method, about in sweep.methods.items():
        name, frame = runs.names.get(method, method), trials_frame(about)
        figure = setting_map(frame)
        if figure is not None:
            more = "; of further settings the best is shown" if len(varied(frame)) > 2 else ""
            caption = f"{name}: score in per cent of every setting tried{more}."
            pictures.append(drawing(figure, caption, css="natural"))
        pictures += _search_pictures(sweep, name, searched_trials(about.get("trials") or []))
    return render(
        "sweep.html.j2",
        name=sweep.folder.name,
        note=NOTES[sweep.protocol],
        table=tuning_table(sweep, runs),
        pictures=pictures,
    )


def _search_pictures(sweep: Sweep, method: str, trials: Sequence[SearchedTrial]) -> list[Picture]:
    """Show when ASHA ended trials, and what a search that proposes settings found in which trial."""
    asked = sweep.about["request"]
    figures = {
        f"{method}: score over rounds of every trial; a cross is where ASHA ended it.": (
            pruning(trials) if asked.get("scheduler") == "asha" else None
        ),
        f"{method}: score of each finished trial in the order of the search, and the best score so far.": (
            history(trials) if asked.get("search") in ("random", "optuna") else None
        ),
    }
    return [drawing(figure, text, css="natural") for text, figure in figures.items() if figure is not None]


def drawing(figure: Figure, caption: str, css: str = "", alt: str = "") -> Picture:
    """Return a figure in both colour schemes. The caption also describes it if no `alt` is given."""
    light = svg(figure)
    return picture(light, in_the_dark(light), caption, alt or caption, css, plain_charts(figure))


def ranking_section(runs: Runs) -> Markup:
    """Show the critical-difference diagram over tasks. It is empty if there are too few methods or tasks."""
    ranks = ranking(runs)
    if ranks is None:
        return Markup()
    caption = (
        f"Mean rank by aggregation accuracy over the {ranks.tasks} tasks that all these methods were run on, "
        f"1 is best. A bar "
        "joins methods that do not differ at 0.05 (Nemenyi; Demšar 2006)."
    )
    return render("ranking.html.j2", diagram=drawing(rank_diagram(ranks), caption, css="classes"))


def task_sections(runs: Runs, members: Sequence[Group], order: Sequence[str] = ()) -> Markup:
    """Show the views of a task that follow its summary. Their tables have the methods in this order.

    They are: differences paired by seed (to the best method, and to FedAvg), rounds and bytes to a target,
    accuracy by class, the plane of the two accuracies, the accuracies of the clients, and which of them gain.
    """
    paired = paired_tables(runs, members)
    views = {
        **paired,
        "Rounds and bytes to a target": target_table(runs, members),
        "Classes and forgetting (last global model)": class_table(runs, members),
    }
    places = {label: place for place, label in enumerate(order)}

    def place(label: str) -> int:
        return places.get(label.removesuffix(comparable.MARK), 0)

    tables = {
        name: table._replace(rows=sorted(table.rows, key=lambda row: place(row[0])))
        for name, table in views.items()
        if table is not None
    }
    plane, gaining = _plane(runs, members), _gains(runs, members)
    spread = _dots(runs, sorted(members, key=lambda group: place(group.label)))
    note = HOLM_NOTE if any(HOLM in table.titles for table in paired.values()) else ""
    pictures = [] if plane is None else [plane]
    clients = {"Accuracy over clients": spread, "Who gains, who loses": gaining}
    return render("views.html.j2", tables=tables, pictures=pictures, clients=clients, note=note)


def _plane(runs: Runs, members: Sequence[Group]) -> Picture | None:
    """Draw the plane of the two accuracies. Return None if fewer than two methods have both."""
    points = _points(runs, members)
    if len(points) < 2:
        return None
    caption = "Last aggregation against last personalization accuracy, 95 % intervals over seeds."
    return drawing(scatter(points), caption + comparable.unlike(runs, members), css="natural")


def _points(runs: Runs, members: Sequence[Group]) -> list[PlotPoint]:
    scores, numbers = measures(runs), looks(runs)
    points = []
    for group in members:
        rows = scores.loc[list(group.used), ["accuracy_last", "personal_last"]].dropna()
        if len(rows):
            x, y = rows["accuracy_last"].tolist(), rows["personal_last"].tolist()
            mean = sum(x) / len(x), sum(y) / len(y)
            points.append(
                PlotPoint(
                    comparable.marked(runs, group),
                    *mean,
                    reported_interval(x),
                    reported_interval(y),
                    numbers[group.label],
                )
            )
    return points


def _dots(runs: Runs, members: Sequence[Group]) -> Picture | None:
    """Draw the accuracy of each client of each method. None if no run scored its clients."""
    rows = runs.clients
    every = {group.label: rows.loc[rows["run"].isin(group.used), "value"].dropna() for group in members}
    shown = {label: values.tolist() for label, values in every.items() if len(values)}
    if not shown:
        return None
    caption = "Each dot is a client of one seed, when it last took part; the line is the median."
    if len(shown) > MOST_DOTS:
        caption += f" The first {MOST_DOTS} of {len(shown)} methods are drawn."
    figure = client_dots(dict(list(shown.items())[:MOST_DOTS]), looks(runs))
    return drawing(figure, caption + comparable.unlike(runs, members), css="classes")


def _gains(runs: Runs, members: Sequence[Group]) -> Picture | None:
    """Draw how each client's last personal accuracy differs from that of the baseline, over common seeds."""
    baseline = baseline_of(runs, members)
    if baseline is None or runs.clients.empty:
        return None
    differences = {}
    for group in members:
        gained = (
            client_gains(runs, group.used, baseline.used)
            if not comparable.differences(runs, group, baseline)
            else []
        )
        if group is not baseline and gained:
            differences[group.label] = gained
    if not differences:
        return None
    caption = (
        f"What a client gains over {baseline.label}, in points: difference of its personal models' "
        f"accuracies on its own test "
        "part when it last took part; counts are means over common seeds. Bins of 5 points."
    )
    if len(differences) > MOST_GAINS:
        caption += f" The first {MOST_GAINS} of {len(differences)} methods are drawn."
    figure = gains(dict(list(differences.items())[:MOST_GAINS]), baseline.label)
    return drawing(figure, caption, css="classes")
