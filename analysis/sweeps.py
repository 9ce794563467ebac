"""What a sweep chose, at what cost, and how good the choice is: sweep.json and the runs beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from raffed.results.sweep_file import DAMAGED, FINALS, SWEEP_FILE, TRIALS, read_sweep

from .metrics.intervals import t_interval
from .metrics.measures import measures
from .runs.comparable import judge
from .runs.groups import Group
from .runs.load import Runs, read_runs, section
from .table import TextTable, without_blank

NOTES = {
    "validation": "Settings were chosen on a validation part of the clients' training data, never on test data; the accuracies "  # noqa: E501
    "are those of the chosen setting run again with fresh seeds (mean ± 95 % t-interval).",
    "paper": (
        "Protocol of the papers: settings chosen by test accuracy, and that very accuracy reported. "
        "Optimistic."
    ),
}


class Sweep(NamedTuple):
    """A folder with a sweep.json, and what that holds. damage: why it cannot be read, where it cannot; it
    then holds nothing.
    """

    folder: Path
    about: Mapping[str, Any]
    damage: str = ""

    @property
    def protocol(self) -> str:
        return str(section(self.about, "request").get("protocol"))

    @property
    def methods(self) -> Mapping[str, Any]:
        return section(self.about, "methods")


def find_sweeps(paths: Iterable[Path | str]) -> list[Sweep]:
    """The sweeps at or below `paths`, and those that hold one of them; also those whose sweep.json is
    damaged or missing.
    """
    found = {}
    for path in map(Path, paths):
        for folder, below, names in os.walk(path):
            below[:] = sorted(set(below) - {"metrics", "checkpoints"})
            if SWEEP_FILE in names or SWEEP_FILE in below:
                below.clear()
                found[Path(folder).resolve()] = _read(Path(folder))
            if {TRIALS, FINALS} <= set(below):  # the folder of a method
                home = Path(folder).resolve().parent
                found.setdefault(home, _read(home))
            if "run.json" in names:
                below.clear()
    return list(found.values())


def _read(folder: Path) -> Sweep:
    try:
        return Sweep(folder, read_sweep(folder))
    except ValueError as error:
        return Sweep(folder, {}, str(error).removeprefix(f"{folder / SWEEP_FILE}: "))


def damaged_sweeps(sweeps: Iterable[Sweep]) -> dict[str, str]:
    """The path of every sweep.json that cannot be read → what is wrong, and what that means for a report."""
    then = "what was chosen is not known, and of its runs the final ones alone count as results"
    return {str(sweep.folder / SWEEP_FILE): f"{sweep.damage}; {then}" for sweep in sweeps if sweep.damage}


def trials_of(runs: Runs, sweeps: Iterable[Sweep]) -> list[str]:
    """The runs that a setting was chosen from, known by their places. They are no result beside the chosen
    setting's final runs, which are with the papers' protocol the chosen trial; while there is no other run,
    there is nothing to keep them from, and none is named. Runs that were put aside as damaged are never a
    result.
    """
    places = {sweep.folder.resolve(): sweep for sweep in sweeps}
    folders = {str(name): Path(folder).resolve() for name, folder in runs.runs["folder"].items()}
    found = []
    for name, folder in folders.items():
        if folder.parent.name in (TRIALS, DAMAGED) and len(folder.parents) > 2:
            sweep = places.get(folder.parents[2]) or _home(folder)
            if sweep is not None and folder != _result(sweep, folder.parents[1].name):
                found.append(name)
    return found if len(found) < len(folders) else []


def _home(folder: Path) -> Sweep | None:
    """The sweep of a trial's run, where another place below that sweep was named for the report."""
    home = folder.parents[2]
    return _read(home) if os.path.lexists(home / SWEEP_FILE) else None


def _result(sweep: Sweep, method: str) -> Path | None:
    """The folder of the trial that is a result: with the papers' protocol the chosen one."""
    chosen = section(section(sweep.methods, method), "chosen").get("name")
    return (
        (sweep.folder / method / TRIALS / str(chosen)).resolve()
        if sweep.protocol == "paper" and chosen is not None
        else None
    )


