"""The command `raffed reproduce PAPER/ITEM`: a table or figure of a paper, at an affordable scale."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from raffed.api import reproducing
from raffed.api.reproducing import plan as make_plan
from raffed.api.tuning import seconds_of
from raffed.cli.checking import write_paper_item
from raffed.cli.config import ACTORS, placed
from raffed.cli.execution import execute as run_one
from raffed.cli.execution import execute_stoppable
from raffed.cli.messages import counted, duration
from raffed.cli.options import FLAGS, AcceptChangedCode, AsJson, Flags, Plan, completed, run_options, text_of
from raffed.cli.screen import Overall, Row, Screen, make_screen
from raffed.cli.tables import show
from raffed.config.portable import set_where_possible
from raffed.config.sections import Runtime
from raffed.errors import NumericsError, RaffedError, check_choice, check_range
from raffed.results.runfile import check_unpacked
from raffed.results.storage import fetched, mirrored
from raffed.results.text import tell
from raffed.tables.catalogue import all_items, as_released, items_of, own_items, papers
from raffed.tables.items import SCALES, Item, studies
from raffed.tables.planner import Planned, PlannedRun, PlannedStudy, computed, run_name, state, unchosen

NUMERICS = ("cohort", "bits", "convolutions")
KEPT = ("data.root", *(f"numerics.{name}" for name in NUMERICS))
PLACES = [flag.field for flag in FLAGS if not flag.field.startswith("runtime.") and flag.field not in KEPT]


def _items(incomplete: str) -> list[str]:
    paper = incomplete.partition("/")[0]
    known = items_of(paper) if paper in papers() else all_items()
    return completed(known)(incomplete)


ItemName = Annotated[str | None, typer.Argument(autocompletion=_items)]


@run_options(without=PLACES)
def reproduce(
    flags: Flags,
    item: ItemName = None,
    *,
    own: str | None = None,
    scale: str = "smoke",
    only: list[str] | None = None,
    seeds: int | None = None,
    released: bool = False,
    budget: str | None = None,
    place: str = "reproduce",
    plan: Plan = False,
    tables: bool = False,
    listed: bool = False,
    accept: AcceptChangedCode = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce a table or figure of a paper, or a table of your own.

    The command first shows what it will run, how long that may take, and what it leaves out. Repeat the same
    command to continue where it stopped.

    Args:
        item (PAPER/ITEM): Item to reproduce, such as fedmr/table1; --list shows all. With --items, its
            table.
        own (--items REFERENCE): Tables of your own: package.module:TABLE or ./items.py:TABLE.
        scale: Size of the runs: smoke, proxy or full (as in the paper).
        only (TEXT,..): Run only cells whose row or column contains one of these texts. A complete name
            matches only itself. If --only is repeated, each must match.
        seeds: Runs per cell; without it: 1 for smoke, 3 otherwise.
        released: Use the best settings of the authors' released code.
        budget: Most time to spend, such as 30m or 2h.
        place (--out PLACE): Folder or URL that holds all reproductions.
        tables: Run nothing; make tables and report of finished runs.
        listed (--list): List the tables and figures, all or those of PAPER, and their state.

    Examples:

        raffed reproduce --list

        raffed reproduce fedmr/table6 --only fmnist

        raffed reproduce map/table1 --scale full --only famnist --only fedavg,fedrs,map --seeds 3 --budget 8h
    """
    set_where_possible({"bits": text_of(flags, "numerics.bits")})
    if listed or (item is None and own is None):
        with fetched(place) as out:
            _list(out, own, item)
        return
    chosen = reproducing.item_of(item, own)
    count = chosen.seeds(check_choice("scale", scale, SCALES)) if seeds is None else seeds
    check_range("--seeds", count, 1, 10_000)
    chosen = as_released(chosen) if released else chosen
    numerics: dict[str, Any] = {name: flags.get(f"numerics.{name}") for name in NUMERICS}
    chosen = computed(chosen, **numerics)
    seconds = None if budget is None else seconds_of(budget)
    with make_screen(as_json, quiet=False) as screen, mirrored(place) as out:
        where, root = _runtime(chosen, scale, flags), text_of(flags, "data.root")
        asked = reproducing.Asked(chosen, scale, out, tuple(only or ()), count, where, root, accept)
        timed = not plan or seconds is not None  # a budget needs estimates
        planned = make_plan(asked, seconds, _tell, tables_only=tables, probe=timed)
        done = {job.folder for job in planned if job.done}
        _announce(chosen, scale, planned, done, count, timed)
        if plan:
            rows = item_rows(planned, done, brief=not as_json)
            screen.plan(rows, f"{counted(len(rows), 'cell')} of {chosen.key}")
        else:
            reproducing.check_possible(chosen, planned, "is finished" if tables else "can be run")
            _reproduce(asked, planned, None if tables else seconds, screen, tables)


_tell = partial(tell, error=True)


def _reproduce(
    asked: reproducing.Asked, jobs: list[Planned], seconds: float | None, screen: Screen, tables: bool
) -> None:
    def progress(what: str, share: float) -> None:
        screen.show({"event": "study", "what": what, "share": share})

    def do(job: Planned) -> None:
        if isinstance(job, PlannedStudy):
            progress(f"{studies()[job.study].title}, seed {job.seed} → {job.folder}", 0.0)
            reproducing.execute_planned(job, asked.root, asked.runtime, progress)
        elif isinstance(job, PlannedRun):
            run = reproducing.as_run(job, asked.accept)
            run_one(run.go_on, run, screen, again="the same command")

    screen.overall = Overall(sum(not job.left_out and not job.done for job in jobs))
    if not tables:
        together = partial(execute_stoppable, screen=screen, out=asked.out)
        jobs = reproducing.executed(asked, jobs, seconds, _tell, do, together)
    from raffed.tables.item_file import write_item

    path = write_item(asked.item, asked.scale, asked.out, jobs)
    lost = reproducing.diverged(jobs)
    write_paper_item(path, screen)
    if lost:
        folders = ", ".join(str(job.folder) for job in lost)
        raise NumericsError(f"{counted(len(lost), 'run')} diverged; the tables leave out {folders}")
    if left := reproducing.elsewhere(jobs):
        raise RaffedError(
            f"another command works on {counted(len(left), 'run')}, which the tables leave out: "
            f"{', '.join(str(job.folder) for job in left)}; when it has ended, repeat this command"
        )


