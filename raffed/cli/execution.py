"""Execute runs for a command while listening for signals: one, or many, such as those of --seeds."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import typer

from raffed.api.many_runs import MOST, Ending, execute_all, execute_at_once, failed_event
from raffed.api.running import Event, Run, Shown, finished_event, holds_run
from raffed.cli.checking import write_report
from raffed.cli.config import Tables, read_local
from raffed.cli.messages import counted
from raffed.cli.options import Flags
from raffed.cli.screen import JsonScreen, Overall, Screen
from raffed.cli.signals import StopSignals
from raffed.config.run import RunConfig
from raffed.config.validation import table_of
from raffed.errors import NumericsError, RaffedError, UsageError, check_range
from raffed.methods.authors import is_authors
from raffed.own import gate
from raffed.results.storage import named
from raffed.runs.events import RoundEvent, handed_on

if TYPE_CHECKING:
    from raffed.runs.run import RoundWatcher, RunResult
    from raffed.runtime.api import RoundProfile

Work = Callable[..., "RunResult"]  # takes watch, stop and begun, as `raffed.run` does


def execute(
    work: Work,
    run: Run,
    screen: Screen,
    *,
    again: str | None = None,
    watchers: Sequence[RoundWatcher] = (),
    note: str = "",
) -> None:
    """Do the work while listening for signals. Exits with 130 or 143 if one stopped it before its end.

    Args:
        work: The function that executes the run, or what is left of it.
        run: The run.
        screen: Where it is shown.
        again: If this run is one of several, the command that continues them. A signal in the last round of
            this run then keeps the others from beginning.
        watchers: What receives each round beside the screen.
        note: What the first line says beside the run.
    """
    folder = run.folder
    continues = again or f"raffed resume {shlex.quote(str(folder))}"
    title = f"{run.title} → {folder}" if "seed" in run.about else headline(run.config, folder) + note

    def begun() -> None:
        screen.show({"event": "begin", "title": title, "rounds": run.config.federation.rounds})

    with StopSignals(screen.stopping) as signals:

        def watch(event: RoundEvent) -> None:
            signals.round_done()
            screen.show({"event": "round", **run.about, **event.as_dict()})
            for watcher in watchers:
                watcher(event)

        try:
            result = work(watch=watch, stop=signals.asked, begun=begun)
        except (KeyboardInterrupt, Exception) as error:
            if not isinstance(error, KeyboardInterrupt) and not signals.cut:
                raise
            if screen.one_is_done or holds_run(folder):
                screen.show(stopped_event(run.about, folder, continues))
            else:
                screen.unbegun()
            raise SystemExit(signals.code or 130) from None
    if result.state != "finished":
        screen.show(stopped_event(run.about, folder, continues))
        raise typer.Exit(signals.code or 1)
    screen.show(finished_event(run.about, result), result=result, brief=again is not None)
    screen.one_is_done = True
    if again is not None and signals.asked():  # this run has ended anyway, but those after it must not begin
        screen.show(stopped_event(run.about, folder, continues))
        raise typer.Exit(signals.code)


def stopped_event(about: Event, place: Path, again: str) -> Event:
    """Return the event of work that ended early, with the command that continues it."""
    return {"event": "stopped", **about, "folder": named(place), "resume": named(again)}


def headline(config: RunConfig, folder: Path) -> str:
    """Return one line about a run."""
    from raffed.data.splits import style_words  # late, because it loads NumPy

    data, rounds = config.data, counted(config.federation.rounds, "round")
    numbers = ", ".join(f"{name}={value}" for name, value in data.transform_args.items())
    args = ", ".join(f"{name}={value}" for name, value in config.args.items())
    authors = is_authors(config.method)
    style = "of the engine's own" if authors else style_words(data.transform, data.split)
    return (
        f"{config.method}{f' with {args}' if args else ''} on {data.dataset}, {data.split}, "
        f"{config.model.name}, {rounds}, seed {config.seed}, transform "
        f"{style}{f' with {numbers}' if numbers else ''} → {folder}"
    )


class RoundTimes:
    """Collects the profile of each round of one run. It is a watcher of the run."""

    def __init__(self) -> None:
        self._found: list[tuple[int, RoundProfile]] = []

    def __call__(self, event: RoundEvent) -> None:
        if event.profile is not None:
            self._found.append((event.round, event.profile))

    def show(self, shown: Shown, method: str) -> None:
        """Show the table, or print the event `profile` for programs."""
        if self._found:  # else the run was finished before
            rounds = [{"round": number, "seconds": row.total, **row._asdict()} for number, row in self._found]
            shown.show({"event": "profile", "method": method, "rounds": rounds}, profiles=self._found)


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


def check_single(seeds: int | None, given: Mapping[str, object]) -> None:
    """Refuse options that follow a single run where there are several."""
    names = [name for name, value in given.items() if value]
    if seeds is not None and names:
        raise UsageError(
            f"{' and '.join(names)} cannot be used with --seeds, whose runs execute at the same time; leave "
            "it out, or start a run for each --seed"
        )


def says_execution(file: Path | None, flags: Flags) -> bool:
    """Return whether flags or a file name the kind of execution, although it may be the default."""
    tables: Tables = read_local(file) if file else {}
    return "runtime.execution" in flags or "execution" in table_of(tables.get("runtime"))


def run_many(runs: Sequence[Run], out: Path, screen: Screen, profile: bool = False) -> None:
    """Execute runs, or what is left of them, and report on all.

    Args:
        runs: The runs.
        out: The folder of everything.
        screen: Shows the runs and the report.
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
        runs, screen, in_turn=in_turn, together=lambda left: execute_stoppable(left, screen, out)
    )
    _end(runs, endings, out, screen)


def execute_stoppable(runs: Sequence[Run], screen: Screen, out: Path) -> dict[Run, Ending]:
    """Execute runs in a process each, as many at a time as the cores allow.

    Exits with 130 or 143 if a signal stopped them. `out` is named as the place where they continue.
    """

    def stopped() -> None:
        screen.show(stopped_event({}, out, _again(out)))

    screen.overall = Overall(len(runs))
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
    screen.overall = None
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

    unbegun = stopping


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
