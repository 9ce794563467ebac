"""Report on a search for hyperparameters: what it chose, what that cost, and how well the choice performs.

The data are sweep.json and the runs beside it.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from raffed.results.runfile import SWEEP_FILE, folder_name
from raffed.results.sweep_file import DAMAGED, FINALS, SEED_AXIS, TRIALS, read_sweep

from .metrics.intervals import reported_interval
from .metrics.measures import measures
from .runs.comparable import PREFIX, comparability
from .runs.files import JsonObject
from .runs.groups import Group
from .runs.load import Runs, read_runs, section
from .runs.origins import origin, unlike_parts
from .table import TextTable, in_four_digits, without_blank

NOTES = {
    "validation": "Settings were chosen on a validation part of the clients' training data, never on test data; the accuracies "  # noqa: E501
    "are those of the chosen setting run again with fresh seeds (mean ± 95 % t-interval).",
    "paper": (
        "Protocol of the papers: settings chosen by test accuracy, and that very accuracy reported. "
        "Optimistic."
    ),
}


class Sweep(NamedTuple):
    """A folder with a sweep.json, and the contents of that file.

    If the file cannot be read, `damage` gives the reason and `about` is empty.
    """

    folder: Path
    about: JsonObject
    damage: str = ""

    @property
    def protocol(self) -> str:
        return str(section(self.about, "request").get("protocol"))

    @property
    def methods(self) -> JsonObject:
        return section(self.about, "methods")


def find_sweeps(paths: Iterable[Path | str]) -> list[Sweep]:
    """Return the sweeps at or below `paths`, and those that contain one of the paths.

    A sweep whose sweep.json is damaged or missing is also returned.
    """
    sweeps = {}
    for path in map(Path, paths):
        for folder, below, names in os.walk(path):
            below[:] = sorted(set(below) - {"metrics", "checkpoints"})
            if SWEEP_FILE in names or SWEEP_FILE in below:
                below.clear()
                sweeps[Path(folder).resolve()] = _read(Path(folder))
            if {TRIALS, FINALS} <= set(below):  # the folder of a method
                home = Path(folder).resolve().parent
                sweeps.setdefault(home, _read(home))
            if "run.json" in names:
                below.clear()
    return list(sweeps.values())


def _read(folder: Path) -> Sweep:
    try:
        return Sweep(folder, read_sweep(folder))
    except ValueError as error:
        return Sweep(folder, {}, str(error).removeprefix(f"{folder / SWEEP_FILE}: "))


def damaged_sweeps(sweeps: Iterable[Sweep]) -> dict[str, str]:
    """Map the path of every unreadable sweep.json to the reason and its consequence for the report."""
    then = "what was chosen is not known, and of its runs the final ones alone count as results"
    return {str(sweep.folder / SWEEP_FILE): f"{sweep.damage}; {then}" for sweep in sweeps if sweep.damage}


def with_missing(runs: Runs, sweeps: Iterable[Sweep], paths: Iterable[Path | str]) -> Runs:
    """Return the runs, whose `unreadable` also names the results of sweeps and of seeds that are not there.

    Nothing else notices a run whose folder was removed. A copy in the folder of another seed is left out.

    Args:
        runs: The runs that were found at or below `paths`.
        sweeps: The sweeps that were found there.
        paths: Only runs at or below these are missed.
    """
    above = [Path(path).resolve() for path in paths]
    present = {Path(folder).resolve() for folder in runs.runs["folder"]}
    named = {Path(path).resolve() for path in runs.unreadable}
    missing = {
        str(folder): f"not there, although {SWEEP_FILE} says that this run is finished"
        for sweep in sweeps
        for method, about in sweep.methods.items()
        for folder in _results(sweep, method, about)
        if folder not in present
        and not any(path.is_relative_to(folder) for path in named)
        and any(folder.is_relative_to(path) for path in above)
    }
    return _without_copies(replace(runs, unreadable={**runs.unreadable, **missing}), above)


def _without_copies(runs: Runs, above: Iterable[Path]) -> Runs:
    """Return the runs without copies of a run in the folder of another seed.

    Their `unreadable` also names these, and the folders below `above` that lack runs of the seeds that were
    asked for.
    """
    if runs.runs.empty:
        return runs
    ids = runs.runs["run_id"].value_counts()
    copies, there, asked = list[str](), dict[Path, list[str]](), dict[Path, int]()
    lost: dict[str, str] = {}
    for name, about in runs.runs.iterrows():
        folder, seed_name = Path(about["folder"]).resolve(), f"seed-{about['seed']:.0f}"
        if not re.fullmatch(r"seed-\d+", folder.name):
            continue
        if folder.name != seed_name and ids[about["run_id"]] > 1:
            copies.append(str(name))
            lost[str(folder)] = f"a copy of the run in {seed_name}"
            continue
        there.setdefault(folder.parent, []).append(folder.name)
        command = str((runs.files[str(name)].get("segments") or [{}])[-1].get("command", ""))
        said = re.search(r" --seeds[ =](\d{1,5})( |$)", command)
        asked[folder.parent] = max(asked.get(folder.parent, 0), int(said[1]) if said else 0)
    for parent, names in there.items():
        whole = len(names) >= asked[parent] or parent.name == FINALS
        if not whole and any(parent.is_relative_to(path) for path in above):
            what = f"{asked[parent]} seeds were asked for, of which these can be read"
            lost[str(parent)] = f"{what}: {', '.join(sorted(names))}"
    return replace(runs.without(copies), unreadable={**runs.unreadable, **lost}) if lost else runs


def trials_of(runs: Runs, sweeps: Iterable[Sweep]) -> list[str]:
    """Return the runs that served only to choose a setting. Their folders identify them.

    They are not results: the final runs of the chosen setting are. With the papers' protocol the chosen trial
    is itself the result, so it is not returned. Runs that were set aside as damaged are never results. If
    there are only trials, none is returned, because then there is nothing to keep them apart from.
    """
    places = {sweep.folder.resolve(): sweep for sweep in sweeps}
    folders = {str(name): Path(folder).resolve() for name, folder in runs.runs["folder"].items()}
    trials = []
    for name, folder in folders.items():
        if folder.parent.name in (TRIALS, DAMAGED) and len(folder.parents) > 2:
            sweep = places.get(folder.parents[2]) or _home(folder)
            if sweep is not None and folder != _result(sweep, folder.parents[1].name):
                trials.append(name)
    return trials if len(trials) < len(folders) else []


def _home(folder: Path) -> Sweep | None:
    """Return the sweep of a trial's folder, for a report on a place below that sweep."""
    home = folder.parents[2]
    return _read(home) if os.path.lexists(home / SWEEP_FILE) else None


