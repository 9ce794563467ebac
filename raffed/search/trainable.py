"""The trainable of Ray Tune: one trial is one run in a folder of its own, reported to Tune round by round."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ray import tune

from raffed.config.run import RunConfig
from raffed.config.validation import Json, table_of
from raffed.errors import RunFolderError
from raffed.own.carried import RunCode
from raffed.own.gate import check_inside
from raffed.results.command_line import command_line, work_for
from raffed.results.sweep_file import SWEEP_FILE
from raffed.runs.folder_place import A_SWEEP, gone
from raffed.runs.handing_on import handed_on
from raffed.runtime.ray.same_code import CodeVersions, check_same
from raffed.search.events import with_warnings
from raffed.search.request import ACCURACY, Request
from raffed.search.trials import damage, is_run_of, put_aside, recorded, score, trial_name

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent

TRIAL, NUMBER, SETTINGS, SEED = (
    "trial",
    "number",
    "settings",
    "seed",
)  # keys of Tune's configuration: {TRIAL: {NUMBER, SETTINGS}}, or {SEED} for final runs


@dataclass(frozen=True)
class TrialTask:
    """What all trials of one search share.

    `folder` holds their runs. `settings` are those of final runs, whose axis is the seed. `code` is the
    user's own, which a trial's process installs. `command` is the command that the sweep belongs to. `sent`
    is the code that the process of a trial must have; None if it cannot differ.
    """

    request: Request
    method: str
    folder: str
    settings: Mapping[str, Json] | None = None
    code: RunCode = field(default_factory=RunCode)
    accept_changed_code: bool = False
    command: str = field(default_factory=command_line)
    sent: CodeVersions | None = None

    def run(self, config: Mapping[str, Json]) -> tuple[RunConfig, Path]:
        """Return the run of one of Tune's configurations, and its folder."""
        if self.settings is None:
            settings = table_of(table_of(config[TRIAL])[SETTINGS])
            return self.request.config(self.method, settings), Path(self.folder) / trial_name(settings)
        seed = int(str(config[SEED]))
        return self.request.config(self.method, self.settings, seed), Path(self.folder) / f"seed-{seed}"


def federation(config: dict[str, Json], task: TrialTask) -> None:
    """Execute the run of a trial, or continue it where an earlier attempt stopped.

    The result has the same bits either way. A final run of an earlier choice is replaced. A run that turns
    out to be damaged is moved aside and executed again.
    """
    warned: list[str] = []  # nobody sees the standard error of a trial's process
    with handed_on(warned.append):
        execute_trial(config, task, warned)


def execute_trial(config: dict[str, Json], task: TrialTask, warned: list[str]) -> None:
    """Execute the run of a trial. Each report takes along the warnings that came before it."""
    from raffed.results.runfile import RUN_FILE
    from raffed.runs.run import resume, run

    check_same(task.sent)
    work_for(task.command)
    asked, folder = task.run(config)

    def watch(event: RoundEvent) -> None:
        if values := _values(task.request.score, event):
            tune.report(with_warnings(_report(task.request, event.round, values), warned))

    check_sweep(folder.parents[2])
    make_room(folder, asked, final=task.settings is not None)
    if not (folder / RUN_FILE).exists():
        run(asked, folder, watch=watch)
        return
    for report in _again(task.request, folder):
        tune.report(with_warnings(report, warned))
    try:
        resume(
            folder,
            watch=watch,
            runtime=asked.runtime,
            accept_changed_code=task.accept_changed_code,
        )
    except RunFolderError:
        why = damage(folder)
        if not why:
            raise
        put_aside(folder, why)
        run(asked, folder, watch=watch)


def check_sweep(sweep: Path) -> None:
    """Refuse to begin a trial of a sweep whose folder is gone, because the trial would make it again.

    Raises:
        FolderLostError: The folder has no sweep.json.
    """
    if not (sweep / SWEEP_FILE).exists():
        raise gone(sweep, A_SWEEP)


def _values(score: str, event: RoundEvent) -> dict[tuple[str, str], float | None]:
    """Return (model, split) → value of what is scored; empty in a round without it."""
    if score != ACCURACY:
        return _own_values(score, event)
    values = {
        ("global", "test"): event.accuracy,
        ("personal", "local_test"): event.personal,
        ("global", "val"): event.val,
        ("personal", "val"): event.val_personal,
    }
    return values if any(value is not None for value in values.values()) else {}


def _own_values(score: str, event: RoundEvent) -> dict[tuple[str, str], float | None]:
    """Return (model, split) → value of one of the user's own metrics."""
    named = ((key.split(" "), value) for key, value in event.metrics.items())
    return {(model, split): value for (model, split, name), value in named if name == score}


def make_room(folder: Path, asked: RunConfig, final: bool) -> None:
    """Leave in a folder the run that is asked for, or nothing.

    A damaged run, or that of another trial or seed, is moved aside. A final run of an earlier choice is
    deleted.
    """
    from raffed.results.runfile import RUN_FILE
    from raffed.runs.folder import run_config

    check_inside(folder.parent, folder)
    if why := damage(folder):
        put_aside(folder, why)
    elif (folder / RUN_FILE).exists() and not is_run_of(folder, asked):
        if final and not folder.is_symlink() and run_config(folder).seed == asked.seed:
            shutil.rmtree(folder)
        else:
            put_aside(folder, f"{folder}: holds another run")


def _again(request: Request, folder: Path) -> Iterator[dict[str, float]]:
    """Yield the reports of the rounds that are done and kept, for a scheduler that counts them."""
    from raffed.results.runfile import read_run

    done = int(read_run(folder).get("rounds_done", 0))
    for number, values in sorted(recorded(folder, upto=done, metric=request.score).items()):
        yield _report(request, number, values)


def _report(
    request: Request, number: int, values: Mapping[tuple[str, str], float | None]
) -> dict[str, float]:
    found = score(request, values)
    return {"round": number, "score": -1.0 if math.isnan(found) else found}
