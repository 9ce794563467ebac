"""Plan and execute a table or figure, cell by cell: what will run, and how long it may take. It can be
resumed.

OUT/runs/SCALE/METHOD-DATASET-MODEL-IDENTITY/    a run; tables that share a cell share its run
OUT/runs/SCALE/study-NAME-sSEED/                 a study; figures that show it share it
OUT/PAPER/ITEM/SCALE/item.json                   the item's cells with the runs behind them, where the paper
                                                 prints them, and the folders of its study
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.errors import FolderInUseError, NumericsError, RunFolderError, UsageError
from raffed.methods.authors import is_authors
from raffed.results.runfile import RUN_FILE, folder_name, read_object, read_run
from raffed.tables.catalogue import chosen
from raffed.tables.items import STUDY_FILE, Cell, Claim, Item, studies
from raffed.tables.search import Setting, read_outcome

# Tables whose runs compute in another way: in stacks, with other bits, or with other convolutions.


FINISHED = "finished"


def computed(
    item: Item, cohort: int | None = None, bits: str | None = None, convolutions: str | None = None
) -> Item:
    """Return an item all of whose runs compute in this way. None leaves what the table says.

    Args:
        item: A table. Its studies do not change.
        cohort: Most clients that are stacked and stepped together; 0: one client after the other.
        bits: "machine", or "portable" for bits that hold on other processors too.
        convolutions: "torch", or "compiled" for raffed's own kernel.

    Raises:
        UsageError: A value does not exist, or the item is a study only, which has no runs that could change.
    """
    asked = {"numerics.cohort": cohort, "numerics.bits": bits, "numerics.convolutions": convolutions}
    changes = {name: value for name, value in asked.items() if value is not None}
    if not item.cells and RunConfig().changed(changes) != RunConfig():
        said = ", ".join(f"{name} = {value!r}" for name, value in changes.items())
        why = "which is a study without runs"
        raise UsageError(f"{said} has no effect on {item.key}, {why}; leave it out")
    cells = [replace(cell, config=cell.config.changed(changes)) for cell in item.cells]
    return replace(item, cells=tuple(cells))


def finished_otherwise(config: RunConfig, there: Iterable[Path]) -> Path | None:
    """Return a finished run of the same settings that was computed in another way.

    Such a run differs by rounding only, because it trained in stacks of another size, on a GPU, with more
    threads, with bits that hold on other processors, or with other convolutions. So a table can be begun on
    one machine and go on at another.

    Args:
        config: The run that is asked for.
        there: Folders that may hold it.
    """
    wanted = _plain(config).identity()
    return next((folder for folder in there if _finished_as(folder) == wanted), None)


def _finished_as(folder: Path) -> str:
    """Return the identity that a finished run would have on a core of the CPU; "" if there is none."""
    with contextlib.suppress(UsageError, RunFolderError):  # a damaged neighbour is not the run
        record = read_run(folder) if (folder / RUN_FILE).exists() else {}
        if record.get("state") == FINISHED:
            return _plain(RunConfig.from_dict(record["config"])).identity()
    return ""


def _plain(config: RunConfig) -> RunConfig:
    """Return the same run, one client after the other on a core of the CPU, as torch computes it there."""
    plain = replace(config.numerics, cohort=0, bits="machine", convolutions="torch")
    return replace(config, numerics=plain, runtime=Runtime())


DIVERGED = "diverged"
ELSEWHERE = "another command works on it"
OVER_BUDGET = "does not fit into the budget"
ITEM_FILE = "item.json"


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A run or a study that an item needs.

    `seconds` is the estimated time left. `left_out` says why it will not be done; it is "" if it will.
    """

    seed: int
    folder: Path
    seconds: float = 0.0
    left_out: str = ""

    @property
    def done(self) -> bool:
        """Return whether the run or the study is finished."""
        return state_of(self.folder) == "finished"


@dataclass(frozen=True, kw_only=True)
class PlannedRun(Planned):
    """A run, and the cells that need it.

    Attributes:
        trial: The setting of a run that only serves to choose one; None if the run is a result.
        shorter: Folder of the same trial with fewer rounds, from which this one may go on.
        decided: Whether it is known which of the trials of this length go on.
    """

    cells: tuple[Cell, ...]
    config: RunConfig
    trial: Setting | None = None
    shorter: Path | None = None
    decided: bool = False


