"""What a person, a log or a program sees of several runs that execute at the same time."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from raffed.cli.numbers import percent
from raffed.cli.pace import Overall, heading
from raffed.cli.screen import BarScreen, JsonScreen, LineScreen, Screen
from raffed.cli.warned import count_warning
from raffed.commands.seeds import SeedRun
from raffed.commands.side_by_side import Event
from raffed.config.validation import Json
from raffed.results.storage import named
from raffed.results.visible import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from raffed.experiments.result import RunResult

ENDS = ("finished", "failed", "stopped", "error")  # events after which a run does nothing more
PARTS = 4  # lines that a log shows of each run, besides its beginning and its end


class RunsBoard:
    """Shows only the folders of finished runs (--quiet), and what went wrong. The others are based on it."""

    overall: Overall | None = None

    def kept(self, run: SeedRun, result: RunResult) -> None:
        """Show a run that was finished before."""
        self.heard(run, finished_event(run, result))

    def started(self, run: SeedRun) -> None:
        """Show that the process of a run was started."""

    def heard(self, run: SeedRun, event: Event) -> None:
        """Show an event of a run."""
        if event["event"] == "finished":
            self.finished(run, event)
        elif event["event"] == "round":
            self.round(run, event)
        elif event["event"] in ("failed", "error"):
            self.said(f"raffed: {run.title}: {event['message']}")

    def round(self, run: SeedRun, event: Event) -> None:
        """Show that a round of a run is done."""

    def finished(self, run: SeedRun, event: Event) -> None:
        """Show that a run came to its end."""
        print(visible(named(run.folder)), flush=True)

    def said(self, line: str) -> None:
        """Show a line that belongs on standard error."""
        print(visible(named(line)), file=sys.stderr, flush=True)

    def warned(self, text: str) -> None:
        """Count a warning of a run, for the end of the command."""
        count_warning(text)

    def close(self) -> None:
        """Remove what is on the screen. May be called again."""


class JsonRuns(RunsBoard):
    """Prints the events of all runs as JSON, with their method and seed."""

    def __init__(self, screen: JsonScreen) -> None:
        self._screen = screen

    def heard(self, run: SeedRun, event: Event) -> None:
        self._screen.relay({**event, "folder": named(run.folder)} if "folder" in event else event)
        if event["event"] == "failed":
            super().heard(run, event)


class LineRuns(RunsBoard):
    """Prints a few lines for each run, for a file, a pipe or a batch system's log."""

    def started(self, run: SeedRun) -> None:
        print(visible(f"{heading(self.overall)}{run.title} → {named(run.folder)}"), flush=True)

    def heard(self, run: SeedRun, event: Event) -> None:
        if event["event"] in ENDS and self.overall is not None:
            self.overall.end()
        super().heard(run, event)

    def round(self, run: SeedRun, event: Event) -> None:
        done, rounds = _whole(event["round"]), _whole(event["rounds"])
        if done % max(1, rounds // PARTS) == 0 and done != rounds:
            print(visible(f"{run.title}: {round_text(event)}"), flush=True)

    def finished(self, run: SeedRun, event: Event) -> None:
        print(visible(f"{run.title}: {final_text(event)}"), flush=True)


class BarRuns(LineRuns):
    """Keeps a line for each run that works up to date, on a terminal."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[SeedRun, TaskID] = {}
        self._whole: TaskID | None = None

    def started(self, run: SeedRun) -> None:
        if self._bars is None:
            self._bars = _progress()
            self._bars.start()
        if heading(self.overall):
            self._show_overall()
        rounds = run.config.federation.rounds
        self._tasks[run] = self._bars.add_task(visible(run.title), total=rounds, text="begins")

    def round(self, run: SeedRun, event: Event) -> None:
        if self._bars is not None and run in self._tasks:
            text = round_text(event).partition("  ")[2]
            self._bars.update(self._tasks[run], completed=_whole(event["round"]), text=text)

    def heard(self, run: SeedRun, event: Event) -> None:
        if event["event"] in ENDS and run in self._tasks:
            assert self._bars is not None
            self._bars.remove_task(self._tasks.pop(run))
        super().heard(run, event)
        if event["event"] in ENDS:
            self._show_overall()

    def _show_overall(self) -> None:
        if self._bars is None or self.overall is None or self.overall.total < 2:
            return
        if self._whole is None:
            self._whole = self._bars.add_task("all", total=self.overall.total, text="")
        self._bars.update(self._whole, completed=self.overall.ended, text=self.overall.text)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = self._whole = None
        self._tasks.clear()


def make_runs_board(screen: Screen) -> RunsBoard:
    """Return the board that fits a screen."""
    if isinstance(screen, JsonScreen):
        return JsonRuns(screen)
    if isinstance(screen, BarScreen):
        return BarRuns()
    return LineRuns() if isinstance(screen, LineScreen) else RunsBoard()


def finished_event(run: SeedRun, result: RunResult) -> dict[str, Json]:
    """Return the event of a run that was finished before, as its process wrote it then."""
    return {
        "event": "finished",
        "method": run.config.method,
        "seed": run.seed,
        "folder": str(run.folder),
        "hashes": dict(result.hashes),
        "accuracy": result.accuracy,
        "personalization": result.personalization,
    }


def round_text(event: Event) -> str:
    """Return the number of a round, its loss, and its accuracies if they were measured."""
    loss = _number(event.get("loss"))
    parts = [f"round {event['round']}/{event['rounds']}", f"loss {loss:.4g}"]
    for name, key in (("aggregation", "accuracy"), ("personalization", "personal")):
        if event.get(key) is not None:
            parts.append(f"{name} {percent(_number(event[key]))}")
    return "  ".join(parts)


def final_text(event: Event) -> str:
    """Return the accuracies of a finished run."""
    names = ("accuracy", "personalization")
    both = [percent(_number(event.get(name))) for name in names]
    return f"done  aggregation {both[0]}  personalization {both[1]}"


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _whole(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _progress() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    return Progress(*columns, refresh_per_second=5)