def _result(sweep: Sweep, below: str) -> Path | None:
    """Return the folder of the trial that counts as a result: the chosen one, with the papers' protocol.

    `below` is the folder of its method.
    """
    method = next((name for name in sweep.methods if folder_name(name) == below), below)
    chosen = section(section(sweep.methods, method), "chosen").get("name")
    return (
        (sweep.folder / below / TRIALS / str(chosen)).resolve()
        if sweep.protocol == "paper" and chosen is not None
        else None
    )


def tuning_table(sweep: Sweep, runs: Runs | None = None) -> TextTable:
    """Return a table of each method's chosen setting, trials, cost, score and final accuracies."""
    finals = read_runs([sweep.folder]) if runs is None else runs
    titles = [
        "Method",
        "Chosen",
        "Trials",
        "Failed",
        "Pruned",
        "Rounds to choose",
        "Steps to choose",
        "Hours to choose",
        _score_title(sweep, finals),
        "Seeds",
        "Aggregation %",
        "Personalization %",
    ]
    said = _comparable(sweep, finals)
    lines = [
        [*_line(sweep, name, about, finals), said.get(finals.names.get(name, name), "–")]
        for name, about in sweep.methods.items()
    ]
    return without_blank(
        TextTable([*titles, "Comparable"], lines, frozenset({"Method", "Chosen", "Comparable"})),
        {"Comparable", "Pruned"},
    )