@dataclass(frozen=True, kw_only=True)
class PlannedStudy(Planned):
    """A study to be executed at a scale."""

    study: str
    scale: str


def is_trial(job: Planned) -> bool:
    """Return whether a job only serves to choose a setting."""
    return isinstance(job, PlannedRun) and job.trial is not None


def unchosen(jobs: Iterable[Planned]) -> int:
    """Return the number of cells whose setting is still to be chosen by trials."""
    places: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for job in jobs:
        if isinstance(job, PlannedRun):
            places[is_trial(job)] |= {(cell.row, cell.column) for cell in job.cells}
    return len(places[True] - places[False])


P = TypeVar("P", bound=Planned)


def planned_runs(
    item: Item, scale: str, out: Path, only: Sequence[str], seeds: int, runtime: Runtime | None = None
) -> list[PlannedRun]:
    """Return the runs of an item, one seed after the other, each once. What cannot run says why."""
    by_folder: dict[Path, PlannedRun] = {}
    below = out / "runs" / scale
    there = _names(below)
    for seed in range(seeds):
        for cell in chosen(item, only):
            config = item.at(cell, scale, seed)
            if config is None:
                continue
            config = config if runtime is None else replace(config, runtime=runtime)
            folder = run_folder(config, below, there)
            before = by_folder.get(folder)
            cells = (*before.cells, cell) if before else (cell,)
            by_folder[folder] = PlannedRun(cells=cells, seed=seed, config=config, folder=folder)
    return list(by_folder.values())


def run_folder(config: RunConfig, below: Path, there: Sequence[str]) -> Path:
    """Return the folder of a run among `there`, the names below its scale.

    A run that is finished counts also if it was computed in another way, such as in stacks or on a GPU.
    """
    folder = below / run_name(config)
    others = [below / name for name in there if name.startswith(f"{_label(config)}-") and name != folder.name]
    if not others or state_of(folder) == "finished":
        return folder
    return finished_otherwise(config, others) or folder


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def run_name(config: RunConfig) -> str:
    """Return the name of a run's folder below its scale. Equal runs have equal names."""
    return f"{_label(config)}-{config.identity()[:10]}"


def _label(config: RunConfig) -> str:
    """Return what the name of a run's folder begins with. It takes much less time than the whole name."""
    method = folder_name(config.method) if is_authors(config.method) else config.method
    text = f"{method}-{config.data.dataset}-{config.data.split}-{config.model.name}-s{config.seed}"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def state_of(folder: Path) -> str:
    """Return the state in run.json or study.json; "" if there is none."""
    name = next((name for name in (RUN_FILE, STUDY_FILE) if (folder / name).exists()), None)
    return str(read_object(folder, name).get("state")) if name else ""


def study_folder(study: str, scale: str, out: Path, seed: int) -> Path:
    """Return the folder of a study with one seed. The scale is the folder above, as for runs."""
    return out / "runs" / scale / f"study-{study}-s{seed}"


def planned_studies(
    item: Item, scale: str, out: Path, seeds: int, root: str | None = None
) -> list[PlannedStudy]:
    """Return the item's study, once for each seed, with the stated estimate of its time; empty without a
    study.

    What is missing for it says so.
    """
    if not item.study:
        return []
    folders = {seed: study_folder(item.study, scale, out, seed) for seed in range(seeds)}
    jobs = [
        PlannedStudy(seed=seed, folder=folder, study=item.study, scale=scale)
        for seed, folder in folders.items()
    ]
    if all(job.done for job in jobs):
        return jobs
    info = studies()[item.study]
    reason = _unreadable(info.data.get(scale, ()), root)
    return [job if job.done else replace(job, seconds=info.seconds[scale], left_out=reason) for job in jobs]


def _unreadable(names: Iterable[str], root: str | None) -> str:
    """Return why a data set cannot be read here; "" if all can."""
    from raffed.data.datasets import load_dataset

    for name in names:
        try:
            load_dataset(name, root)
        except UsageError as error:
            return " ".join(str(error).split())
    return ""


def finished(jobs: Sequence[P]) -> list[P]:
    """Mark the jobs that are not done as left out, and return all jobs."""
    return [job if job.done or job.left_out else replace(job, left_out=_unfinished(job)) for job in jobs]


def _unfinished(job: Planned) -> str:
    """Return why a job is not finished: its training diverged, or it has not come to its end."""
    outcome = read_outcome(job.folder)
    return f"{DIVERGED}: {outcome.error}" if outcome.diverged else "not finished"