def tuning_sheet(sweep: Sweep, runs: Runs | None = None) -> TextTable:
    """Method, chosen setting, trials of the budget, cost of choosing, score it was chosen by, and the
    final accuracies.
    """
    finals = read_runs([sweep.folder]) if runs is None else runs
    titles = [
        "Method",
        "Chosen",
        "Trials",
        "Failed",
        "Rounds to choose",
        "Hours to choose",
        _score_title(sweep),
        "Seeds",
        "Aggregation %",
        "Personalization %",
    ]
    said = _comparable(sweep, finals)
    lines = [
        [*_line(sweep, name, about, finals), said.get(name, "–")] for name, about in sweep.methods.items()
    ]
    return without_blank(
        TextTable([*titles, "Comparable"], lines, frozenset({"Method", "Chosen", "Comparable"})),
        {"Comparable"},
    )


def _comparable(sweep: Sweep, runs: Runs) -> dict[str, str]:
    """Method → what is to be said of comparing its final runs with the others'; nothing where all may be
    compared.
    """
    found = {method: _final_names(sweep, method, about, runs) for method, about in sweep.methods.items()}
    members = [
        Group(
            method,
            str(runs.runs.at[names[0], "dataset"]),
            str(runs.runs.at[names[0], "partition"]),
            tuple(names),
            "",
        )
        for method, names in found.items()
        if names
    ]
    return {label: one.against for label, one in judge(runs, members).items() if one.against}


def _score_title(sweep: Sweep) -> str:
    select = section(sweep.about, "request").get("select")
    return f"{'Test' if sweep.protocol == 'paper' else 'Validation'} ({select}) %"


def _line(sweep: Sweep, method: str, about: Mapping[str, Any], runs: Runs) -> list[str]:
    trials, cost = about.get("trials") or [], section(about, "cost")
    chosen = about.get("chosen") or {}
    failed = sum(trial.get("state") == "failed" for trial in trials)
    scores = _final_scores(sweep, method, about, runs)
    return [
        method,
        settings_text(chosen.get("settings")),
        f"{cost.get('trials', 0):.0f}/{about.get('budget', 0)}",
        str(failed),
        f"{cost.get('rounds', 0):.0f}",
        f"{cost.get('seconds', 0) / 3600:.3f}",
        _percent([chosen.get("score")]),
        str(len(scores)),
        _percent(scores["accuracy_last"]),
        _percent(scores["personal_last"]),
    ]


def _final_scores(sweep: Sweep, method: str, about: Mapping[str, Any], runs: Runs) -> pd.DataFrame:
    """Rows: final runs; columns of measures()."""
    return measures(runs).loc[_final_names(sweep, method, about, runs), ["accuracy_last", "personal_last"]]


def _final_names(sweep: Sweep, method: str, about: Mapping[str, Any], runs: Runs) -> list[str]:
    """The final runs of a method; with the papers' protocol the chosen trial."""
    wanted = {(sweep.folder / str(one.get("folder"))).resolve() for one in about.get("final") or []}
    if sweep.protocol == "paper" and about.get("chosen"):
        wanted = {(sweep.folder / method / "trials" / str(about["chosen"].get("name"))).resolve()}
    return [str(name) for name, folder in runs.runs["folder"].items() if Path(folder).resolve() in wanted]


def settings_text(settings: object) -> str:
    """`mu1=0.01, mu2=0.1`; a dash where nothing was chosen."""
    if not isinstance(settings, Mapping):
        return "–"
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "defaults"


def _percent(values: Sequence[Any] | pd.Series[Any]) -> str:
    known = [float(value) for value in values if value is not None and not math.isnan(value)]
    if not known:
        return "–"
    half = t_interval(known)
    mean = sum(known) / len(known)
    return f"{100 * mean:.2f}" if math.isnan(half) else f"{100 * mean:.2f} ± {100 * half:.2f}"


def trials_frame(about: Mapping[str, Any]) -> pd.DataFrame:
    """One row a scored trial of a method: its settings as columns, and `score`, a fraction."""
    trials = [trial for trial in about.get("trials") or [] if trial.get("score") is not None]
    return pd.DataFrame([{**section(trial, "settings"), "score": trial["score"]} for trial in trials])
