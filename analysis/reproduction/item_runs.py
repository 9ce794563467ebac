"""Read the item.json of a reproduction, and find the runs behind its cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from raffed.own.gate import within

from ..metrics.measures import measures
from ..runs.comparable import PREFIX, classes, differences
from ..runs.files import JsonObject, read_object
from ..runs.groups import Group
from ..runs.load import Runs, section
from ..runs.origins import origin, unlike_parts

# Settings in which the rows of a paper's own table may differ, because its code or text treats them so. A
# method that fine-tunes after the last round has personal models to survey in that round alone.
DECLARED = frozenset({"federation.weighting", "federation.survey", "local.clip_norm"})

Place = tuple[str, str]  # row, column


class Reproduction(NamedTuple):
    """The contents of an item.json, and its folder."""

    folder: Path
    about: JsonObject

    @property
    def title(self) -> str:
        about = self.about
        return f"{about['paper']}/{about['name']}, {about['scale']}: {about['title']}"


def load_item(path: Path | str) -> Reproduction:
    """Return the reproduction of an item.json. ValueError or OSError if the file is not one."""
    about = read_object(Path(path))
    if "cells" not in about:
        raise ValueError(f"{path}: this is not the item of a reproduction")
    return Reproduction(Path(path).parent, about)


def run_folders(item: Reproduction) -> list[Path]:
    """Return the folders of all runs behind the cells."""
    names = {run for cell in item.about["cells"] for run in cell["runs"]}
    return sorted(within(item.folder, name, above=4).resolve() for name in names)


def tried_names(items: Iterable[Reproduction]) -> list[str]:
    """Return the names of the runs that only served to choose a setting of a row. They are not results."""
    rows = [row for item in items for row in section(item.about, "search").get("rows", [])]
    return [Path(str(trial["run"])).name for row in rows for trial in row["trials"]]


def measure_of(item: Reproduction, cell: JsonObject) -> str:
    """Return the measure of a cell: its own if its row has one, else the item's."""
    return str(cell.get("measure") or item.about["measure"])


def cell_names(item: Reproduction, cell: JsonObject, runs: Runs) -> list[str]:
    """Return the loaded runs behind a cell.

    If the cell was tried with several settings, these are the runs of the best one in the cell's measure. A
    cell that is the same runs read in another way has the setting of the row that it names.
    """
    if not cell.get("settings"):
        return _names(item, cell["runs"], runs)
    best = best_setting(item, cell, runs)
    return next(_names(item, tried["runs"], runs) for tried in cell["settings"] if tried["setting"] == best)


def best_setting(item: Reproduction, cell: JsonObject, runs: Runs) -> str:
    """Return the setting with the highest mean of the measure.

    The first one is returned if several are equal, or if no setting has a run.
    """
    if cell.get("chosen_as"):
        of = cell_at(item, (str(cell["chosen_as"]), str(cell["column"])))
        if of is not None and of.get("settings"):
            return best_setting(item, of, runs)
    means = {
        setting: mean for setting, mean in setting_means(item, cell, runs).items() if not math.isnan(mean)
    }
    return max(means, key=lambda setting: means[setting]) if means else str(cell["settings"][0]["setting"])


def setting_means(item: Reproduction, cell: JsonObject, runs: Runs) -> dict[str, float]:
    """Map each setting to the mean of the measure, an accuracy in per cent; NaN without runs.

    Only the settings with the most seeds have a mean, so that one lucky seed cannot make a setting the best.
    It is over the seeds that they share, or over the own ones of each if they share none.
    """
    scores, seeds = measures(runs)[measure_of(item, cell)], runs.runs["seed"]
    known: dict[str, dict[int, float]] = {}
    for tried in cell["settings"]:
        by_seed = {int(seeds[name]): float(scores[name]) for name in _names(item, tried["runs"], runs)}
        known[tried["setting"]] = {seed: score for seed, score in by_seed.items() if not math.isnan(score)}
    most = max(map(len, known.values()))
    whole = {name: by_seed for name, by_seed in known.items() if by_seed and len(by_seed) == most}
    common = set.intersection(*map(set, whole.values())) if whole else set()
    means = {name: _percent([score[seed] for seed in common or score]) for name, score in whole.items()}
    return {name: means.get(name, math.nan) for name in known}


def missing_settings(item: Reproduction, cell: JsonObject, runs: Runs) -> list[str]:
    """Return the settings of a cell that were not tried with as many seeds as others.

    While there is one, the best of the others is no result. A setting with which training diverged was tried.
    """
    means = setting_means(item, cell, runs) if cell.get("settings") else {}
    if all(math.isnan(mean) for mean in means.values()):
        return []
    place = f"{cell['row']}, {cell['column']}"
    told = [str(text) for text in item.about.get("left_out", ())]
    return [
        name
        for name, mean in means.items()
        if math.isnan(mean) and not any(text.startswith(f"{place}, {name}: diverged") for text in told)
    ]


def _percent(scores: Sequence[float]) -> float:
    return 100 * math.fsum(scores) / len(scores) if scores else math.nan


def strays(item: Reproduction, runs: Runs) -> dict[str, str]:
    """Map runs to the reason why they are left out.

    A run is left out if its rows are damaged or lacking, if most runs of its column and seed have another
    partition, other data or another budget, or if most seeds of its own cell have, or have other own code.
    The rows of an item may differ in the method, its arguments and the clipping of gradients, and in what the
    item says of itself. Rows that were tuned may differ in everything, because each has the settings that its
    trials chose, but the seeds of one cell may not differ in own code and data.
    """
    tuned = bool(item.about.get("search"))
    declared = DECLARED | frozenset(section(item.about, "published").get("may_differ", ()))

    def compute() -> dict[str, str]:
        stray: dict[str, str] = {}
        for members in _by_seed(item, runs):
            stray.update(_damaged(runs, members))
            stray.update(_of_other_origin(runs, [group for group in members if group.used[0] not in stray]))
        for find in () if tuned else (_by_column, _by_seed):
            for members in find(item, runs):
                kept = [group for group in members if group.used[0] not in stray]
                stray |= _odd_ones(runs, kept, declared, str(item.about["measure"]))
        return stray

    left: dict[str, str] = runs.once(("strays", str(item.folder)), compute)
    return left


