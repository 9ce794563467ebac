"""Trials of tuned tables that go on for more rounds, and the checkpoints that they leave behind."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from raffed.commands.running import holds_run
from raffed.errors import UsageError
from raffed.experiments.reproduction.planner import Planned, PlannedRun


def go_on(jobs: Sequence[Planned], accept_changed_code: bool = False) -> None:
    """Begin longer trials from the checkpoints of shorter ones, and delete those that none needs any more.

    A trial whose shorter one has no checkpoint, as in unpacked records, and one of a method whose rounds
    depend on their total number, begin at their first round.

    Args:
        jobs: What is planned.
        accept_changed_code: As in `raffed.extend`.
    """
    from raffed.experiments.checkpoint import CHECKPOINTS, CLIENT_STATES

    trials = [job for job in jobs if isinstance(job, PlannedRun) and job.trial is not None]
    for job in trials:
        if job.shorter is not None and not holds_run(job.folder) and (job.shorter / CHECKPOINTS).is_dir():
            _lengthen(job.shorter, job.folder, job.config.federation.rounds, accept_changed_code)
    for job in trials:
        if job.decided:
            shutil.rmtree(job.folder / CHECKPOINTS, ignore_errors=True)
            shutil.rmtree(job.folder / CLIENT_STATES, ignore_errors=True)


def _lengthen(shorter: Path, folder: Path, rounds: int, accept_changed_code: bool) -> None:
    from raffed.commands.horizon import horizon_of
    from raffed.experiments.going_on import RecordedRun, lengthened
    from raffed.results.lock import LOCK_FILE

    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        shutil.copytree(shorter, part, ignore=shutil.ignore_patterns(LOCK_FILE))
        lengthened(RecordedRun.opened(part, accept_changed_code), rounds, horizon_of)
        part.rename(folder)
    except UsageError:  # the rounds of this method depend on their number
        pass
    finally:
        shutil.rmtree(part, ignore_errors=True)


__all__ = ["go_on"]
