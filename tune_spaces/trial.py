"""The trainable: one trial is one federation in a folder of its own, reported to Tune round by round."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune

from raffed.core.config import RunConfig
from raffed.experiments.sweep import Request, recorded, score, trial_name

if TYPE_CHECKING:
    from raffed.experiments.federation import RoundEvent

POINT, SEED = "point", "seed"


@dataclass(frozen=True)
class Task:
    """What all trials of one search share. `folder` holds their runs; `settings`: of final runs, whose axis is the seed."""

    request: Request
    method: str
    folder: str
    settings: Mapping[str, Any] | None = None

    def point(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The setting of a trial: Tune's configuration, or what it holds as one point of a grid that was cut to a budget."""
        return dict(config.get(POINT, config))


def federation(config: dict[str, Any], task: Task) -> None:
    """Run the federation, or go on where an earlier attempt of this trial stopped: to the same bits either way.

    A folder with another run is emptied first: that of a final seed holds the runs of an earlier choice.
    """
    import raffed
    from raffed.results.runfile import RUN_FILE

    point = task.point(config)
    if task.settings is None:
        asked, folder = task.request.config(task.method, point), Path(task.folder) / trial_name(point)
    else:
        asked, folder = task.request.config(task.method, task.settings, point[SEED]), Path(task.folder) / f"seed-{point[SEED]}"

    def watch(event: RoundEvent) -> None:
        values = {("global", "test"): event.accuracy, ("personal", "local_test"): event.personal,
                  ("global", "val"): event.val, ("personal", "val"): event.val_personal}  # fmt: skip
        if any(value is not None for value in values.values()):
            tune.report(_report(task.request, event.round, values))

    if (folder / RUN_FILE).exists() and _other(folder, asked):
        shutil.rmtree(folder)
    if not (folder / RUN_FILE).exists():
        raffed.run(asked, folder, watch=watch)
        return
    for report in _again(task.request, folder):
        tune.report(report)
    raffed.resume(folder, watch=watch, runtime=asked.runtime)


def _other(folder: Path, asked: RunConfig) -> bool:
    """Whether a folder holds another run than the one asked for. Where it ran does not count, nor stacks that a probe chose."""
    from raffed.experiments.folder import run_config
    from raffed.results.runfile import read_run

    kept = run_config(folder)
    if "auto" in read_run(folder):
        asked = replace(asked, numerics=replace(asked.numerics, cohort=kept.numerics.cohort))
    return kept.identity() != asked.identity()


def _again(request: Request, folder: Path) -> Iterator[dict[str, float]]:
    """The reports of the rounds that are done and kept, for a scheduler that counts them."""
    from raffed.results.runfile import read_run

    done = int(read_run(folder).get("rounds_done", 0))
    for number, values in sorted(recorded(folder, upto=done).items()):
        yield _report(request, number, values)


def _report(request: Request, number: int, values: Mapping[tuple[str, str], float | None]) -> dict[str, float]:
    found = score(request, values)
    return {"round": number, "score": -1.0 if math.isnan(found) else found}
