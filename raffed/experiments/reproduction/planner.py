"""Carrying out a table or figure of the registry: what will run, how long it may take, cell by cell,
resumably.

OUT/runs/SCALE/METHOD-DATASET-MODEL-IDENTITY/    a run; tables that share a cell share its run
OUT/runs/SCALE/study-NAME-sSEED/                 a study (raffed/studies); figures that show the same study
                                                 share it
OUT/PAPER/ITEM/SCALE/item.json                   the item's cells with the runs behind them, where the paper
                                                 prints them, and the folders of its study
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from raffed.config.run import Federation, RunConfig, Runtime
from raffed.errors import NumericsError, UsageError
from raffed.experiments.reproduction.catalogue import chosen
from raffed.experiments.reproduction.items import MEASURES, Cell, Item, lacking
from raffed.experiments.reproduction.scales import SCALES, stages_of
from raffed.results.runfile import RUN_FILE, read_run
from raffed.studies import STUDIES, STUDY_FILE

START_SECONDS = 12.0  # of a run before its first round (README, Measured)
DIVERGED = "diverged"
PROBE_STEPS = 4  # per probe: the first one is slower, a large network needs seconds for each


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What an item needs done. seconds: what is left of it, estimated. left_out: why it will not be done,
    "" if it will.
    """

    seed: int
    folder: Path
    seconds: float = 0.0
    left_out: str = ""

    @property
    def done(self) -> bool:
        """Whether the run or the study is finished."""
        return state_of(self.folder) == "finished"


@dataclass(frozen=True, kw_only=True)
class PlannedRun(Planned):
    """A run, and the cells that it is behind."""

    cells: tuple[Cell, ...]
    config: RunConfig


@dataclass(frozen=True, kw_only=True)
class PlannedStudy(Planned):
    """A study at a scale."""

    study: str
    scale: str


P = TypeVar("P", bound=Planned)


@dataclass(frozen=True)
class Speed:
    """Seconds a local training step and a global evaluation take in one process here."""

    step: float
    evaluation: float


def planned_runs(
    item: Item, scale: str, out: Path, only: Sequence[str], seeds: int, runtime: Runtime | None = None
) -> list[PlannedRun]:
    """The runs of an item, one seed after the other, each once; what cannot run says why."""
    found: dict[Path, PlannedRun] = {}
    for seed in range(seeds):
        for cell in chosen(item, only):
            config = item.at(cell, scale, seed)
            if config is None:
                continue
            config = config if runtime is None else replace(config, runtime=runtime)
            folder = out / "runs" / scale / run_name(config)
            measure = cell.measure or item.measure
            missing = lacking(config) + ([] if measure in MEASURES else [f"measure {measure}"])
            reason = f"missing: {', '.join(missing)}" if missing else ""
            before = found.get(folder)
            cells = (*before.cells, cell) if before else (cell,)
            found[folder] = PlannedRun(cells=cells, seed=seed, config=config, folder=folder, left_out=reason)
    return list(found.values())


def run_name(config: RunConfig) -> str:
    """The folder of a run below its scale; equal runs have equal names."""
    text = f"{config.method}-{config.data.dataset}-{config.data.split}-{config.model.name}-s{config.seed}"
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', text)}-{config.identity()[:10]}"


def state_of(folder: Path) -> str:
    """What run.json or study.json says, "" where there is none."""
    name = next((name for name in (RUN_FILE, STUDY_FILE) if (folder / name).exists()), None)
    return str(read_run(folder, name).get("state")) if name else ""


def study_folder(study: str, scale: str, out: Path, seed: int) -> Path:
    """Where a study of one seed lies; the scale is the folder above, as it is for runs."""
    return out / "runs" / scale / f"study-{study}-s{seed}"


def planned_studies(
    item: Item, scale: str, out: Path, seeds: int, root: str | None = None
) -> list[PlannedStudy]:
    """The item's study, once a seed, with the stated estimate of its time; what is missing for it says
    so. None without one.
    """
    if not item.study:
        return []
    folders = {seed: study_folder(item.study, scale, out, seed) for seed in range(seeds)}
    found = [
        PlannedStudy(seed=seed, folder=folder, study=item.study, scale=scale)
        for seed, folder in folders.items()
    ]
    if all(job.done for job in found):
        return found
    info = STUDIES.get(item.study)
    reason = f"missing: study {item.study}" if info is None else _unreadable(info.data.get(scale, ()), root)
    seconds = 0.0 if info is None else info.seconds[scale]
    return [job if job.done else replace(job, seconds=seconds, left_out=reason) for job in found]


def _unreadable(names: Iterable[str], root: str | None) -> str:
    """Why a data set cannot be read here, "" if all can."""
    from raffed.data.datasets import load_dataset

    for name in names:
        try:
            load_dataset(name, root)
        except UsageError as error:
            return " ".join(str(error).split())
    return ""


