"""The runs of a sweep's trials on the disk: scores, whether they count or can be resumed, and the choice.

Runs that can be neither counted nor resumed are moved aside.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raffed.config.run import RunConfig
from raffed.config.validation import Json
from raffed.errors import RunFolderError, UsageError
from raffed.own.gate import check_inside
from raffed.results.files import check_tree
from raffed.results.lock import LOCK_FILE, check_unused
from raffed.results.runfile import RUN_FILE, has_diverged, read_run
from raffed.results.sweep_file import DAMAGED, SEED_AXIS, TrialRecord
from raffed.search.request import (
    ACCURACY,
    FAILED,
    FINISHED,
    LONGEST_NAME,
    NEVER_RUN,
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


def is_run_of(folder: Path, asked: RunConfig) -> bool:
    """Return whether a folder holds the run that is asked for. Where it was computed does not count."""
    from raffed.runs.folder import run_config

    return run_config(folder).identity() == asked.identity()


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
    place = folder.parents[1] / DAMAGED
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

    def as_dict(self) -> TrialRecord:
        """Return plain JSON, with null for a missing score, and reports only if there are any."""
        known: Any = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "warnings"}
        known |= {"score": None if math.isnan(self.score) else self.score}
        known |= {"reports": [list(pair) for pair in self.reports]}
        if not self.reports:
            del known["reports"]
        record: TrialRecord = known
        return record

    @staticmethod
    def from_dict(values: TrialRecord) -> Trial:
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
    if not any(SEED_AXIS in trial.settings for trial in trials):
        return list(trials)
    together: dict[str, list[Trial]] = {}
    for trial in trials:
        settings = {name: value for name, value in trial.settings.items() if name != SEED_AXIS}
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