def _announce(
    item: Item, scale: str, jobs: Sequence[Planned], finished: Collection[Path], seeds: int, timed: bool
) -> None:
    """Say on stderr, before anything starts, what will run, how long it may take if that was estimated
    (`timed`), and what is left out and why. `finished` are the folders of the jobs that are done.
    """
    to_run = [job for job in jobs if not job.left_out and job.folder not in finished]
    ended = [job for job in jobs if job.folder in finished]
    lines = [f"{item.key} ({item.title}), {scale}: {item.meaning(scale)}"]
    time = f"about {duration(sum(job.seconds for job in to_run))} on this machine"
    time = time if timed else "whose time and data are looked at when they begin"
    runs = sum(isinstance(job, PlannedRun) for job in to_run)
    what = [counted(runs, "run")] if item.cells or not item.study else []
    if item.study:
        what.append(
            f"study for {counted(len(to_run) - runs, 'seed')} (its time is stated for two slow cores)"
        )
    lines.append(f"  {' and '.join(what)}, {time}; {len(ended)} are finished already")
    otherwise = sum(isinstance(job, PlannedRun) and job.folder.name != run_name(job.config) for job in ended)
    if otherwise:
        how = "in stacks, on a GPU, or with other threads, bits or convolutions"
        lines.append(f"  computed in another way ({how}): {counted(otherwise, 'finished run')}")
    if later := unchosen(jobs) * seeds:
        lines.append(f"  then {counted(later, 'run')} of the settings that these choose")
    lines += [f"  {line}" for line in stated(jobs, finished)]
    lines += [f"  {line}" for line in (item.published.stated() if item.published else ())]
    every = {cell.place[:2] for cell in item.cells}
    here = {cell.place[:2] for job in jobs if isinstance(job, PlannedRun) for cell in job.cells}
    if left := len(every - here):
        lines.append(f"  {left} of {len(every)} cells are not part of what was asked, or not of this scale")
    tell(*(line for text in lines for line in text.splitlines()), error=True)


def _runtime(item: Item, scale: str, flags: Flags) -> Runtime:
    """Return where runs are executed: small ones in one process, unless the flags ask for actors."""
    small = scale == "smoke" or item.search is not None
    serial = small and not any(flags.get(f"runtime.{name}") for name in ACTORS)
    return placed(Runtime(execution="serial" if serial else "ray"), flags)


def _list(out: Path, own: str | None, asked: str | None) -> None:
    """List the tables and figures, those of a paper, or one, with their states."""
    check_unpacked(out)
    items = all_items() if own is None else own_items(own)
    chosen = {key: item for key, item in items.items() if asked is None or f"{key}/".startswith(f"{asked}/")}
    if asked is not None and not chosen:
        reproducing.item_of(asked, own)  # says what there is
    rows = []
    for key, item in chosen.items():
        cells = "study" if item.study and not item.cells else str(len(item.cells))
        rows.append((key, item.title, cells, state(item, out)))
    show(("item", "what", "cells", "state"), rows, right="cells")
    tell("raffed reproduce PAPER/ITEM runs the cells that can be run here; --plan lists them first.")


def item_rows(planned: Sequence[Planned], done: Collection[Path], brief: bool) -> list[Row]:
    """Return a row for each cell of a table: its runs, and why some are left out.

    Args:
        planned: The runs and studies.
        done: The folders of those that are finished.
        brief: Whether a few words are said of what is left out, or the whole reason.
    """
    cells: dict[tuple[str, str], list[Planned]] = {}
    for job in planned:
        places: list[Sequence[str]] = (
            [cell.place for cell in job.cells] if isinstance(job, PlannedRun) else [("study", "")]
        )
        for place in dict.fromkeys((where[0], " · ".join(where[1:])) for where in places):
            cells.setdefault(place, []).append(job)
    return [
        {
            "row": row,
            "column": column,
            "runs": str(sum(not job.left_out or job.folder in done for job in jobs)),
            "finished": str(sum(job.folder in done for job in jobs)),
            "left out": "; ".join(
                dict.fromkeys(_kind(job) if brief else job.left_out for job in _left_out(jobs, done))
            ),
        }
        for (row, column), jobs in cells.items()
    ]


def stated(jobs: Sequence[Planned], done: Collection[Path]) -> list[str]:
    """Return a line for each kind of reason: how many jobs it concerns, and the first whole reason."""
    kinds: dict[str, list[str]] = {}
    for job in _left_out(jobs, done):
        kinds.setdefault(_kind(job), []).append(job.left_out)
    return [
        f"{len(reasons)} left out: {reasons[0]}"
        + ("; --plan --json lists other reasons" if len(set(reasons)) > 1 else "")
        for reasons in kinds.values()
    ]


def _kind(job: Planned) -> str:
    """Return the beginning of the reason why a job is left out, which jobs of one kind share."""
    return job.left_out.partition(":")[0]


def _left_out(jobs: Sequence[Planned], done: Collection[Path]) -> list[Planned]:
    return [job for job in jobs if job.left_out and job.folder not in done]
