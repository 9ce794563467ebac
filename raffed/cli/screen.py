"""What a person, a log or a program sees of runs and searches while they execute.

Everything is an event (raffed/api/running.py), and there are three renderers of it: JSON for programs,
lines for a log or a pipe, and bars on a terminal. --quiet is what all of them have in common.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import typer

from raffed.api.running import Event, Run, Shown, measured
from raffed.cli.messages import count_warning, counted, duration, going_on, percent, plain
from raffed.cli.signals import NOTHING
from raffed.cli.tables import show, show_differences, show_item, show_profile, show_result, show_summary
from raffed.errors import UsageError
from raffed.results.storage import named
from raffed.results.text import tell, visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from raffed.api.reporting import SweepTables
    from raffed.runs.run import RunResult
    from raffed.runtime.api import RoundProfile
    from raffed.search.request import Request

ROOMY = 100  # columns of a terminal that has room for a bar and a text
RECENT = 10  # number of last rounds from which speed and time left are computed
PARTS = 4  # lines that a log shows of each run among several, besides its beginning and its end
LOADING = "loading torch, data and actors"
Row = dict[str, str]  # of a plan: column → text
STOPPING = "finishing this round, then a checkpoint; once more to stop at once"


class Screen(Shown):
    """Shows only the folders of finished runs (--quiet), and what went wrong. The others are based on it."""

    overall: Overall | None = None  # set where there are several runs
    started: bool = False  # set by the first event; without one an interruption leaves nothing behind
    one_is_done: bool = False  # set once one of them is, so that something was written

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(error, KeyboardInterrupt) and not self.started:
            self.unbegun()
            raise SystemExit(130) from None  # main replaces the code by that of the signal, which it knows

    def show(self, event: Event, **more: Any) -> None:
        self.started = True
        with going_on():
            super().show(event, **more)

    def plan(self, rows: Sequence[Row], summary: str) -> None:
        """Show what would run: a row of texts for each cell, trial or run, and a line about all of it."""
        self.show({"event": "plan", "summary": summary, "rows": rows})

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            tell(named(text), error=True)

    def stopping(self) -> None:
        """Show that a signal came. A signal handler calls this, so it must not use buffered output."""
        with contextlib.suppress(OSError):  # stderr may be closed
            os.write(2, f"raffed: {STOPPING}\n".encode())

    def unbegun(self) -> None:
        """Show that the command ended before its run began."""
        self.close()
        tell(NOTHING, error=True)

    def close(self) -> None:
        """Remove what is on the screen. Called at least once."""

    def on_finished(
        self, event: Event, run: Run | None = None, result: RunResult | None = None, brief: bool = False
    ) -> None:
        tell(event["folder"])

    def on_failed(self, event: Event, run: Run | None = None) -> None:
        if run is None:  # else other runs are still executed
            self.close()
        title = "" if run is None else f"{run.title}: "
        self.say(f"raffed: {title}{' '.join(event['message'].split())}")

    def on_stopped(self, event: Event, run: Run | None = None) -> None:
        if run is None:  # else the command says it once
            self.close()
            self.say(f"raffed: stopped; continue with: {event['resume']}")

    def on_warning(self, event: Event, run: Run, first: bool) -> None:
        count_warning(event["text"])
        super().on_warning(event, run, first)

    def on_plan(self, event: Event) -> None:
        if rows := event["rows"]:
            show([*rows[0]], [[*row.values()] for row in rows], right="runs|finished|seed|rounds|trials")
        tell(f"{event['summary']}; nothing was run (--plan)")

    def on_trial(self, event: Event, rounds: int, warnings: Sequence[str]) -> None:
        for text in warnings:
            count_warning(text)


class JsonScreen(Screen):
    """Prints one JSON object per line, and nothing else on stdout.

    What libraries print meanwhile, such as Ray's notices, goes to stderr.
    """

    for_people: Collection[str] = ("begin", "said", "warning")
    for_both: Collection[str] = ("failed", "trial")

    def __init__(self) -> None:
        self._out = sys.stdout
        self._aside = contextlib.redirect_stdout(sys.stderr)

    def __enter__(self) -> Screen:
        self._aside.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, typer.Exit | typer.Abort):
            about = {"kind": type(error).__name__, "message": str(error)}
            self.write({"event": "error", **about, "exit_code": 2 if isinstance(error, UsageError) else 1})
        self._aside.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)

    def show(self, event: Event, **more: Any) -> None:
        self.started = True
        if event["event"] not in self.for_people:
            self.write(event)
        if event["event"] in self.for_people or event["event"] in self.for_both:
            super().show(event, **more)

    def write(self, event: Event) -> None:
        """Print an event."""
        with going_on():
            print(json.dumps(plain(dict(event)), allow_nan=False), file=self._out, flush=True)


class LineScreen(Screen):
    """Prints a line now and then, if stdout is a file, a pipe or a batch system's log."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._last = time.monotonic()
        self._trials: dict[tuple[str, str], Event] = {}

    def show(self, event: Event, **more: Any) -> None:
        if event["event"] in ("finished", "failed", "stopped"):
            self._ended(more.get("run"))
        super().show(event, **more)

    def _heading(self) -> str:
        """Return what a line about a run that begins starts with, if there are several; "" otherwise."""
        if self.overall is None or self.overall.total < 2:
            return ""
        self.overall.begun += 1
        return f"{self.overall.text}: "

    def _ended(self, run: Run | None) -> None:
        """Count one of several runs as ended."""
        if self.overall is not None:
            self.overall.ended += 1

    def on_begin(self, event: Event, run: Run | None = None) -> None:
        _print(f"{self._heading()}{event['title']}")
        self._pace = Pace()

    def on_round(self, event: Event, run: Run | None = None) -> None:
        done, rounds = event["round"], event["rounds"]
        if run is not None:
            if done % max(1, rounds // PARTS) == 0 and done != rounds:
                _print(f"{run.title}: round {done}/{rounds}  {measured(event)}")
            return
        pace = self._pace.text(event)
        if done in (1, rounds) or done % max(1, rounds // 10) == 0 or self._waited(60):
            self._last = time.monotonic()
            _print(f"round {done:>{len(str(rounds))}}/{rounds}  {measured(event)}  {pace}")

    def _waited(self, seconds: float) -> bool:
        return time.monotonic() - self._last > seconds

    def on_study(self, event: Event) -> None:
        if event["share"] in (0.0, 1.0) or self._waited(5):
            self._last = time.monotonic()
            _print(f"{100 * event['share']:3.0f} %  {event['what']}")

    def on_finished(
        self, event: Event, run: Run | None = None, result: RunResult | None = None, brief: bool = False
    ) -> None:
        if run is not None:
            both = [percent(event[name]) for name in ("accuracy", "personalization")]
            _print(f"{run.title}: done  aggregation {both[0]}  personalization {both[1]}")
        elif result is not None:
            self.close()
            show_result(result, brief)

    def on_profile(self, event: Event, profiles: Sequence[tuple[int, RoundProfile]]) -> None:
        self.close()
        show_profile(event["method"], profiles)

    def on_report(self, event: Event) -> None:
        show_summary(event["path"], event["runs"])

    def on_differences(self, event: Event) -> None:
        show_differences(event["tables"], event["note"])

    def on_table(self, event: Event, words: Collection[str]) -> None:
        self.close()
        show_item(event["title"], event["rows"], words)
        tell(f"report: {event['path']}")

    def on_tune(self, event: Event, request: Request) -> None:
        trials = sum(int(row["trials"]) for row in trial_rows(request))
        self.overall = Overall(trials + len(request.methods) * len(request.final_seeds()))
        data, rounds = request.base.data, counted(request.base.federation.rounds, "round")
        what = f"{', '.join(request.methods)} on {data.dataset}, {data.split}, {rounds}"
        how = f"{request.protocol} protocol, by {request.select} accuracy"
        _print(f"tune {what} → {event['folder']}; {how}")

    def on_trial(self, event: Event, rounds: int, warnings: Sequence[str]) -> None:
        super().on_trial(event, rounds, warnings)
        self._trials[event["method"], event["name"]] = event
        if event["state"] != "running":
            # Final runs have no validation part
            score = "" if event["score"] is None else f"  score {percent(event['score'])}"
            name = f"{event['method']}  {event['name']}  {event['state']}{score}"
            _print(f"{name}  {duration(event['seconds'])}  ({self._trials_done()})")

    def _trials_done(self) -> str:
        """Return how many trials and final runs have ended, and the time that the others may take."""
        ended = sum(trial["state"] != "running" for trial in self._trials.values())
        if self.overall is None:
            return str(ended)
        self.overall.ended = ended
        return f"{ended}/{max(ended, self.overall.total)}{self.overall.left}"

    def on_tuned(self, event: Event, tables: SweepTables) -> None:
        self.close()
        table, folder = tables.table, event["folder"]
        right = "|".join(title for title in table.titles if title not in table.left_aligned)
        show(table.titles, table.rows, right=right)
        tell(tables.note)
        for why in tables.failed:
            tell(f"failed: {why}", error=True)
        tell(f"raffed report {folder} --out {folder}/report draws the trials")


class BarScreen(LineScreen):
    """Shows progress bars on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.bar: Progress | None = None
        self._tasks: dict[Run | None, TaskID] = {}  # None: that of a run which executes alone
        self._whole: TaskID | None = None

    def on_begin(self, event: Event, run: Run | None = None) -> None:
        if run is None:
            self.close()
            super().on_begin(event)
        else:
            self._heading()
        if self.bar is None:
            self.bar = _progress()
            self.bar.start()
        self._show_overall()
        title = "" if run is None else visible(f"{run.title}  ")
        self._tasks[run] = self.bar.add_task(title, total=event["rounds"], waiting=LOADING)

    def on_round(self, event: Event, run: Run | None = None) -> None:
        text = measured(event, short=True)
        text = f"{text}  {self._pace.text(event)}" if run is None else f"{run.title}  {text}"
        self._update(run, event["round"], text)

    def on_study(self, event: Event) -> None:
        if None not in self._tasks or event["share"] == 0:
            self.on_begin({"title": event["what"], "rounds": 100})
        elif event["share"] == 1:
            self.close()
        else:
            self._update(None, round(100 * event["share"]), event["what"])

    def stopping(self) -> None:
        if None in self._tasks:
            self._update(None, None, STOPPING)
        else:
            super().stopping()

    def _update(self, run: Run | None, done: int | None, text: str) -> None:
        if self.bar is not None and run in self._tasks:
            self.bar.update(self._tasks[run], completed=done, description=visible(text), waiting="")

    def _ended(self, run: Run | None) -> None:
        super()._ended(run)
        if self.bar is not None and run in self._tasks:
            self.bar.remove_task(self._tasks.pop(run))
        self._show_overall()

    def _show_overall(self) -> None:
        if self.bar is None or self.overall is None or self.overall.total < 2:
            return
        if self._whole is None:
            self._whole = self.bar.add_task("", total=self.overall.total, waiting="")
        self.bar.update(self._whole, completed=self.overall.ended, description=self.overall.text)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
        self.bar = self._whole = None
        self._tasks.clear()


def _progress() -> Progress:
    """Return bars that fit the terminal.

    If there is not room for everything, the bar is dropped first and then the end of the text, but never the
    number of the round.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    words = TextColumn("{task.description}{task.fields[waiting]}", markup=False, table_column=rest)
    bar = [BarColumn(bar_width=16)] if Console().width >= ROOMY else []
    columns = (SpinnerColumn(), *bar, MofNCompleteColumn(table_column=Column(no_wrap=True)), words)
    return Progress(*columns, refresh_per_second=5, expand=True)


class Overall:
    """Which of several runs it is, and the time that all that are left may take.

    Args:
        total: Number of runs, those that were finished before not among them.
    """

    def __init__(self, total: int) -> None:
        self.total, self.begun, self.ended = total, 0, 0
        self._since = time.monotonic()

    @property
    def left(self) -> str:
        """Such as ", about 1:02:03 left". The time is known once a run has ended."""
        if not self.ended or self.ended >= self.total:
            return ""
        spent = time.monotonic() - self._since
        return f", about {duration(spent / self.ended * (self.total - self.ended))} left"

    @property
    def text(self) -> str:
        """Such as "run 23 of 61, about 1:02:03 left"."""
        return f"run {min(self.begun, self.total)} of {self.total}{self.left}"


class Pace:
    """Speed and time left, computed from the last rounds."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)

    def text(self, event: Event) -> str:
        """Take a round into account, and return how many clients are trained per second and the time left."""
        self._recent.append((event["participants"], event["seconds"]))
        spent = max(sum(seconds for _, seconds in self._recent), 1e-9)
        speed = sum(clients for clients, _ in self._recent) / spent
        left = (event["rounds"] - event["round"]) * spent / len(self._recent)
        return f"{speed:.3g} clients/s" + (f"  {duration(left)} left" if left else "")


def make_screen(as_json: bool, quiet: bool = False) -> Screen:
    """Return the screen for these flags and this stdout."""
    if as_json:
        return JsonScreen()
    if quiet:
        return Screen()
    return BarScreen() if sys.stdout.isatty() else LineScreen()


def _print(text: str) -> None:
    tell(named(text))


def trial_rows(request: Request) -> list[Row]:
    """Return a row for each trial of a search, or one for each method whose settings Optuna proposes."""
    from raffed.search.folder import trial_name
    from raffed.search.space import axes_of, budget_of, described, proposed

    rows: list[Row] = []
    for method in request.methods:
        axes = axes_of(request, method)
        if request.search == "optuna" and axes:
            among = "; ".join(f"{name} in {axis}" for name, axis in described(axes, request.search).items())
            trials = {f"proposed: {among}": budget_of(request)}
        else:
            trials = dict.fromkeys(map(trial_name, proposed(request, method)), 1)
        rows += [{"method": method, "trials": str(trials[setting]), "setting": setting} for setting in trials]
    return rows