def estimated(found: Iterable[PlannedRun], tell: Callable[[str], None]) -> list[PlannedRun]:
    """The jobs with the seconds they may still take, from a probe of each data set and network; data that are
    not there are a reason to leave a job out. A probe trains one client of FedAvg for a few steps: methods
    with extra passes take longer.
    """
    speeds: dict[tuple[Any, ...], Speed | str] = {}
    made = []
    for job in found:
        if job.left_out or job.done:
            made.append(job)
            continue
        data, local = job.config.data, job.config.local
        key = (
            data.dataset,
            data.split,
            data.transform,
            job.config.model.name,
            local.batch_size,
            job.config.runtime.gpu_fraction,
        )
        if key not in speeds:
            tell(f"probing {data.dataset}, {data.split}, {job.config.model.name}")
            speeds[key] = _probed(job.config)
        speed = speeds[key]
        if isinstance(speed, str):
            made.append(replace(job, left_out=speed))
        else:
            made.append(replace(job, seconds=seconds_left(job, speed)))
    return made


def seconds_left(job: PlannedRun, speed: Speed) -> float:
    """T·(participants · mean steps · s per step + evaluations · s), spread over the actors, and what starting
    takes.

    A survey is taken for an evaluation: all clients' test parts together are about as large as the global
    test set.
    """
    from raffed.runtime.setup import prepare_run

    config = job.config
    sizes = prepare_run(config).sizes_at(0)  # stages are alike
    federation = config.federation
    together = federation.participants(len(sizes))
    steps = sum(config.local.steps(n) for n in sizes) / len(sizes)
    evaluations = (
        -(-federation.rounds // federation.eval_every) + min(federation.survey, federation.rounds)
    ) / federation.rounds
    done = int(read_run(job.folder).get("rounds_done", 0)) if (job.folder / RUN_FILE).exists() else 0
    side_by_side = (
        1
        if config.runtime.execution == "serial"
        else min(config.runtime.actors or os.cpu_count() or 1, together)
    )
    a_round = (together * steps * speed.step + evaluations * speed.evaluation) / side_by_side
    return (federation.rounds - done) * a_round + START_SECONDS * (config.runtime.execution != "serial")


def _probed(config: RunConfig) -> Speed | str:
    """The speed of a network on its data here, or why it cannot be run."""
    from raffed.experiments.run import run
    from raffed.runtime.setup import prepare_run

    local = replace(config.local, epochs=1e-6, min_steps=PROBE_STEPS)
    runtime = Runtime(
        execution="serial", gpu_fraction=config.runtime.gpu_fraction, threads=config.runtime.threads
    )
    federation = Federation(rounds=stages_of(config.data.split))
    small = replace(config, method="fedavg", args={}, local=local, runtime=runtime, federation=federation)
    try:
        one = 1 / prepare_run(small).partition.num_clients  # a round
        rows = run(replace(small, federation=replace(federation, participation=one))).to_pandas()
    except UsageError as error:
        return " ".join(str(error).split())
    timed = rows[rows["seconds"].notna()]
    server, client = (timed[timed["model"] == model]["seconds"].iloc[0] for model in ("global", "local"))
    return Speed(float(client) / PROBE_STEPS, max(float(server - client), 0.0))


def finished(found: Sequence[P]) -> list[P]:
    """The jobs, those that are not done left out."""
    return [job if job.done or job.left_out else replace(job, left_out="not finished") for job in found]


def within_budget(found: Sequence[P], seconds: float | None) -> list[P]:
    """The jobs in their order, those that no longer fit into the time left out; a shorter later one may
    still fit.
    """
    left: float | None = seconds
    kept: list[P] = []
    for job in found:
        if left is None or job.left_out or job.done:
            kept.append(job)
        elif job.seconds <= left:
            left -= job.seconds
            kept.append(job)
        else:
            kept.append(replace(job, left_out="does not fit into the budget"))
    return kept


def execute_runs(found: Sequence[P], run: Callable[[P], None], seconds: float | None) -> list[P]:
    """Run what is to run, one after the other; when runs take longer than estimated, what no longer fits is
    left out, and so is what diverges.
    """
    began, spent, planned = time.monotonic(), 0.0, 0.0
    after: list[P] = []
    for job in found:
        if job.left_out or job.done:
            after.append(job)
            continue
        slower = max(spent / planned, 1.0) if planned else 1.0
        if seconds is not None and planned and time.monotonic() - began + slower * job.seconds > seconds:
            after.append(replace(job, left_out="did not fit any more: runs took longer than estimated"))
            continue
        start = time.monotonic()
        try:
            run(job)
        except NumericsError as error:  # others may converge
            job = replace(job, left_out=f"{DIVERGED}: {error}")
        spent, planned = spent + time.monotonic() - start, planned + job.seconds
        after.append(job)
    return after


def progress(item: Item, out: Path) -> dict[str, tuple[int, int]]:
    """Scale → (cells with a finished run of seed 0, cells that the scale has), from the folders alone; a
    study is a cell.
    """
    counts = {}
    for scale in SCALES:
        configs = [item.at(cell, scale) for cell in item.cells]
        folders = [out / "runs" / scale / run_name(config) for config in configs if config is not None]
        folders += [study_folder(item.study, scale, out, 0)] if item.study else []
        counts[scale] = (sum(state_of(folder) == "finished" for folder in folders), len(folders))
    return counts


def state(item: Item, out: Path) -> str:
    """never run, or the largest scale of which anything is finished, with how much of it."""
    counts = progress(item, out)
    for scale in ("full", "proxy", "smoke"):
        done, of = counts[scale]
        if done:
            return scale if done == of else f"{scale} {done}/{of}"
    return "never run"
