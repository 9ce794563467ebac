"""Execute the planned runs and studies of a table: one after the other, or some in a process each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from raffed.commands.seeds import SeedRun
from raffed.commands.side_by_side import Ending
from raffed.config.run import Runtime
from raffed.experiments.reproduction.planner import (
    DIVERGED,
    Planned,
    PlannedRun,
    PlannedStudy,
    execute_runs,
)
from raffed.runtime.machine import usable_cores

WORTH = 5.0  # estimated seconds of a run from which a process of its own pays


def carried_out(
    jobs: Sequence[Planned], do: Callable[[Planned], None], seconds: float | None
) -> list[Planned]:
    """Do what is planned, with one Ray for all runs that need it, and return all jobs."""
    with _ray([job for job in jobs if isinstance(job, PlannedRun) and not job.left_out and not job.done]):
        return execute_runs(jobs, do, seconds)


def side_by_side(
    jobs: Sequence[Planned],
    execute: Callable[[list[SeedRun]], Mapping[SeedRun, Ending]],
    accept: bool = False,
) -> list[Planned]:
    """Execute the runs in one process each that take long, as many at a time as the cores allow.

    Args:
        jobs: What is planned.
        execute: Executes runs at the same time.
        accept: Whether own code may have changed since runs were begun.

    Returns:
        All jobs. Those that diverged are marked. What is not done is left to `carried_out`.
    """
    long = [job for job in jobs if isinstance(job, PlannedRun) and _worth_a_process(job)]
    if len(long) < 2 or usable_cores() < 2:
        return list(jobs)
    endings = execute([_as_run(job, accept) for job in long])
    lost = {run.folder: one.why for run, one in endings.items() if one.diverged}
    return [
        replace(job, left_out=f"{DIVERGED}: {lost[job.folder]}") if job.folder in lost else job
        for job in jobs
    ]


def _worth_a_process(job: PlannedRun) -> bool:
    serial = job.config.runtime.execution == "serial"
    return serial and not job.left_out and not job.done and job.seconds >= WORTH


def _as_run(job: PlannedRun, accept: bool) -> SeedRun:
    where = ", ".join(dict.fromkeys(" · ".join(cell.place) for cell in job.cells))
    return SeedRun(where, job.config, job.folder, accept)


def execute_planned(
    job: PlannedStudy, root: str | None, runtime: Runtime, tell: Callable[[str, float], None]
) -> None:
    """Execute a study on the CPU, or on the GPU if the runtime has a share of one.

    A study that was interrupted starts again from its beginning the next time.
    """
    from raffed.experiments.reproduction.studies import Work, execute_study

    device = "cuda" if runtime.gpu_fraction else "cpu"
    execute_study(Work(job.study, job.scale, job.seed, job.folder, root, tell, device, runtime.threads))


@contextlib.contextmanager
def _ray(found: Sequence[PlannedRun]) -> Iterator[None]:
    if not any(job.config.runtime.execution == "ray" for job in found):
        yield
        return
    from raffed.runtime.ray_backend.session import RaySession

    with RaySession(found[0].config.runtime.address) as session:
        session.wait()
        yield


__all__ = ["carried_out", "execute_planned", "side_by_side"]
