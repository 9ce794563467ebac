"""What a sweep has on the disk: sweep.json, which one process writes, and the runs of its trials.

A run is read for its score, for whether it counts or can be resumed, and for the choice. Runs that can be
neither counted nor resumed are moved aside. Does not use Ray.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from raffed.config.validation import Json
from raffed.errors import RunFolderError, UsageError, writing
from raffed.own.gate import check_inside
from raffed.results import sweep_file
from raffed.results.files import check_tree
from raffed.results.lock import LOCK_FILE, Place, check_unused, make_folder
from raffed.results.runfile import RUN_FILE, SWEEP_FILE, folder_name, has_diverged, read_run, write_json
from raffed.search.request import (
    ACCURACY,
    FAILED,
    FINISHED,
    LONGEST_NAME,
    NEVER_RUN,
    PROTOCOLS,
    PRUNED,
    RUNNING,
    MethodSettings,
    Request,
)

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
Values = Mapping[tuple[str, str], float | None]  # (model, split) → accuracy


def recorded(
    folder: Path, upto: int | None = None, metric: str = ACCURACY
) -> dict[int, dict[tuple[str, str], float | None]]:
    """Return round → {(model, split): value of the server's row} for the evaluated rounds that are written.

    Of rows of several stages the last one counts.

    Args:
        folder: The run's folder.
        upto: The last round that counts; None for all.
        metric: Whose values: the accuracy, or a metric of the user's own.
    """
    import pyarrow.compute as pc

    from raffed.results.writer import read_rows, sorted_rows

    def of_server(table: pa.Table) -> pa.Table:
        whole = pc.and_(pc.is_null(table["client"]), pc.is_null(table["class"]))
        return table.filter(pc.and_(whole, pc.equal(table["metric"].cast("string"), metric)))

    rows = sorted_rows(read_rows(folder, of_server))
    words = (rows[name].cast("string").to_pylist() for name in ("model", "split"))
    values: dict[int, dict[tuple[str, str], float | None]] = {}
    for number, value, model, split in zip(
        rows["round"].to_pylist(), rows["value"].to_pylist(), *words, strict=True
    ):
        if upto is None or number <= upto:
            values.setdefault(number, {})[model, split] = value
    return values


def read_trial(request: Request, folder: Path, known: Trial, error: str | None = None) -> Trial:
    """Return the outcome of a trial's run; its state is "never run" if there is none.

    `known` is the trial as sweep.json records it. `error` says what went wrong when it was run just now.
    """
    trial = Trial(known.name, known.settings, NEVER_RUN, number=known.number, reports=known.reports)
    if not (folder / RUN_FILE).exists():
        return replace(trial, state=FAILED if error else NEVER_RUN, error=error)
    about = read_run(folder)
    rounds = recorded(folder, metric=request.score)
    state = str(about.get("state"))
    done = state == FINISHED and bool(rounds)
    trial = replace(trial, rounds=max(rounds, default=0), seconds=float(about.get("seconds", 0.0)))
    if known.state == PRUNED and not done:
        # The search ended this run on purpose, which the run records as an interruption. Its last rounds may
        # have no rows.
        return replace(trial, state=PRUNED, rounds=max([trial.rounds, *dict(trial.reports)]))
    last = score(request, rounds[max(rounds)]) if done else math.nan
    if state == RUNNING and (error or known.state == FAILED):
        state = FAILED  # its process died before it could write this
    return replace(trial, state=state, score=last, error=about.get("error") or error)


def damage(folder: Path) -> str:
    """Return why the run in a folder can be neither counted nor resumed; empty if it can, or
    without a run.
    """
    from raffed.runs.folder import check_unedited, run_config
    from raffed.runs.integrity import check_finished

    if not os.path.lexists(folder / RUN_FILE):
        rest = folder.is_dir() and any(path.name != LOCK_FILE for path in folder.iterdir())
        return f"{folder}: holds files and no {RUN_FILE}" if rest else ""
    try:
        check_tree(folder)
        check_unedited(folder)
        about = read_run(folder)
        if about["state"] == FINISHED:
            done, wanted = about["rounds_done"], run_config(folder).federation.rounds
            if done != wanted and "ended_early" not in about:
                return f"{folder / RUN_FILE}: finished after {done} of {wanted} rounds"
            check_finished(folder, about)
        recorded(folder)
    except UsageError as error:
        return str(error)
    return "" if about["state"] == FINISHED else _lost_checkpoints(folder, about["files"])


def _lost_checkpoints(folder: Path, files: Mapping[str, str]) -> str:
    """Return why a run that wrote checkpoints has none to resume from; empty if it has one, or wrote
    none yet.
    """
    from raffed.runs.checkpoint import check_checkpoint, checkpoints

    why = ""
    for checkpoint in reversed(checkpoints(folder)):
        try:
            check_checkpoint(checkpoint, files)
        except RunFolderError as error:
            why = why or str(error)
        else:
            return ""
    return why


def put_aside(folder: Path, why: str) -> Path:
    """Move a damaged run from OUT/METHOD/trials/NAME to OUT/METHOD/damaged/NAME and return its new place.

    Nothing is deleted.
    """
    if not (folder / LOCK_FILE).is_symlink():  # a link made by a stranger is moved with the rest
        check_unused(folder)
    place = folder.parents[1] / sweep_file.DAMAGED
    check_inside(folder.parents[1], place)
    place.mkdir(exist_ok=True)
    names = (folder.name if number == 1 else f"{folder.name}-{number}" for number in range(1, 10_000))
    target = next(place / name for name in names if not os.path.lexists(place / name))
    folder.rename(target)
    log.warning("%s. The run was put aside as %s and is run again", why, target)
    return target


@dataclass(frozen=True)
class Trial:
    """One setting with the state, rounds and seconds of its run, and its score.

    The score is a fraction, NaN unless the run is finished. `number` is its place in the order of proposals.
    `reports` holds (round, score) of what a search has learned from it once it ended. `warnings` are those
    that its process gave since it was last shown; they are not recorded.
    """

    name: str
    settings: MethodSettings
    state: str
    rounds: int = 0
    seconds: float = 0.0
    score: float = math.nan
    error: str | None = None
    number: int = 0
    reports: tuple[tuple[int, float], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Return whether there is nothing left to do for it."""
        return self.state in (FINISHED, PRUNED) or self.diverged

    @property
    def diverged(self) -> bool:
        """Return whether its training diverged, as it would each time."""
        return has_diverged(self.state, self.error)

    def as_dict(self) -> sweep_file.TrialRecord:
        """Return plain JSON, with null for a missing score, and reports only if there are any."""
        record: Any = {field.name: getattr(self, field.name) for field in fields(self)}
        del record["warnings"], record["reports"]
        record["score"] = None if math.isnan(self.score) else self.score
        reports = {"reports": [list(pair) for pair in self.reports]} if self.reports else {}
        return cast("sweep_file.TrialRecord", {**record, **reports})

    @staticmethod
    def from_dict(values: sweep_file.TrialRecord) -> Trial:
        """Return the trial that `as_dict` described."""
        score = values.get("score")
        reports = tuple((int(number), value) for number, value in values.get("reports", []))
        build: Callable[..., Trial] = Trial
        return build(**{**values, "score": math.nan if score is None else score, "reports": reports})


def score(request: Request, values: Mapping[tuple[str, str], float | None]) -> float:
    """Return the number that is maximised, from {(model, split): value}; NaN if it was not measured.

    It is a fraction: the accuracy, a metric of the user's own, or 1 minus it if it should be low.
    """
    splits = ("val", "val") if request.protocol == "validation" else ("test", "local_test")
    both = [values.get(("global", splits[0])), values.get(("personal", splits[1]))]
    wanted = {"global": both[:1], "personal": both[1:], "mean": both}[request.select]
    known = [math.nan if value is None else value for value in wanted]
    mean, metric = sum(known) / len(known), request.own_score
    return 1.0 - mean if metric is not None and metric.better == "lower" else mean


def trial_name(settings: Mapping[str, Json]) -> str:
    """Return the name of a trial and of its folder: its settings, in their order.

    A name that is too long ends with its hash.
    """
    text = ",".join(f"{name}={value}" for name, value in settings.items()) or "defaults"
    name = re.sub(r"[^A-Za-z0-9.,=_+-]+", "-", text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 13]}-{digest}"


