"""Carry out the work of a run, or of what is left of it, while listening for signals."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from raffed.api.progress import Event, finished_event
from raffed.api.running import Run, holds_run
from raffed.cli.messages import counted
from raffed.cli.screen import Screen
from raffed.cli.signals import StopSignals
from raffed.config.run import RunConfig
from raffed.results.storage import named

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent
    from raffed.runs.result import RunResult
    from raffed.runs.run import RoundWatcher

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
    screen.started = True

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
            _told_end(run, screen, continues)
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


def _told_end(run: Run, screen: Screen, continues: str) -> None:
    """Report that a run was ended from outside, and the command that continues it."""
    if screen.one_is_done or holds_run(run.folder):
        screen.show(stopped_event(run.about, run.folder, continues))
    else:
        screen.unbegun()


def headline(config: RunConfig, folder: Path) -> str:
    """Return one line about a run."""
    from raffed.data.splits import style_words  # late, because it loads NumPy

    data, rounds = config.data, counted(config.federation.rounds, "round")
    numbers = ", ".join(f"{name}={value}" for name, value in data.transform_args.items())
    args = ", ".join(f"{name}={value}" for name, value in config.args.items())
    return (
        f"{config.method}{f' with {args}' if args else ''} on {data.dataset}, {data.split}, "
        f"{config.model.name}, {rounds}, seed {config.seed}, transform "
        f"{style_words(data.transform, data.split)}{f' with {numbers}' if numbers else ''} → {folder}"
    )