def within_budget(jobs: Sequence[P], seconds: float | None) -> list[P]:
    """Mark the jobs that no longer fit into the time as left out, and return all jobs in their order.

    A later job that is shorter may still fit.
    """
    left: float | None = seconds
    kept: list[P] = []
    for job in jobs:
        if left is None or job.left_out or job.done:
            kept.append(job)
        elif job.seconds <= left:
            left -= job.seconds
            kept.append(job)
        else:
            kept.append(replace(job, left_out=OVER_BUDGET))
    return kept


def claims_first(item: Item, jobs: Sequence[Planned], seconds: float) -> tuple[list[Planned], list[Claim]]:
    """Fill a time with whole claims in the item's order, and what is left of it with other jobs.

    A claim of which only some runs are finished says nothing, so the runs of a claim that does not fit wait
    for those that do.

    Returns:
        The jobs, those of the chosen claims first, and the claims that do not fit.
    """
    left, first, too_long = seconds, dict[Path, Planned](), list[Claim]()
    for claim in item.claims:
        needed = [job for job in jobs if isinstance(job, PlannedRun) and _needed(job, item, claim)]
        if any(job.left_out for job in needed):  # something is missing for it
            continue
        new = [job for job in needed if not job.done and job.folder not in first]
        time_of_claim = sum(job.seconds for job in new)
        if time_of_claim > left:
            too_long.append(claim)
        else:
            left -= time_of_claim
            first |= {job.folder: job for job in new}
    others = [job for job in jobs if job.folder not in first]
    return [*first.values(), *within_budget(others, left)], too_long


def _needed(job: PlannedRun, item: Item, claim: Claim) -> bool:
    """Return whether a claim compares a cell that needs this run."""
    places = claim.places({average.column: average.of for average in item.averages})
    return any((cell.row, cell.column) in places for cell in job.cells)


def execute_runs(jobs: Sequence[P], run: Callable[[P], None], seconds: float | None) -> list[P]:
    """Execute the jobs one after the other, and return all jobs.

    A job is marked as left out if it diverges, if another process works on it, or if it no longer fits
    because others took longer than estimated.
    """
    began, spent, planned = time.monotonic(), 0.0, 0.0
    after: list[P] = []
    for job in jobs:
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
        except NumericsError as error:  # other runs may still converge
            job = replace(job, left_out=f"{DIVERGED}: {error}")
        except FolderInUseError as error:  # a command beside this one makes this run
            job = replace(job, left_out=f"{ELSEWHERE}: {error}")
        except RunFolderError:
            if not job.done:  # else that command has finished it in the meantime
                raise
        spent, planned = spent + time.monotonic() - start, planned + job.seconds
        after.append(job)
    return after


def progress(item: Item, scale: str, out: Path) -> tuple[int, int]:
    """Return how many cells have a finished run of seed 0, and how many there are, from the folders alone.

    A study counts as a cell. Where nothing was run at this scale, both numbers are 0.
    """
    if item.search is not None:
        return _with_results(item, scale, out)
    runs = out / "runs" / scale
    there = _names(runs)
    if not there:
        return 0, 0
    configs = [config for cell in item.cells if (config := item.at(cell, scale)) is not None]
    begun = [config for config in configs if any(name.startswith(_label(config)) for name in there)]
    folders = [run_folder(config, runs, there) for config in begun]
    folders += [study_folder(item.study, scale, out, 0)] if item.study else []
    return sum(state_of(folder) == "finished" for folder in folders), len(configs) + bool(item.study)


def _with_results(item: Item, scale: str, out: Path) -> tuple[int, int]:
    """Return (cells with a result, cells) of a table whose rows are tuned, as its item.json has them."""
    folder = item.folder(scale, out)
    if not (folder / ITEM_FILE).exists():
        return 0, len(item.cells)
    cells = read_object(folder, ITEM_FILE).get("cells")
    runs = [cell.get("runs") for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []
    return sum(bool(folders) for folders in runs), len(runs)


def state(item: Item, out: Path) -> str:
    """Return "never run", or the largest scale of which anything is finished, with how much of it."""
    for scale in ("full", "proxy", "smoke"):
        done, of = progress(item, scale, out)
        if done:
            return scale if done == of else f"{scale} {done}/{of}"
    return "never run"