SweepWatcher = Callable[[str, Trial, int], None]  # method, trial in its present state, rounds of a whole run


# Which of the trials of a method is chosen, and what choosing cost. Does not use Ray.


def choose(trials: Sequence[Trial]) -> Trial | None:
    """Return the finished trial with the highest score, the first of equals; None if none has a score.

    Trials that differ only in the seed count as one, with the mean of their scores, if all of them finished.
    """
    scored = [trial for trial in over_seeds(trials) if not math.isnan(trial.score)]
    return max(scored, key=lambda trial: trial.score) if scored else None


def over_seeds(trials: Sequence[Trial]) -> list[Trial]:
    """Return one trial for each setting without its seed, with the mean score over the seeds.

    Without an axis of seeds these are the trials themselves. A setting of which a seed has no score has none.
    """
    if not any(sweep_file.SEED_AXIS in trial.settings for trial in trials):
        return list(trials)
    together: dict[str, list[Trial]] = {}
    for trial in trials:
        settings = {name: value for name, value in trial.settings.items() if name != sweep_file.SEED_AXIS}
        together.setdefault(trial_name(settings), []).append(replace(trial, settings=settings))
    return [
        replace(
            same[0],
            name=name,
            rounds=sum(trial.rounds for trial in same),
            seconds=sum(trial.seconds for trial in same),
            score=statistics.fmean(trial.score for trial in same),  # of equal scores in any order it is equal
        )
        for name, same in together.items()
    ]


