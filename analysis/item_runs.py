"""An item.json of a reproduction, and the runs behind its cells."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .load import Runs
from .measures import measures


class Reproduction(NamedTuple):
    """An item.json and where it lies."""

    folder: Path
    about: Mapping[str, Any]

    @property
    def title(self) -> str:
        about = self.about
        return f"{about['paper']}/{about['name']}, {about['scale']}: {about['title']}"


def load_item(path: Path | str) -> Reproduction:
    """The reproduction of an item.json; raises ValueError or OSError for a file that is none."""
    about = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(about, dict) or "cells" not in about:
        raise ValueError(f"{path}: no item of a reproduction")
    return Reproduction(Path(path).parent, about)


def run_folders(item: Reproduction) -> list[Path]:
    """The folders of all runs behind the cells."""
    names = {run for cell in item.about["cells"] for run in cell["runs"]}
    return sorted((item.folder / name).resolve() for name in names)


def measure_of(item: Reproduction, cell: Mapping[str, Any]) -> str:
    """What is read off a cell's runs: its own measure where its row has one, else the item's."""
    return str(cell.get("measure") or item.about["measure"])


def cell_names(item: Reproduction, cell: Mapping[str, Any], runs: Runs) -> list[str]:
    """The runs behind a cell that were loaded; where it was tried with several settings, those of the best."""
    if not cell.get("settings"):
        return _names(item, cell["runs"], runs)
    best = best_setting(item, cell, runs)
    return next(_names(item, one["runs"], runs) for one in cell["settings"] if one["setting"] == best)


def best_setting(item: Reproduction, cell: Mapping[str, Any], runs: Runs) -> str:
    """The setting with the highest mean of the cell's measure; the first while none has a run."""
    means = {setting: mean for setting, mean in setting_means(item, cell, runs).items() if not math.isnan(mean)}
    return max(means, key=lambda setting: means[setting]) if means else str(cell["settings"][0]["setting"])


def setting_means(item: Reproduction, cell: Mapping[str, Any], runs: Runs) -> dict[str, float]:
    """Setting → mean of the cell's measure over its seeds, an accuracy in percent; NaN where nothing is finished."""
    names = {one["setting"]: _names(item, one["runs"], runs) for one in cell["settings"]}
    found = measures(runs)[measure_of(item, cell)]
    return {setting: 100 * float(found.loc[of].mean()) if of else math.nan for setting, of in names.items()}


def _names(item: Reproduction, folders: Iterable[str], runs: Runs) -> list[str]:
    wanted = {str((item.folder / run).resolve()) for run in folders}
    places = runs.once("places", lambda: {str(Path(folder).resolve()): name for name, folder in runs.runs["folder"].items()})
    return [places[folder] for folder in sorted(wanted) if folder in places]
