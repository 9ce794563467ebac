"""What a sweep chose, at what cost, and how good the choice is: sweep.json and the runs beside it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from .comparable import judge
from .groups import Group
from .load import Runs, read_runs, section
from .measures import measures
from .sheet import Sheet, without_blank
from .stats import t_interval

NOTES = {
    "validation": "Settings were chosen on a validation part of the clients' training data, never on test data; the accuracies "
    "are those of the chosen setting run again with fresh seeds (mean ± 95 % t-interval).",
    "paper": "Protocol of the papers: settings chosen by test accuracy, and that very accuracy reported. Optimistic.",
}


class Sweep(NamedTuple):
    """A folder with a sweep.json, and what that holds."""

    folder: Path
    about: Mapping[str, Any]

    @property
    def protocol(self) -> str:
        return str(section(self.about, "request").get("protocol"))

    @property
    def methods(self) -> Mapping[str, Any]:
        return section(self.about, "methods")


def find_sweeps(paths: Iterable[Path | str]) -> list[Sweep]:
    """The sweeps at or below `paths`; a damaged sweep.json is passed over."""
    found = {}
    for path in map(Path, paths):
        for folder, below, names in os.walk(path):
            below[:] = sorted(set(below) - {"metrics", "checkpoints"})
            if "sweep.json" in names:
                below.clear()
                try:
                    about = json.loads((Path(folder) / "sweep.json").read_text(encoding="utf-8"))
                except (OSError, ValueError, RecursionError):
                    continue
                if isinstance(about, dict):
                    found[Path(folder).resolve()] = Sweep(Path(folder), about)
            if "run.json" in names:
                below.clear()
    return list(found.values())


def trials_of(runs: Runs, sweeps: Iterable[Sweep]) -> list[str]:
    """The runs that a setting was chosen from. They are no result beside the chosen setting's final runs, which are with the
    papers' protocol the chosen trial; while there is no other run, there is nothing to keep them from, and none is named."""
    places = {}
    for sweep in sweeps:
        for method in sweep.methods:
            chosen = section(section(sweep.methods, method), "chosen").get("name") if sweep.protocol == "paper" else None
            places[(sweep.folder / method / "trials").resolve()] = chosen
    folders = {str(name): Path(folder).resolve() for name, folder in runs.runs["folder"].items()}
    found = [name for name, folder in folders.items() if folder.parent in places and folder.name != places[folder.parent]]
    return found if len(found) < len(folders) else []


def tuning_sheet(sweep: Sweep, runs: Runs | None = None) -> Sheet:
    """Method, chosen setting, trials of the budget, cost of choosing, score it was chosen by, and the final accuracies."""
    finals = read_runs([sweep.folder]) if runs is None else runs
    titles = ["Method", "Chosen", "Trials", "Failed", "Rounds to choose", "Hours to choose", _score_title(sweep), "Seeds",
              "Aggregation %", "Personalization %"]  # fmt: skip
    said = _comparable(sweep, finals)
    lines = [[*_line(sweep, name, about, finals), said.get(name, "–")] for name, about in sweep.methods.items()]
    return without_blank(Sheet([*titles, "Comparable"], lines, frozenset({"Method", "Chosen", "Comparable"})), {"Comparable"})


def _comparable(sweep: Sweep, runs: Runs) -> dict[str, str]:
    """Method → what is to be said of comparing its final runs with the others'; nothing where all may be compared."""
    found = {method: _final_names(sweep, method, about, runs) for method, about in sweep.methods.items()}
    members = [Group(method, str(runs.runs.at[names[0], "dataset"]), str(runs.runs.at[names[0], "partition"]), tuple(names), "")
               for method, names in found.items() if names]  # fmt: skip
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
        method, settings_text(chosen.get("settings")), f"{cost.get('trials', 0):.0f}/{about.get('budget', 0)}", str(failed),
        f"{cost.get('rounds', 0):.0f}", f"{cost.get('seconds', 0) / 3600:.3f}", _percent([chosen.get("score")]),
        str(len(scores)), _percent(scores["accuracy_last"]), _percent(scores["personal_last"]),
    ]  # fmt: skip


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