def cost(trials: Sequence[Trial]) -> dict[str, float]:
    """Return the cost of choosing: trials begun, their rounds, and the seconds of their processes."""
    begun = [trial for trial in trials if trial.state != NEVER_RUN]
    return {
        "trials": len(begun),
        "rounds": sum(t.rounds for t in begun),
        "seconds": sum(t.seconds for t in begun),
    }


# The folder of a sweep.


def stored_request(path: Path) -> Request:
    """Return what the sweep in a folder was asked to do.

    Raises:
        RunFolderError: The folder does not say so.
    """
    try:
        return Request.from_dict(sweep_file.read_sweep(path)["request"])
    except RunFolderError:
        raise
    except UsageError as error:
        raise RunFolderError(f"{path / SWEEP_FILE}: {error}; {sweep_file.ADVICE}") from error


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
    begun_with = sweep_file.read_sweep(path).get("optuna")
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
        for name in (sweep_file.TRIALS, sweep_file.FINALS, sweep_file.DAMAGED):
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
        self._about: sweep_file.SweepRecord = {
            "schema": sweep_file.SWEEP_SCHEMA,
            "request": request.as_dict(),
            "meaning": PROTOCOLS[request.protocol],
            "methods": {},
            "state": "running",
        }
        if request.search == "optuna":
            self._about["optuna"] = version("optuna")
        if resume:
            self._about = sweep_file.read_sweep(path)
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
        return self.of(method) / sweep_file.TRIALS / trial_name(settings)

    def final(self, method: str, seed: int) -> Path:
        """Return the folder of a final run."""
        return self.of(method) / sweep_file.FINALS / f"seed-{seed}"

    def finished(self, method: str) -> list[int]:
        """Return the seeds whose final runs were finished when the sweep was last written."""
        return [run["seed"] for run in self._method(method).get("final", []) if run["state"] == FINISHED]

    def note(self, method: str, changes: sweep_file.MethodRecord) -> None:
        """Record changes about a method. If another setting is chosen, the final runs of the old choice no
        longer count.
        """
        before = self._method(method)
        after: sweep_file.MethodRecord = {**before, **changes}
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

    def end(self, state: str) -> sweep_file.SweepRecord:
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

    def _method(self, method: str) -> sweep_file.MethodRecord:
        return self._about["methods"].get(method, {})


def settings_of(about: sweep_file.MethodRecord) -> MethodSettings | None:
    chosen = about.get("chosen")
    return dict(chosen["settings"]) if chosen else None
