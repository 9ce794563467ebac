"""Studies: from the Parquet files of a study's folder (raffed/studies/record.py) to figures and to a table of its claims.

A painter, by the study's name, gives the figures of one seed, the tables, and for every seed the checks that the sheets name. To
add one: a function from Study to Painted in a module of this package, and an entry in `painters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from .files import read_object
from .item_runs import Reproduction
from .sheet import Sheet

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


class Check(NamedTuple):
    """A claim of a sheet, what was measured, and whether that is so. exact: mathematics, true or false at any scale."""

    claim: str
    measured: str
    holds: bool
    exact: bool = False


class Drawn(NamedTuple):
    """A figure with its caption; css as of page.picture."""

    figure: Figure
    caption: str
    css: str = "classes"


class Painted(NamedTuple):
    """What is shown of a study. tables: heading → sheet."""

    figures: list[Drawn]
    checks: list[Check]
    tables: dict[str, Sheet] = {}  # noqa: RUF012


Painter = Callable[[Study], Painted]
COLUMNS = {"values": ["panel", "series", "x", "metric", "value"], "points": ["panel", "kind", "label", "x", "y"],
           "images": ["panel", "row", "column", "height", "width", "channels", "pixels"]}  # fmt: skip


@cache
def painters() -> dict[str, Painter]:
    """Study → its painter; imported when it is first asked for, since painters use this module."""
    from .leakage import leakage
    from .study_fedmr import averaged_classifiers
    from .study_map import features_2d, proxy_statistics, targeted_classes, two_client_demo
    from .study_mpfedcon import features_tsne, solo_drift

    known = (
        averaged_classifiers, features_2d, features_tsne, leakage, proxy_statistics, solo_drift, targeted_classes,
        two_client_demo,
    )  # fmt: skip
    return {painter.__name__: painter for painter in known}


def load_study(folder: Path | str) -> Study:
    """The study in a folder; ValueError or OSError where there is no finished one."""
    about = read_object(Path(folder) / "study.json")
    if about.get("state") != "finished":
        raise ValueError(f"{folder}: no finished study")
    frames = {}
    for name in PARTS:
        path = Path(folder) / f"{name}.parquet"
        if path.exists():
            with pq.ParquetFile(path) as file:  # not read_table: a folder named `mu=0.1` above would become a column
                frames[name] = file.read().to_pandas()
        else:
            frames[name] = pd.DataFrame(columns=COLUMNS[name])
    return Study(about, frames["values"], frames["points"], frames["images"])


def load_studies(item: Reproduction) -> list[Study]:
    """The finished studies behind an item, by seed."""
    return sorted((load_study(folder) for folder in study_folders(item)), key=lambda study: int(study.about["seed"]))


def study_folders(item: Reproduction) -> list[Path]:
    """The folders of the studies behind an item."""
    return [(item.folder / name).resolve() for name in item.about.get("studies", [])]


def painted(study: Study) -> Painted:
    """What is shown of a study; a study that nothing is known of is its numbers in a table."""
    painter = painters().get(study.about["name"])
    return Painted([], [], {"Values": values_sheet(study)}) if painter is None else painter(study)


def check_sheet(studies: Sequence[Study]) -> Sheet | None:
    """claim | measured | holds, over all seeds; None for a study without claims. Smoke decides nothing that was trained."""
    found: dict[str, list[Check]] = {}
    for study in studies:
        for check in painted(study).checks:
            found.setdefault(check.claim, []).append(check)
    if not found:
        return None
    smoke = studies[0].about["scale"] == "smoke"
    lines = [[claim, "; ".join(one.measured for one in checks), _holds(checks, smoke)] for claim, checks in found.items()]
    words = frozenset({"Claim", "Measured", "Holds"})
    return Sheet(["Claim", "Measured", "Holds"], lines, words)


def _holds(checks: Sequence[Check], smoke: bool) -> str:
    if smoke and not checks[0].exact:
        return "–"
    good = sum(one.holds for one in checks)
    if len(checks) == 1:
        return "yes" if good else "no"
    return f"{good} of {len(checks)} seeds"


def values_sheet(study: Study, metrics: Iterable[str] | None = None) -> Sheet:
    """The last value of every (panel, series), a column a metric."""
    names = list(dict.fromkeys(study.values["metric"])) if metrics is None else list(metrics)
    table = {}
    for row in records(study.values.sort_values("x", kind="stable")):
        table[row["panel"], row["series"], row["metric"]] = float(row["value"])
    keys = dict.fromkeys((row["panel"], row["series"]) for row in records(study.values) if row["metric"] in names)
    lines = [[*key, *(_shown(table.get((*key, name))) for name in names)] for key in keys]
    return Sheet(["Panel", "Series", *names], lines, frozenset({"Panel", "Series"}))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows, each as column → value."""
    found: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
    return found


def _shown(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.4g}".replace("-", "−")