def _comparable(sweep: Sweep, runs: Runs) -> dict[str, str]:
    """Map a method's name to the reason why its final runs may not be compared with the others'.

    Others are absent.
    """
    finals = {method: _final_names(sweep, method, about, runs) for method, about in sweep.methods.items()}
    members = [
        Group(
            runs.names.get(method, method),
            str(runs.runs.at[names[0], "dataset"]),
            str(runs.runs.at[names[0], "partition"]),
            tuple(names),
            "",
        )
        for method, names in finals.items()
        if names
    ]
    against = {label: said.against for label, said in comparability(runs, members).items() if said.against}
    return against | {group.label: why for group in members if (why := _mixed(runs, group))}


def _mixed(runs: Runs, group: Group) -> str:
    """Return that the final runs of a method differ in own code or data; "" if they do not."""
    first, *rest = (origin(runs.files[name]) for name in group.used)
    told = next((told for other in rest if (told := unlike_parts(first, other))), [])
    return f"{PREFIX}between its final runs {'; '.join(told)}" if told else ""


def _score_title(sweep: Sweep, runs: Runs) -> str:
    request = section(sweep.about, "request")
    by = ""
    if "score" in request:
        score = str(request["score"])
        by = f", {'1 − ' if _should_be_low(sweep, score, runs) else ''}{score}"
    return f"{'Test' if sweep.protocol == 'paper' else 'Validation'} ({request.get('select')}{by}) %"


def _should_be_low(sweep: Sweep, metric: str, runs: Runs) -> bool:
    """Return whether the sweep's runs say that a metric of the user's own should be low.

    A search maximises 1 minus such a metric.
    """
    home = sweep.folder.resolve()
    return any(
        described.get("name") == metric and described.get("better") == "lower"
        for name, folder in runs.runs["folder"].items()
        if Path(folder).resolve().is_relative_to(home)
        for described in runs.files[str(name)].get("metrics") or []
    )


def _line(sweep: Sweep, method: str, about: JsonObject, runs: Runs) -> list[str]:
    trials, cost = about.get("trials") or [], section(about, "cost")
    chosen = about.get("chosen") or {}
    failed, pruned = (sum(trial.get("state") == state for trial in trials) for state in ("failed", "pruned"))
    scores = _final_scores(sweep, method, about, runs)
    return [
        _title(method, scores, runs),
        settings_text(chosen.get("settings")) + _tied(about),
        f"{cost.get('trials', 0):.0f}/{about.get('budget', 0)}",
        str(failed),
        str(pruned) if pruned else "–",
        f"{cost.get('rounds', 0):.0f}",
        _steps(sweep, method, cost, runs),
        f"{cost.get('seconds', 0) / 3600:.3f}",
        _percent([chosen.get("score")]),
        _seeds(about, scores),
        _percent(scores["accuracy_last"]),
        _percent(scores["personal_last"]),
    ]


def _tied(about: JsonObject) -> str:
    """Return the settings that have the chosen one's score too; "" without any."""
    scored = trials_frame(about)
    best = scored[scored["score"] == scored["score"].max()] if len(scored) else scored
    named = [settings_text(row) for row in best.drop(columns="score", errors="ignore").to_dict("records")]
    chosen = settings_text(section(about, "chosen").get("settings"))
    others = [setting for setting in named if setting != chosen]
    return f" (as good: {'; '.join(others)})" if chosen in named and others else ""


