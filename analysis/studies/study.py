"""Studies: from the Parquet files of a study's folder (raffed/studies/record.py) to figures and to a table of
its claims.

A painter, by the study's name, gives the figures of one seed, the tables, and for every seed the checks that
docs/papers names. To add one: a function from Study to Painted in a module of this package, and an entry in
`painters`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from ..reproduction.item_runs import Reproduction
from ..runs.files import read_object
from ..table import TextTable

PARTS = ("values", "points", "images")


class Study(NamedTuple):
    """A finished study: study.json, and its rows; a part that it did not write is empty."""

    about: dict[str, Any]
    values: pd.DataFrame
    points: pd.DataFrame
    images: pd.DataFrame

    def value(self, panel: str, series: str, metric: str, x: float | None = None) -> float:
        """One number: the one at x, or the last one; KeyError where there is none."""
        found = self.curve(panel, series, metric)
        return float(found.iloc[-1] if x is None else found[x])

    def curve(self, panel: str, series: str, metric: str) -> pd.Series[float]:
        """A number against x, ascending; KeyError where there is none."""
        rows = self.values
        kept = rows[(rows["panel"] == panel) & (rows["series"] == series) & (rows["metric"] == metric)]
        if kept.empty:
            raise KeyError(f"study {self.about['name']}: no {metric} of {series} in {panel}")
        return kept.set_index("x")["value"].sort_index()

    def panels(self) -> list[str]:
        """Panels in the order in which they were written, those with points first."""
        return list(dict.fromkeys([*self.points["panel"], *self.values["panel"], *self.images["panel"]]))


class StudyCheck(NamedTuple):
    """A claim of docs/papers, what was measured, and whether that is so. exact: mathematics, true or
    false at any scale.
    """

    claim: str
    measured: str
    holds: bool
    exact: bool = False


class DrawnFigure(NamedTuple):
    """A figure with its caption; css as of page.picture."""

    figure: Figure
    caption: str
    css: str = "classes"


class Painted(NamedTuple):
    """What is shown of a study. tables: heading → sheet."""

    figures: list[DrawnFigure]
    checks: list[StudyCheck]
    tables: dict[str, TextTable] = {}  # noqa: RUF012


COLUMNS = {
    "values": ["panel", "series", "x", "metric", "value"],
    "points": ["panel", "kind", "label", "x", "y"],
    "images": ["panel", "row", "column", "height", "width", "channels", "pixels"],
}


def load_study(folder: Path | str) -> Study:
    """The study in a folder; ValueError or OSError where there is no finished one."""
    about = read_object(Path(folder) / "study.json")
    if about.get("state") != "finished":
        raise ValueError(f"{folder}: no finished study")
    frames = {}
    for name in PARTS:
        path = Path(folder) / f"{name}.parquet"
        if path.exists():
            with pq.ParquetFile(
                path
            ) as file:  # not read_table: a folder named `mu=0.1` above would become a column
                frames[name] = file.read().to_pandas()
        else:
            frames[name] = pd.DataFrame(columns=COLUMNS[name])
    return Study(about, frames["values"], frames["points"], frames["images"])


def load_studies(item: Reproduction) -> list[Study]:
    """The finished studies behind an item, by seed."""
    return sorted(
        (load_study(folder) for folder in study_folders(item)), key=lambda study: int(study.about["seed"])
    )


def study_folders(item: Reproduction) -> list[Path]:
    """The folders of the studies behind an item."""
    return [(item.folder / name).resolve() for name in item.about.get("studies", [])]


def values_sheet(study: Study, metrics: Iterable[str] | None = None) -> TextTable:
    """The last value of every (panel, series), a column a metric."""
    names = list(dict.fromkeys(study.values["metric"])) if metrics is None else list(metrics)
    table = {}
    for row in records(study.values.sort_values("x", kind="stable")):
        table[row["panel"], row["series"], row["metric"]] = float(row["value"])
    keys = dict.fromkeys(
        (row["panel"], row["series"]) for row in records(study.values) if row["metric"] in names
    )
    lines = [[*key, *(_shown(table.get((*key, name))) for name in names)] for key in keys]
    return TextTable(["Panel", "Series", *names], lines, frozenset({"Panel", "Series"}))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows, each as column → value."""
    found: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
    return found


def _shown(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.4g}".replace("-", "−")