def _odd_ones(runs: Runs, members: Sequence[Group], declared: frozenset[str], measure: str) -> dict[str, str]:
    """Return the runs that may not be compared with the largest set of `members`, and why."""
    first, *rest = classes(runs, members, declared, measure) or [[]]
    reasons = {}
    for group in (group for alike in rest for group in alike):
        told, than = next(
            (told, other) for other in first if (told := differences(runs, group, other, declared, measure))
        )
        said = "; ".join(map(str, told))
        reasons[group.used[0]] = f"{PREFIX}{said}; the second value is that of {than.label}"
    return reasons


def _damaged(runs: Runs, members: Sequence[Group]) -> dict[str, str]:
    """Return the runs whose rows are damaged or lacking, and what is the matter."""
    damage = {group.used[0]: str(runs.runs.at[group.used[0], "damage"]) for group in members}
    return {
        name: f"{PREFIX}its rows are not as the run wrote them ({why})" for name, why in damage.items() if why
    }


def _of_other_origin(runs: Runs, members: Sequence[Group]) -> dict[str, str]:
    """Return the seeds of a cell that most seeds differ from in own code, data or revision, and why."""
    sets: list[list[Group]] = []
    origins = {group.used[0]: origin(runs.files[group.used[0]]) for group in members}
    for group in members:
        fits = (same for same in sets if not unlike_parts(origins[same[0].used[0]], origins[group.used[0]]))
        place = next(fits, None)
        if place is None:
            sets.append([group])
        else:
            place.append(group)
    most = max(sets, key=len, default=[])
    reasons = {}
    for group in (group for same in sets if same is not most for group in same):
        told = "; ".join(unlike_parts(origins[group.used[0]], origins[most[0].used[0]]))
        reasons[group.used[0]] = f"{PREFIX}{told}; the second value is that of {most[0].label}"
    return reasons


def _by_column(item: Reproduction, runs: Runs) -> list[list[Group]]:
    """Return the runs of every column and seed, each alone, with the baseline's first."""
    by_place: dict[tuple[str, str], dict[str, Group]] = {}
    cells = sorted(item.about["cells"], key=lambda cell: cell["row"] != item.about["baseline"])
    for cell in cells:
        for name in loaded_names(item, cell["runs"], runs):
            place = cell["column"], str(runs.runs.at[name, "seed"])
            by_place.setdefault(place, {}).setdefault(name, _alone(runs, name, cell["row"]))
    return [list(members.values()) for members in by_place.values()]


def _by_seed(item: Reproduction, runs: Runs) -> list[list[Group]]:
    """Return the runs of every cell and setting, each alone, with its seed as the label."""

    def of(name: str) -> Group:
        return _alone(runs, name, f"seed {runs.runs.loc[name]['seed']:.0f}")

    return [
        [of(name) for name in loaded_names(item, tried["runs"], runs)]
        for cell in item.about["cells"]
        for tried in cell.get("settings") or [cell]
    ]


def _alone(runs: Runs, name: str, label: str) -> Group:
    dataset, partition = (str(runs.runs.at[name, column]) for column in ("dataset", "partition"))
    return Group(label, dataset, partition, (name,), "")


def cell_at(item: Reproduction, place: Place) -> JsonObject | None:
    """Return the cell at a place of an item's table, or None if the table has none there."""
    return next((cell for cell in item.about["cells"] if (cell["row"], cell["column"]) == place), None)


def parts_of(item: Reproduction, *places: Place) -> list[Place]:
    """Return the places of cells behind these: of a column of averages those whose mean it is."""
    parts = {average["column"]: average["of"] for average in item.about.get("averages", ())}
    return list(dict.fromkeys((row, part) for row, column in places for part in parts.get(column, [column])))


def partial_averages(item: Reproduction) -> dict[str, JsonObject]:
    """Map columns of averages to what is said of them, if the item has only some of the averaged columns."""
    averages = item.about.get("averages", ())
    return {mean["column"]: mean for mean in averages if len(mean["of"]) < mean.get("whole", 0)}


def measure_at(item: Reproduction, place: Place) -> str:
    """Return the measure at a place; of a column of averages it is that of its first cell."""
    cells = (cell_at(item, part) for part in parts_of(item, place))
    return measure_of(item, next((cell for cell in cells if cell is not None), {}))


def stray_of(item: Reproduction, cell: JsonObject, runs: Runs) -> str:
    """Return why runs behind a cell are left out; empty if none is."""
    left = strays(item, runs)
    names = loaded_names(item, cell["runs"], runs)
    return "; ".join(dict.fromkeys(left[name] for name in names if name in left))


def _names(item: Reproduction, folders: Iterable[str], runs: Runs) -> list[str]:
    left = strays(item, runs)
    return [name for name in loaded_names(item, folders, runs) if name not in left]


def loaded_names(item: Reproduction, folders: Iterable[str], runs: Runs) -> list[str]:
    """Return the loaded runs in these folders of an item, also those that are left out of its cells."""
    wanted = {str((item.folder / run).resolve()) for run in folders}
    places = runs.once(
        "places",
        lambda: {str(Path(folder).resolve()): str(name) for name, folder in runs.runs["folder"].items()},
    )
    return [places[folder] for folder in sorted(wanted) if folder in places]