def _steps(sweep: Sweep, method: str, cost: JsonObject, runs: Runs) -> str:
    """Return the steps of shared training of a client in all trials; a dash if not all trials are known."""
    place = (sweep.folder / folder_name(method) / TRIALS).resolve()
    tried = [str(name) for name, path in runs.runs["folder"].items() if Path(path).resolve().parent == place]
    steps = [section(runs.files[name], "effective").get("steps") for name in tried]
    done = runs.runs.loc[tried, "rounds_done"].tolist() if tried else []
    if not done or None in steps or sum(done) != cost.get("rounds"):
        return "–"
    return f"{sum(per_round * rounds for per_round, rounds in zip(steps, done, strict=True)):.0f}"


def _title(method: str, finals: pd.DataFrame, runs: Runs) -> str:
    """Return the name of a method: of a user's own its title, if a final run has one, with its reference."""
    titles = {str(runs.files[str(name)].get("title") or "") for name in finals.index} - {""}
    return f"{titles.pop()} ({method})" if len(titles) == 1 else runs.names.get(method, method)


def _final_scores(sweep: Sweep, method: str, about: JsonObject, runs: Runs) -> pd.DataFrame:
    """Return the two last accuracies of a method's final runs, one row for each run."""
    return measures(runs).loc[_final_names(sweep, method, about, runs), ["accuracy_last", "personal_last"]]


def _final_names(sweep: Sweep, method: str, about: JsonObject, runs: Runs) -> list[str]:
    """Return the finished final runs of a method that have all their rows.

    With the papers' protocol this is the chosen trial.
    """
    wanted, whole = _results(sweep, method, about), runs.runs[runs.runs["damage"] == ""]
    return [str(name) for name, folder in whole["folder"].items() if Path(folder).resolve() in wanted]


def _results(sweep: Sweep, method: str, about: JsonObject) -> set[Path]:
    """Return the folders of a method's final runs, or of its chosen trial with the papers' protocol.

    Only runs that sweep.json says are finished are results.
    """
    if sweep.protocol == "paper" and about.get("chosen"):
        return {(sweep.folder / folder_name(method) / TRIALS / str(about["chosen"].get("name"))).resolve()}
    return {
        (sweep.folder / str(final.get("folder"))).resolve()
        for final in about.get("final") or []
        if final.get("state") == "finished"
    }


def _seeds(about: JsonObject, scores: pd.DataFrame) -> str:
    """Return the number of seeds behind the scores, and of how many if not all final runs are finished."""
    planned, scored = len(about.get("final") or []), len(scores)
    return f"{scored} of {planned}" if planned > scored else str(scored)


def settings_text(settings: object) -> str:
    """Write settings as `mu1=0.01, mu2=0.1`. Return a dash if nothing was chosen."""
    if not isinstance(settings, Mapping):
        return "–"
    return ", ".join(f"{name}={in_four_digits(value)}" for name, value in settings.items()) or "defaults"


def _percent(values: Iterable[float | None]) -> str:
    known = [float(value) for value in values if value is not None and not math.isnan(value)]
    if not known:
        return "–"
    half = reported_interval(known)
    mean = sum(known) / len(known)
    return f"{100 * mean:.2f}" if math.isnan(half) else f"{100 * mean:.2f} ± {100 * half:.2f}"


def trials_frame(about: JsonObject) -> pd.DataFrame:
    """Return one row for each setting with a score: its settings as columns, and `score` as a fraction.

    Trials that differ in the axis of seeds alone are one setting with the mean of their scores, by which the
    search compares them. It has no score if one of them has none. Lists are written as texts.
    """
    scores: dict[str, list[float | None]] = {}
    settings: dict[str, JsonObject] = {}
    for trial in about.get("trials") or []:
        kept = {
            name: str(value) if isinstance(value, list) else value
            for name, value in section(trial, "settings").items()
            if name != SEED_AXIS
        }
        key = json.dumps(kept, sort_keys=True)
        scores.setdefault(key, []).append(trial.get("score"))
        settings.setdefault(key, kept)
    rows = []
    for key, of_seeds in scores.items():
        known = [score for score in of_seeds if score is not None]
        if known and len(known) == len(of_seeds):
            rows.append({**settings[key], "score": math.fsum(known) / len(known)})
    return pd.DataFrame(rows)
