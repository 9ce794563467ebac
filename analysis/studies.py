"""Make figures and a table of claims from the Parquet files of a study (reproductions/studies/record.py).

A painter belongs to one study. It is a function from Study to Painted: the figures of one seed, its tables,
and for every seed the checks that docs/papers names. The entry points `raffed.painters` name all painters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from raffed.own.gate import within
from raffed.results.writer import open_table

from .reproduction.item_runs import Reproduction
from .runs.files import JsonDict, read_object
from .table import TextTable

PARTS = ("values", "points", "images")


class Study(NamedTuple):
    """A finished study: its study.json and its rows. A part that the study did not write is empty."""

    about: JsonDict
    values: pd.DataFrame
    points: pd.DataFrame
    images: pd.DataFrame

    def value(self, panel: str, series: str, metric: str, x: float | None = None) -> float:
        """Return one number: the one at x, or the last one. KeyError if there is none."""
        curve = self.curve(panel, series, metric)
        return float(curve.iloc[-1] if x is None else curve[x])

    def curve(self, panel: str, series: str, metric: str) -> pd.Series[float]:
        """Return numbers against x in ascending order. KeyError if there are none."""
        rows = self.values
        kept = rows[(rows["panel"] == panel) & (rows["series"] == series) & (rows["metric"] == metric)]
        if kept.empty:
            raise KeyError(f"study {self.about['name']}: no {metric} of {series} in {panel}")
        return kept.set_index("x")["value"].sort_index()

    def panels(self) -> list[str]:
        """Return the panels in the order in which they were written, those with points first."""
        return list(dict.fromkeys([*self.points["panel"], *self.values["panel"], *self.images["panel"]]))


class StudyCheck(NamedTuple):
    """A claim of docs/papers, what was measured, and whether the claim holds.

    `exact` marks a mathematical claim, which must hold at any scale.
    """

    claim: str
    measured: str
    holds: bool
    exact: bool = False


class DrawnFigure(NamedTuple):
    """A figure with its caption, and the class of its <figure> element."""

    figure: Figure
    caption: str
    css: str = "classes"


class Painted(NamedTuple):
    """What a report shows of a study. `tables` maps headings to tables."""

    figures: list[DrawnFigure]
    checks: list[StudyCheck]
    tables: dict[str, TextTable] = {}  # noqa: RUF012


COLUMNS = {
    "values": ["panel", "series", "x", "metric", "value"],
    "points": ["panel", "kind", "label", "x", "y"],
    "images": ["panel", "row", "column", "height", "width", "channels", "pixels"],
}


def load_study(folder: Path | str) -> Study:
    """Return the study in a folder. ValueError or OSError if there is no finished one."""
    about = read_object(Path(folder) / "study.json")
    if about.get("state") != "finished":
        raise ValueError(f"{folder}: there is no finished study")
    frames = {}
    for name in PARTS:
        path = Path(folder) / f"{name}.parquet"
        if path.exists():
            # Not read_table: a folder named `mu=0.1` above would become a column
            with open_table(path) as file:
                frames[name] = file.read().to_pandas()
        else:
            frames[name] = pd.DataFrame(columns=COLUMNS[name])
    return Study(about, frames["values"], frames["points"], frames["images"])


def load_studies(item: Reproduction) -> list[Study]:
    """Return the finished studies behind an item, ordered by seed."""
    return sorted(
        (load_study(folder) for folder in study_folders(item)), key=lambda study: int(study.about["seed"])
    )


def study_folders(item: Reproduction) -> list[Path]:
    """Return the folders of the studies behind an item."""
    return [within(item.folder, name, above=4).resolve() for name in item.about.get("studies", [])]


def values_table(study: Study, metrics: Iterable[str] | None = None) -> TextTable:
    """Return the last value of every (panel, series), with one column for each metric."""
    names = list(dict.fromkeys(study.values["metric"])) if metrics is None else list(metrics)
    table = {}
    for row in records(study.values.sort_values("x", kind="stable")):
        table[row["panel"], row["series"], row["metric"]] = float(row["value"])
    keys = dict.fromkeys(
        (row["panel"], row["series"]) for row in records(study.values) if row["metric"] in names
    )
    lines = [[*key, *(_shown(table.get((*key, name))) for name in names)] for key in keys]
    return TextTable(["Panel", "Series", *names], lines, frozenset({"Panel", "Series"}))


def records(frame: pd.DataFrame) -> list[JsonDict]:
    """Return the rows, each as column: value."""
    rows: list[JsonDict] = [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
    return rows


def _shown(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.4g}".replace("-", "−")


@cache
def painters() -> dict[str, Callable[[Study], Painted]]:
    """Map each study to its painter. They are imported on first use, because they import this module."""
    groups = [entry.load() for entry in entry_points(group="raffed.painters")]
    return {name: painter for group in groups for name, painter in group.items()}


def painted(study: Study) -> Painted:
    """Return what is shown of a study. A study without a painter is shown as a table of its numbers."""
    painter = painters().get(study.about["name"])
    return Painted([], [], {"Values": values_table(study)}) if painter is None else painter(study)


def check_table(studies: Sequence[Study]) -> TextTable | None:
    """Return a table of claims with measured values and verdicts over all seeds; None without claims.

    Smoke runs decide no claim about trained models, so only mathematical claims are left of them.
    """
    smoke = bool(studies) and studies[0].about["scale"] == "smoke"
    by_claim: dict[str, list[StudyCheck]] = {}
    for study in studies:
        for check in (check for check in painted(study).checks if check.exact or not smoke):
            by_claim.setdefault(check.claim, []).append(check)
    if not by_claim:
        return None
    lines = [
        [claim, "; ".join(c.measured for c in checks), _holds(checks)] for claim, checks in by_claim.items()
    ]
    words = frozenset({"Claim", "Measured", "Holds"})
    return TextTable(["Claim", "Measured", "Holds"], lines, words)


def _holds(checks: Sequence[StudyCheck]) -> str:
    good = sum(check.holds for check in checks)
    if len(checks) == 1:
        return "yes" if good else "no"
    return f"{good} of {len(checks)} seeds"
