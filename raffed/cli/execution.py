"""Carry out the work of a run, or of what is left of it, while listening for signals."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from raffed.cli.screen import Screen
from raffed.cli.signals import StopSignals
from raffed.commands.running import holds_run, start_or_continue
from raffed.config.run import RunConfig
from raffed.results.folder_names import RUN_FILE
from raffed.runtime.ray_backend.endings import lost, own

if TYPE_CHECKING:
    from raffed.experiments.result import RunResult
    from raffed.experiments.run import RoundWatcher, Stop

Work = Callable[["RoundWatcher", "Stop"], "RunResult"]


def execute(work: Work, folder: Path, screen: Screen, again: str | None = None) -> None:
    """Do the work while listening for signals. Exits with 130 or 143 if one stopped it before its end.

    If this run is one of several, `again` is the command that continues them. A signal in the last round of
    this run then keeps the others from beginning.
    """
    continues = again or f"raffed resume {shlex.quote(str(folder))}"

    def part() -> None:
        # First, because on a busy machine there is no time for both
        _told_end(folder, screen, continues)
        ended_here(folder)

    own.speak_for(folder / RUN_FILE, continues)
    with StopSignals(screen.stopping, part) as signals:

        def watch(event: object) -> None:
            signals.round_done()
            screen.round(event)  # type: ignore[arg-type]

        try:
            result = work(watch, signals.asked)
        except (KeyboardInterrupt, Exception) as error:
            if not isinstance(error, KeyboardInterrupt) and not signals.cut:
                raise
            _told_end(folder, screen, continues)
            raise SystemExit(signals.code or 130) from None
    if result.state != "finished":
        screen.stopped(str(folder), continues)
        raise typer.Exit(signals.code or 1)
    screen.finished(result, brief=again is not None)
    screen.one_is_done = True
    if again is not None and signals.asked():  # this run has ended anyway, but those after it must not begin
        screen.stopped(str(folder), continues)
        raise typer.Exit(signals.code)


def _told_end(folder: Path, screen: Screen, continues: str) -> None:
    """Report that a run was ended from outside, and the command that continues it."""
    if (what := lost()) is not None:
        print(f"raffed: {what} died", file=sys.stderr)
    if screen.one_is_done or holds_run(folder):
        screen.stopped(str(folder), continues)
    else:
        screen.unbegun()


def ended_here(folder: Path) -> None:
    """Prepare for the process to end in the middle of a run.

    Its Ray ends first, and run.json must not say that the run is still running.
    """
    own.end_all()
    if holds_run(folder):
        from raffed.experiments.endings import (
            mark_interrupted,
        )  # only if needed, because the main thread may be writing it

        mark_interrupted(folder, mine=True)


def begun_or_new(
    config: RunConfig, folder: Path, screen: Screen, begun: Callable[[], None], accept: bool = False
) -> Work:
    """Return the work of a run, or of what is left of it if its folder holds a part.

    `begun` is called once everything has been checked that can be checked before the data are read. `accept`
    says whether own code may have changed since the run was begun.
    """
    return lambda watch, stop: start_or_continue(config, folder, watch, stop, begun, accept)


def followed_by(work: Work, also: RoundWatcher) -> Work:
    """Return the same work, whose rounds another watcher also receives."""
    from raffed.experiments.trackers.base import together

    return lambda watch, stop: work(together([watch, also]), stop)


@contextlib.contextmanager
def beginning(screen: Screen) -> Iterator[None]:
    """Listen for signals before a run begins. Ctrl-C then ends the command and leaves nothing behind."""
    try:
        yield
    except KeyboardInterrupt:
        screen.unbegun()
        raise SystemExit(130) from None  # main replaces the code by that of the signal, which it knows
