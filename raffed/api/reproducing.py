"""`raffed.reproduce`: a table or figure of a paper, at an affordable scale."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from raffed.api.branching import horizon_of
from raffed.api.many_runs import Ending, check_same_data, execute_at_once
from raffed.api.reporting import ItemTables, as_frame, write_item_tables
from raffed.api.running import Run, holds_run, make_progress, one_ray
from raffed.api.tuning import seconds_of
from raffed.config.sections import Runtime
from raffed.errors import UsageError, check_choice, check_range
from raffed.methods.authors import is_authors
from raffed.results.files import check_tree
from raffed.results.runfile import check_unpacked
from raffed.results.storage import is_url, mirrored
from raffed.runtime.machine import usable_cores
from raffed.tables import planner
from raffed.tables.catalogue import as_released, find_item, own_item
from raffed.tables.items import SCALES, Item, Work, execute_study

if TYPE_CHECKING:
    import pandas as pd

Tell = Callable[[str], None]
WORTH = 5.0  # estimated seconds of a run from which a process of its own pays


@dataclass(frozen=True)
class Reproduced:
    """What was reproduced of a table or figure.

    Attributes:
        path: report.html of the item; None if it lies at a URL or nothing was finished.
        tables: Title → a table as a pandas frame of texts: the paper's numbers beside those of the runs, and
            what is claimed of them.
        left_out: What did not run, with the reason, one line for each run.
        diverged: Folders of runs that diverged. They are in no table.
    """

    path: Path | None
    tables: dict[str, pd.DataFrame]
    left_out: tuple[str, ...]
    diverged: tuple[Path, ...]


def reproduce(
    item: str | Item | None = None,
    scale: Literal["smoke", "proxy", "full"] = "smoke",
    *,
    out: Path | str = "reproduce",
    only: Sequence[str] = (),
    seeds: int | None = None,
    released: bool = False,
    budget: float | str | None = None,
    root: str | None = None,
    runtime: Runtime | None = None,
    progress: bool = True,
    items: str | None = None,
    accept_changed_code: bool = False,
    cohort: int = 0,
    bits: Literal["machine", "portable"] | None = None,
    convolutions: Literal["torch", "compiled"] | None = None,
) -> Reproduced:
    """Reproduce a table or figure of a paper, or a table of one's own, as `raffed reproduce` does.

    Called again with the same arguments it goes on where it stopped.

    Args:
        item: PAPER/ITEM, such as "fedmr/table1", or a table that `raffed.table` made. With `items` it is the
            name of one of those tables, and may be left out if there is one.
        scale: "smoke", "proxy" or "full" (the paper's settings).
        out: Folder or URL of all reproductions.
        only: Rows and columns with one of these texts.
        seeds: Runs for each cell, at least 1; without it 1 for smoke, else 3.
        released: Whether the authors' code is followed, with its best setting for each row.
        budget: Time that may be spent: seconds, or a text such as "30m".
        root: Folder of the data sets; without it the one in RAFFED_DATA.
        runtime: Where runs are executed; without it one process for smoke, else Ray.
        progress: Whether rounds are shown on stderr or below the notebook's cell.
        items: Reference to tables of one's own, such as "mylab.items:TABLE" or "./items.py:TABLE".
        accept_changed_code: Whether to go on with own code, or a description of the table, that has changed
            since runs of it were made. item.json and run.json record it.
        cohort: Most clients that are stacked and stepped together; 0: one client after the other.
        bits: "portable" for bits that hold on other processors too (`raffed.portable`); None: those that the
            table says, which are the machine's.
        convolutions: "compiled" for raffed's own kernel, which is faster for small ones on a CPU; None: what
            the table says, which is torch.

    Returns:
        The tables of the item.

    Raises:
        UsageError: There is no such item, or nothing of it can run here.
        RunFolderError: Own code has changed.

    Example:
        >>> raffed.reproduce("fedmr/table6", only=["fmnist"]).tables  # doctest: +SKIP
    """

    from raffed.tables.item_file import write_item

    chosen = item if isinstance(item, Item) else item_of(item, items)
    count = chosen.seeds(check_choice("scale", scale, SCALES)) if seeds is None else seeds
    check_range("seeds", count, 1, 10_000)
    chosen = as_released(chosen) if released else chosen
    chosen = planner.computed(chosen, cohort or None, bits, convolutions)
    seconds = seconds_of(budget, "budget") if isinstance(budget, str) else budget
    small = scale == "smoke" or chosen.search is not None
    where = runtime or Runtime(execution="serial" if small else "ray")
    shown = make_progress(progress)
    with mirrored(out) as place:
        asked = Asked(chosen, scale, place, tuple(only), count, where, root, accept_changed_code)
        planned = plan(asked, seconds, shown.say)
        check_possible(chosen, planned, "can be run")

        def do(job: planner.Planned) -> None:
            shown.begin(f"{chosen.key}, seed {job.seed} → {job.folder}")
            if isinstance(job, planner.PlannedRun):
                as_run(job, accept_changed_code).go_on(shown.round)
            elif isinstance(job, planner.PlannedStudy):
                execute_planned(job, root, where, lambda what, share: None)

        after = executed(asked, planned, seconds, shown.say, do, lambda runs: execute_at_once(runs, shown))
        tables = write_item_tables(write_item(chosen, scale, place, after))
        return _outcome(tables, after, is_url(out))


def item_of(text: str | None, reference: str | None) -> Item:
    """Return an item of a paper, or a table behind a reference.

    Args:
        text: PAPER/ITEM, or the name of a table of one's own.
        reference: Reference to tables of one's own, or None for an item of a paper.

    Raises:
        UsageError: There is no such item.
    """
    if reference is not None:
        return own_item(reference, text)

    if text is None:
        raise UsageError("name a table or figure, such as fedmr/table1, or give `items`")
    return find_item(text)


def _outcome(tables: ItemTables | str, jobs: Sequence[planner.Planned], remote: bool) -> Reproduced:
    titled = () if isinstance(tables, str) else tables.tables
    return Reproduced(
        None if remote or isinstance(tables, str) else tables.path,
        {title: as_frame(table) for title, table in titled},
        tuple(f"{job.folder.name}: {job.left_out}" for job in jobs if job.left_out and not job.done),
        tuple(job.folder for job in diverged(jobs)),
    )


@dataclass(frozen=True)
class Asked:
    """Which part of an item is asked for, where, and how its runs are executed.

    `accept` says whether own code may have changed since runs of the item were made.
    """

    item: Item
    scale: str
    out: Path
    only: tuple[str, ...]
    seeds: int
    runtime: Runtime
    root: str | None = None
    accept: bool = False


def plan(
    asked: Asked, seconds: float | None, tell: Tell, *, tables_only: bool = False, probe: bool = True
) -> list[planner.Planned]:
    """Return all jobs of an item; those that will not be done say why. `tell` receives what is being probed.

    With `tables_only`, whatever is not finished is left out. Without `probe` no time is estimated and no data
    are read, so that a list is there within seconds.
    """
    from raffed.tables.estimates import estimated
    from raffed.tables.item_file import check_code_of, check_source, searched_runs

    check_tree(asked.out)
    check_unpacked(asked.out)
    if not asked.accept:
        check_source(asked.item, asked.scale, asked.out)
    wanted = asked.item, asked.scale, asked.out, asked.only, asked.seeds, asked.runtime
    runs = planner.planned_runs(*wanted) if asked.item.search is None else searched_runs(*wanted, asked.root)
    if asked.root is not None:
        runs = [replace(job, config=job.config.changed({"data.root": asked.root})) for job in runs]
    if not asked.accept:
        check_code_of(runs)
    runs = estimated(runs, tell) if probe and not tables_only else runs
    studies = planner.planned_studies(asked.item, asked.scale, asked.out, asked.seeds, asked.root)
    jobs: list[planner.Planned] = [*studies, *runs]
    if tables_only:
        return planner.finished(jobs)
    if seconds is None or asked.item.search is not None:
        kept = planner.within_budget(jobs, seconds)
    else:
        kept, undecided = planner.claims_first(asked.item, jobs, seconds)
        for claim in undecided:
            tell(f"not all runs of this claim fit into the budget: {claim.text}")
    if too_long := [job.seconds for job in kept if job.left_out == planner.OVER_BUDGET]:
        many = "1 run does" if len(too_long) == 1 else f"{len(too_long)} runs do"
        minutes = f"{min(too_long) / 60:.0f} minutes"
        tell(
            f"{many} not fit into the budget: the shortest is estimated at {minutes}. Without --budget "
            "they run; a command that is stopped ends with a checkpoint, and the same command goes on"
        )
    return kept


def executed(
    asked: Asked,
    planned: list[planner.Planned],
    seconds: float | None,
    tell: Tell,
    do: Callable[[planner.Planned], None],
    together: Callable[[list[Run]], Mapping[Run, Ending]],
) -> list[planner.Planned]:
    """Execute what is planned and, if the item's rows are tuned, what the outcomes make possible after it.

    Args:
        asked: What is asked for.
        planned: The first jobs, in the case of a search the trials.
        seconds: Most time to spend on all of it, or None.
        tell: Receives what is being probed.
        do: Executes one job. All runs that need Ray share one.
        together: Executes long runs at the same time, if there is no limit of time, which counts the runs
            one after the other.

    Returns:
        All jobs, as they are at the end.

    Raises:
        DataFileError: Data of one's own have changed since some runs were begun, and others would begin.
    """
    check_same_data([job.folder for job in planned if not job.left_out])
    began, limit, known = time.monotonic(), seconds, set[Path]()
    while True:
        go_on(planned, asked.accept)
        if known and all(job.folder in known or job.left_out or job.done for job in planned):
            return planned
        jobs = planned if limit is not None else long_ones(planned, together, asked.accept)
        left = [
            job for job in jobs if isinstance(job, planner.PlannedRun) and not job.left_out and not job.done
        ]
        runs = [job for job in left if not is_authors(job.config.method)]
        on_ray = [(job.config, job.folder) for job in runs if job.config.runtime.execution == "ray"]
        with one_ray(*on_ray[0]) if on_ray else contextlib.nullcontext():
            after = planner.execute_runs(jobs, do, limit)
        if asked.item.search is None:
            return after
        limit = None if seconds is None else max(seconds - (time.monotonic() - began), 0.0)
        known = {job.folder for job in after}
        planned = plan(asked, limit, tell)


def long_ones(
    jobs: Sequence[planner.Planned],
    execute: Callable[[list[Run]], Mapping[Run, Ending]],
    accept: bool = False,
) -> list[planner.Planned]:
    """Execute the runs in one process each that take long, as many at a time as the cores allow.

    Args:
        jobs: What is planned.
        execute: Executes runs at the same time.
        accept: Whether own code may have changed since runs were begun.

    Returns:
        All jobs. Those that diverged are marked.
    """
    long = [
        job
        for job in jobs
        if isinstance(job, planner.PlannedRun) and job.config.runtime.execution == "serial"
        if not job.left_out and not job.done and job.seconds >= WORTH
    ]
    if len(long) < 2 or usable_cores() < 2:
        return list(jobs)
    endings = execute([as_run(job, accept) for job in long])
    lost = {run.folder: ending.why for run, ending in endings.items() if ending.diverged}
    return [
        replace(job, left_out=f"{planner.DIVERGED}: {lost[job.folder]}") if job.folder in lost else job
        for job in jobs
    ]


def as_run(job: planner.PlannedRun, accept: bool) -> Run:
    """Return a planned run as one that is executed. Its title names the cells that need it."""
    where = ", ".join(dict.fromkeys(" · ".join(cell.place) for cell in job.cells))
    about: dict[str, str | int] = {"method": job.config.method, "seed": job.config.seed}
    return Run(f"{where}, seed {job.seed}", job.config, job.folder, about, accept)


def execute_planned(
    job: planner.PlannedStudy, root: str | None, runtime: Runtime, tell: Callable[[str, float], None]
) -> None:
    """Execute a study on the CPU, or on the GPU if the runtime has a share of one.

    A study that was interrupted starts again from its beginning the next time.
    """
    device = "cuda" if runtime.gpu_fraction else "cpu"
    execute_study(Work(job.study, job.scale, job.seed, job.folder, root, tell, device, runtime.threads))


def check_possible(item: Item, jobs: Sequence[planner.Planned], what: str) -> None:
    """Raise a UsageError if nothing of the item is done or will be. `what` completes the sentence."""
    if all(job.left_out and not job.done for job in jobs):
        raise UsageError(f"{item.key}: none of its cells {what} here, for the reasons above")


def diverged(jobs: Sequence[planner.Planned]) -> list[planner.Planned]:
    """Return the jobs whose training diverged. A trial that did is an outcome like another."""
    return [job for job in jobs if job.left_out.startswith(planner.DIVERGED) and not planner.is_trial(job)]


def elsewhere(jobs: Sequence[planner.Planned]) -> list[planner.Planned]:
    """Return the jobs that were left to another command, which worked on them at the same time."""
    return [job for job in jobs if job.left_out.startswith(planner.ELSEWHERE)]


def go_on(jobs: Sequence[planner.Planned], accept_changed_code: bool = False) -> None:
    """Begin longer trials from the checkpoints of shorter ones, and delete those that none needs any more.

    A trial whose shorter one has no checkpoint, as in unpacked records, and one of a method whose rounds
    depend on their total number, begin at their first round.

    Args:
        jobs: What is planned.
        accept_changed_code: As in `raffed.extend`.
    """
    from raffed.runs.checkpoint import CHECKPOINTS, CLIENT_STATES

    trials = [job for job in jobs if isinstance(job, planner.PlannedRun) and job.trial is not None]
    for job in trials:
        if job.shorter is not None and not holds_run(job.folder) and (job.shorter / CHECKPOINTS).is_dir():
            _lengthen(job.shorter, job.folder, job.config.federation.rounds, accept_changed_code)
    for job in trials:
        if job.decided:
            shutil.rmtree(job.folder / CHECKPOINTS, ignore_errors=True)
            shutil.rmtree(job.folder / CLIENT_STATES, ignore_errors=True)


def _lengthen(shorter: Path, folder: Path, rounds: int, accept_changed_code: bool) -> None:
    from raffed.results.lock import LOCK_FILE
    from raffed.runs.branching import RecordedRun, lengthened

    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        shutil.copytree(shorter, part, ignore=shutil.ignore_patterns(LOCK_FILE))
        recorded = RecordedRun.opened(part, accept_changed_code)
        lengthened(recorded, recorded.config.changed({"federation.rounds": rounds}), horizon_of)()
        part.rename(folder)
    except UsageError:  # the rounds of this method depend on their number
        pass
    finally:
        shutil.rmtree(part, ignore_errors=True)
