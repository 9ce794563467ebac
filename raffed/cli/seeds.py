"""`--seeds N` of `raffed run` and `raffed compare`: the same methods with several seeds, and the report."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from raffed.cli.config import Tables, read_local
from raffed.cli.execution import beginning, begun_or_new, execute
from raffed.cli.numbers import counted
from raffed.cli.options import Flags
from raffed.cli.pace import Overall
from raffed.cli.runs_board import RunsBoard, make_runs_board
from raffed.cli.screen import Screen
from raffed.cli.signals import StopSignals
from raffed.commands.running import holds_run, one_ray, start_or_continue
from raffed.commands.seeds import MOST, SeedRun, in_processes, places, planned_seeds, with_one_process
from raffed.commands.side_by_side import Ending, execute_side_by_side
from raffed.config.run import RunConfig
from raffed.config.validation import table_of
from raffed.errors import NumericsError, RaffedError, UsageError, check_range

Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        help="Number of runs, with the seeds SEED, SEED + 1, …; each lies in a folder seed-K.",
        metavar="N",
        rich_help_panel="What to run",
    ),
]


def asked_seeds(file: Path | None, typed: int | None) -> int | None:
    """Return the number of seeds: that of --seeds, or `seeds` of a file; None for a single run.

    Raises:
        UsageError: It is not a number from 1 on.
    """
    asked = read_local(file).get("seeds") if typed is None and file is not None else typed
    if asked is None:
        return None
    if not isinstance(asked, int) or isinstance(asked, bool):
        raise UsageError(f"seeds = {asked!r} must be a whole number of runs, such as 5")
    check_range("seeds", asked, 1, MOST)
    return asked


def check_single(seeds: int | None, given: Mapping[str, bool]) -> None:
    """Refuse options that follow a single run where there are several."""
    names = [name for name, is_given in given.items() if is_given]
    if seeds is not None and names:
        raise UsageError(
            f"{' and '.join(names)} cannot be used with --seeds, whose runs execute at the same time; leave "
            "it out, or start a run for each --seed"
        )


def one_process_each(config: RunConfig, file: Path | None, flags: Flags) -> RunConfig:
    """Return the run with a process of its own, unless flags or the file say how its clients are placed."""
    tables: Tables = read_local(file) if file else {}
    typed = "runtime.execution" in flags or "execution" in table_of(tables.get("runtime"))
    return replace(config, runtime=with_one_process(config.runtime, typed))


def run_seeds(
    configs: Callable[[], Mapping[str, RunConfig]],
    out: Path,
    seeds: int,
    screen: Screen,
    *,
    alone: bool = False,
    accept: bool = False,
) -> None:
    """Run every seed of every method, or what is left of them, and report on all.

    Args:
        configs: Makes method → its run with the first seed.
        out: The folder of everything.
        seeds: Number of seeds.
        screen: Shows the runs and the report.
        alone: Whether the seeds of the only method lie directly in `out`.
        accept: Whether own code may have changed since runs were begun.

    Raises:
        UsageError: The request is refused.
        RaffedError: A run failed. All others are finished.
    """
    with contextlib.ExitStack() as ray:
        with beginning(screen):
            runs = planned_seeds(configs(), out, seeds, alone, accept)
            ray.enter_context(one_ray(runs[0].config))
        endings = _side_by_side(runs, screen, out) if in_processes(runs) else _in_turn(runs, screen, out)
    _end(runs, endings, out, screen)


def _side_by_side(runs: Sequence[SeedRun], screen: Screen, out: Path) -> dict[SeedRun, Ending]:
    board = make_runs_board(screen)
    with contextlib.closing(board):
        done = [run for run in runs if run.finished]
        for run in done:
            board.kept(run, start_or_continue(run.config, run.folder, lambda event: None))
        left = [run for run in runs if run not in done]
        board.overall = Overall(len(left), at_once=True)
        endings = _stoppable(left, board, screen, out) if left else {}
    return {**dict.fromkeys(done, Ending("finished")), **endings}


def execute_at_once(runs: Sequence[SeedRun], screen: Screen, out: Path) -> dict[SeedRun, Ending]:
    """Execute runs in a process each, as many at a time as the cores allow.

    Exits with 130 or 143 if a signal stopped them. `out` is named as the place where they continue.
    """
    with contextlib.closing(make_runs_board(screen)) as board:
        board.overall = Overall(len(runs), at_once=True)
        return _stoppable(runs, board, screen, out)


def _stoppable(runs: Sequence[SeedRun], board: RunsBoard, screen: Screen, out: Path) -> dict[SeedRun, Ending]:
    free = places(runs[0].config.runtime, len(runs))

    def part() -> None:
        board.close()
        screen.stopped(str(out), _again(out))

    with StopSignals(screen.stopping, part) as signals:
        signals.round_done()  # the processes finish their rounds, so this one waits for them
        try:
            endings = execute_side_by_side(runs, free, board, signals.asked)
        except KeyboardInterrupt:
            part()
            raise SystemExit(signals.code or 130) from None
    if signals.asked():
        part()
        raise typer.Exit(signals.code)
    return endings


def _in_turn(runs: Sequence[SeedRun], screen: Screen, out: Path) -> dict[SeedRun, Ending]:
    """Execute runs one after the other: those on Ray, of which each uses all actors."""
    endings = {}
    screen.overall = Overall(len(runs))
    for run in runs:
        config, folder = run.config, run.folder
        begun = partial(
            screen.start, f"{run.title} → {folder}", run.method, config.federation.rounds, run.seed
        )
        try:
            work = begun_or_new(config, folder, screen, begun, run.accept)
            execute(work, folder, screen, again=_again(out))
            endings[run] = Ending("finished")
        except NumericsError as error:
            screen.failed(str(folder), error)
            endings[run] = Ending("failed", " ".join(str(error).split()))
    return endings


def _again(out: Path) -> str:
    return f"the same command with --out {shlex.quote(str(out))}"


def _end(runs: Sequence[SeedRun], endings: Mapping[SeedRun, Ending], out: Path, screen: Screen) -> None:
    """Write the report, and say what failed."""
    from raffed.cli.checking import write_report

    refused = next((ending.why for ending in endings.values() if ending.refused), None)
    if refused is not None:
        raise UsageError(refused)
    if any(ending.state == "finished" for ending in endings.values()):
        write_report([run.folder for run in runs if holds_run(run.folder)], out / "report", screen)
    lost = [f"{run.title} ({endings[run].state})" for run in runs if endings[run].state != "finished"]
    if lost:
        count = f"{len(lost)} of {counted(len(runs), 'run')}"
        raise RaffedError(f"{count} did not finish: {'; '.join(lost)}; the reasons are above")
