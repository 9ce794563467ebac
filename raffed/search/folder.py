"""The folder of a sweep: sweep.json, which one process writes, and the places of the runs. Does not
use Ray.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from raffed.config.validation import Json
from raffed.errors import RunFolderError, UsageError, writing
from raffed.own.gate import check_inside
from raffed.results.lock import make_folder
from raffed.results.runfile import SWEEP_FILE, folder_name, write_json
from raffed.results.sweep_file import (
    ADVICE,
    DAMAGED,
    FINALS,
    SWEEP_SCHEMA,
    TRIALS,
    MethodRecord,
    SweepRecord,
    read_sweep,
)
from raffed.runs.folder_place import Place
from raffed.search.request import FINISHED, PROTOCOLS, MethodSettings, Request
from raffed.search.trials import Trial, trial_name


def stored_request(path: Path) -> Request:
    """Return what the sweep in a folder was asked to do.

    Raises:
        RunFolderError: The folder does not say so.
    """
    try:
        return Request.from_dict(read_sweep(path)["request"])
    except RunFolderError:
        raise
    except UsageError as error:
        raise RunFolderError(f"{path / SWEEP_FILE}: {error}; {ADVICE}") from error


def check_place(path: Path, request: Request, resume: bool) -> None:
    """Refuse a folder that cannot take this sweep.

    A new sweep needs a free folder, and a resumed one needs its own. Links through which the sweep would
    write outside the folder are refused too. Nothing is written.
    """
    if resume:
        if not stored_request(path).same(request):
            raise RunFolderError(
                f"{path / SWEEP_FILE}: holds another sweep; --resume needs the same request, or none"
            )
        _check_links(path, request.methods)
        _check_optuna(path)
    elif path.exists() and (not path.is_dir() or any(path.iterdir())):
        advice = "--resume continues it" if (path / SWEEP_FILE).exists() else "choose another --out"
        raise RunFolderError(f"{path} is not an empty folder; {advice}")


def _check_optuna(path: Path) -> None:
    """Refuse to resume a search whose settings were proposed by another major version of Optuna."""
    begun_with = read_sweep(path).get("optuna")
    if begun_with is None:
        return
    installed, major = version("optuna"), begun_with.split(".")[0]
    if installed.split(".")[0] != major:
        raise RunFolderError(
            f"{path / SWEEP_FILE}: its settings were proposed by Optuna {begun_with}, and Optuna "
            f"{installed}, which is installed, has other defaults; resume it with 'optuna=={major}.*', or "
            "start a new sweep"
        )


def _check_links(path: Path, methods: Sequence[str]) -> None:
    for method in methods:
        method_folder = path / folder_name(method)
        check_inside(path, method_folder)
        for name in (TRIALS, FINALS, DAMAGED):
            folder = method_folder / name
            check_inside(path, folder)
            for run in folder.iterdir() if folder.is_dir() else ():
                check_inside(path, run)


class SweepFolder:
    """The folder OUT of a sweep.

    A new sweep needs a free folder. With `resume`, the folder must hold the sweep that is asked for.
    """

    def __init__(self, path: Path, request: Request, resume: bool) -> None:
        check_place(path, request, resume)
        self.path, self.request = path, request
        self._about: SweepRecord = {
            "schema": SWEEP_SCHEMA,
            "request": request.as_dict(),
            "meaning": PROTOCOLS[request.protocol],
            "methods": {},
            "state": "running",
        }
        if request.search == "optuna":
            self._about["optuna"] = version("optuna")
        if resume:
            self._about = read_sweep(path)
            self._about["state"] = "running"
        make_folder(path)
        self._place = Place(path)
        with writing(path):
            self.write()

    def of(self, method: str) -> Path:
        """Return the folder of a method's runs."""
        return self.path / folder_name(method)

    def trial(self, method: str, settings: Mapping[str, Json]) -> Path:
        """Return the folder of a trial's run."""
        return self.of(method) / TRIALS / trial_name(settings)

    def final(self, method: str, seed: int) -> Path:
        """Return the folder of a final run."""
        return self.of(method) / FINALS / f"seed-{seed}"

    def finished(self, method: str) -> list[int]:
        """Return the seeds whose final runs were finished when the sweep was last written."""
        return [run["seed"] for run in self._method(method).get("final", []) if run["state"] == FINISHED]

    def note(self, method: str, changes: MethodRecord) -> None:
        """Record changes about a method. If another setting is chosen, the final runs of the old choice no
        longer count.
        """
        before = self._method(method)
        after: MethodRecord = {**before, **changes}
        if settings_of(after) != settings_of(before) and "final" not in changes:
            after.pop("final", None)
        self._about["methods"][method] = after
        self.write()

    def trials(self, method: str) -> list[Trial]:
        """Return the known trials of a method, in the order of their numbers."""
        trials = [Trial.from_dict(record) for record in self._method(method).get("trials", [])]
        return sorted(trials, key=lambda trial: trial.number)

    def record(self, method: str, trial: Trial) -> None:
        """Record the state of a trial, in place of its earlier record."""
        trials = {known.number: known for known in self.trials(method)} | {trial.number: trial}
        self.note(method, {"trials": [trials[number].as_dict() for number in sorted(trials)]})

    def chosen(self, method: str) -> MethodSettings | None:
        """Return the setting that was chosen for a method; None if there is none."""
        return settings_of(self._method(method))

    def end(self, state: str) -> SweepRecord:
        """Mark the sweep as finished or stopped, and return the contents of sweep.json."""
        self._about["state"] = state
        self.write()
        return self._about

    def write(self) -> None:
        """Bring sweep.json up to date, in one step.

        Raises:
            OSError: The folder cannot be written, or another folder has its name now.
        """
        self._place.check()
        write_json(self.path / SWEEP_FILE, self._about)

    def _method(self, method: str) -> MethodRecord:
        return self._about["methods"].get(method, {})


def settings_of(about: MethodRecord) -> MethodSettings | None:
    chosen = about.get("chosen")
    return dict(chosen["settings"]) if chosen else None
