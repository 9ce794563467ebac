"""Many runs by one command: `--seeds N`, `raffed compare` and the long runs of `raffed reproduce`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer

from raffed.api.many_runs import (
    MOST,
    Ending,
    execute_all,
    execute_at_once,
    failed_event,
    with_one_process,
)
from raffed.api.running import Run, holds_run
from raffed.cli.checking import write_report
from raffed.cli.config import Tables, read_local
from raffed.cli.execution import execute, stopped_event
from raffed.cli.messages import counted
from raffed.cli.options import Flags
from raffed.cli.profile import RoundTimes
from raffed.cli.screen import JsonScreen, Overall, Screen
from raffed.cli.signals import StopSignals
from raffed.config.run import RunConfig
from raffed.config.validation import table_of
from raffed.errors import NumericsError, RaffedError, UsageError, check_range
from raffed.own import gate
from raffed.runs.events import handed_on

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


def run_many(runs: Sequence[Run], out: Path, screen: Screen, *, at_once: bool, profile: bool = False) -> None:
    """Execute runs, or what is left of them, and report on all.

    Args:
        runs: The runs.
        out: The folder of everything.
        screen: Shows the runs and the report.
        at_once: Whether runs in one process each may execute at the same time.
        profile: Whether it is shown of each run where its time went.

    Raises:
        UsageError: The request is refused.
        NumericsError: Training diverged in a run. All others are finished.
        RaffedError: A run failed. All others are finished.
    """

    def in_turn(run: Run) -> None:
        screen.overall = screen.overall or Overall(len(runs))
        times = RoundTimes()
        execute(run.go_on, run, screen, again=_again(out), watchers=[times])
        if profile:
            times.show(screen, run.method)

    endings = execute_all(
        runs,
        screen,
        at_once=at_once,
        in_turn=in_turn,
        together=lambda left: execute_stoppable(left, screen, out),
    )
    _end(runs, endings, out, screen)


def execute_stoppable(runs: Sequence[Run], screen: Screen, out: Path) -> dict[Run, Ending]:
    """Execute runs in a process each, as many at a time as the cores allow.

    Exits with 130 or 143 if a signal stopped them. `out` is named as the place where they continue.
    """

    def stopped() -> None:
        screen.show(stopped_event({}, out, _again(out)))

    screen.overall, screen.started = Overall(len(runs), at_once=True), True
    with StopSignals(screen.stopping) as signals, contextlib.closing(screen):
        signals.round_done()  # the processes finish their rounds, so this one waits for them
        try:
            endings = execute_at_once(runs, screen, signals.asked)
        except KeyboardInterrupt:
            stopped()
            raise SystemExit(signals.code or 130) from None
    if signals.asked():
        stopped()
        raise typer.Exit(signals.code)
    return endings


def _again(out: Path) -> str:
    return f"the same command with --out {shlex.quote(str(out))}"


def _end(runs: Sequence[Run], endings: Mapping[Run, Ending], out: Path, screen: Screen) -> None:
    """Write the report, and say what failed."""
    refused = next((ending.why for ending in endings.values() if ending.refused), None)
    if refused is not None:
        raise UsageError(refused)
    if any(ending.state == "finished" for ending in endings.values()):
        write_report([run.folder for run in runs if holds_run(run.folder)], out / "report", screen)
    lost = {run: endings[run] for run in runs if endings[run].state != "finished"}
    if lost:
        names = [
            f"{run.title} ({'diverged' if ending.diverged else ending.state})" for run, ending in lost.items()
        ]
        kind = NumericsError if all(ending.diverged for ending in lost.values()) else RaffedError
        raise kind(
            f"{len(lost)} of {counted(len(runs), 'run')} did not finish: {'; '.join(names)}; the reasons are "
            "above"
        )


class ProcessScreen(JsonScreen):
    """Prints the events of the run for the command that started it. That command explains how it ended."""

    for_people = ("begin",)
    for_both = ()

    def stopping(self) -> None:
        """Show nothing."""

    def unbegun(self) -> None:
        """Show nothing."""


def seed_process() -> None:
    """Execute the run that the first line of standard input asks for. raffed itself starts this command."""
    order = json.loads(sys.stdin.readline())
    gate.inherit(gate.Knowledge(**{name: set(texts) for name, texts in order["known"].items()}))
    Thread(target=_end_with_the_command, name="raffed-command", daemon=True).start()
    config = RunConfig.from_dict(table_of(order["config"]))
    run = Run("", config, Path(str(order["folder"])), {"seed": config.seed}, bool(order["accept"]))
    screen = ProcessScreen()
    with screen, handed_on(lambda text: screen.show({"event": "warning", "text": text})):
        try:
            execute(run.go_on, run, screen, again="")  # the command says how all continue
        except RaffedError as error:
            screen.show(failed_event(run, error))
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None


def _end_with_the_command() -> None:
    """Stop this run when the command that started it has gone, however it ended."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
