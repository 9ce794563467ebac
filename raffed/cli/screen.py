"""What a person, a log or a program sees of a run while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from raffed.cli.deadlines import GRACE
from raffed.cli.numbers import plain
from raffed.cli.pace import Overall, Pace, Waiting, heading
from raffed.cli.signals import NOTHING
from raffed.commands.progress import measured
from raffed.errors import UsageError
from raffed.results.storage import named
from raffed.results.visible import visible

if TYPE_CHECKING:
    import pandas as pd
    from rich.progress import Progress, TaskID

    from raffed.analysis.reproduction.verdict_rows import Value
    from raffed.config.validation import Json
    from raffed.experiments.events import RoundEvent
    from raffed.experiments.result import RunResult

ROOMY = 100  # columns of a terminal that has room for a bar and a text
STOPPING = f"finishing this round (up to {GRACE:g} s), then a checkpoint; once more to stop at once"
T = TypeVar("T")


class Screen:
    """Shows only the folder of a finished run (--quiet). The other screens are based on it."""

    overall: Overall | None = None  # set where several runs follow one another
    one_is_done: bool = False  # set once one of them is, so that something was written

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, title: str, method: str, rounds: int, seed: int | None = None) -> None:
        """Show that a run begins. `title` is one line about it; `seed` is given if it is one of several."""

    def round(self, event: RoundEvent) -> None:
        """Show that a round is done."""

    def studying(self, what: str, share: float) -> None:
        """Show what a study is doing, and the share of it that is done."""

    def stopping(self) -> None:
        """Show that a signal came. A signal handler calls this, so it must not use buffered output."""
        with contextlib.suppress(OSError):  # stderr may be closed
            os.write(2, f"raffed: {STOPPING}\n".encode())

    def stopped(self, where: str, again: str) -> None:
        """Show that the run ended early, and the command `again` that continues it."""
        self.close()
        print(f"raffed: stopped; continue with: {visible(named(again))}", file=sys.stderr)

    def unbegun(self) -> None:
        """Show that the command ended before its run began."""
        self.close()
        print(NOTHING, file=sys.stderr)

    def failed(self, where: str, error: Exception) -> None:
        """Show that the run failed and others follow."""
        self.close()
        print(f"raffed: {visible(named(' '.join(str(error).split())))}", file=sys.stderr)

    def finished(self, result: RunResult, brief: bool = False) -> None:
        """Show that the run came to its end; `brief` if others follow."""
        self.close()
        print(visible(named(result.folder or "")))

    def reported(self, path: str, runs: list[dict[str, str]]) -> None:
        """Show that a report was written."""

    def compared(self, tables: Mapping[str, pd.DataFrame], note: str) -> None:
        """Show differences between methods over common seeds, and a note about methods with too few seeds."""

    def tabled(self, path: str, title: str, rows: list[dict[str, str]], words: Collection[str]) -> None:
        """Show a table of a paper that was reproduced."""

    def judged(self, verdicts: Sequence[Mapping[str, Value]]) -> None:
        """Show the rows of verdicts.json of a paper's table."""

    def close(self) -> None:
        """Remove what is on the screen. Called at least once."""


class JsonScreen(Screen):
    """Prints one JSON object per line, and nothing else on stdout.

    What libraries print meanwhile, such as Ray's notices, goes to stderr.
    """

    def __init__(self) -> None:
        self._about: dict[str, str | int] = {"method": ""}
        self._out = sys.stdout
        self._aside = contextlib.redirect_stdout(sys.stderr)

    def __enter__(self) -> Screen:
        self._aside.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if about := error_fields(error):
            self._emit("error", **about)
        self._aside.__exit__(kind, error, trace)

    def start(self, title: str, method: str, rounds: int, seed: int | None = None) -> None:
        self._about = {"method": method} if seed is None else {"method": method, "seed": seed}

    def round(self, event: RoundEvent) -> None:
        self._emit("round", **self._about, **event.as_dict())

    def studying(self, what: str, share: float) -> None:
        self._emit("study", what=what, share=share)

    def stopped(self, where: str, again: str) -> None:
        self._emit("stopped", **self._about, folder=named(where), resume=named(again))

    def failed(self, where: str, error: Exception) -> None:
        super().failed(where, error)
        kind, message = type(error).__name__, str(error)
        self._emit("failed", **self._about, folder=named(where), kind=kind, message=message)

    def finished(self, result: RunResult, brief: bool = False) -> None:
        self._emit(
            "finished",
            **self._about,
            folder=named(result.folder or ""),
            hashes=result.hashes,
            accuracy=result.accuracy,
            personalization=result.personalization,
            accuracy_best=result.accuracy_best[0],
            personalization_by_samples=result.personalization_by_samples[0],
            **({"ended_early": result.ended_early} if result.ended_early else {}),
            **({} if result.best_round is None else {"best_round": result.best_round}),
        )

    def reported(self, path: str, runs: list[dict[str, str]]) -> None:
        self._emit("report", path=path, runs=runs)

    def compared(self, tables: Mapping[str, pd.DataFrame], note: str) -> None:
        if tables or note:
            rows = {title: frame.to_dict("records") for title, frame in tables.items()}
            self._emit("differences", tables=rows, note=note)

    def relay(self, event: Mapping[str, Json]) -> None:
        """Print an event that another process has written for this one."""
        print(json.dumps(plain(dict(event)), allow_nan=False), file=self._out, flush=True)

    def tabled(self, path: str, title: str, rows: list[dict[str, str]], words: Collection[str]) -> None:
        self._emit("table", path=path, title=title, rows=rows)

    def judged(self, verdicts: Sequence[Mapping[str, Value]]) -> None:
        for row in verdicts:
            self._emit("verdict", **row)

    def _emit(self, event: str, **values: T) -> None:
        print(json.dumps({"event": event, **plain(values)}, allow_nan=False), file=self._out, flush=True)


class LineScreen(Screen):
    """Prints a line every few rounds, if stdout is a file, a pipe or a batch system's log."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._shown = time.monotonic()

    def start(self, title: str, method: str, rounds: int, seed: int | None = None) -> None:
        print(visible(named(heading(self.overall) + title)), flush=True)
        self._pace = Pace()

    def round(self, event: RoundEvent) -> None:
        self._pace.add(event)
        every = max(1, event.rounds // 10)
        waited = time.monotonic() - self._shown
        if event.round in (1, event.rounds) or event.round % every == 0 or waited > 60:
            self._shown = time.monotonic()
            done = f"{event.round:>{len(str(event.rounds))}}/{event.rounds}"
            print(f"round {done}  {measured(event)}  {self._pace.text(event)}", flush=True)

    def studying(self, what: str, share: float) -> None:
        waited = time.monotonic() - self._shown
        if share in (0.0, 1.0) or waited > 5:
            self._shown = time.monotonic()
            print(visible(f"{100 * share:3.0f} %  {what}"), flush=True)

    def finished(self, result: RunResult, brief: bool = False) -> None:
        from raffed.cli.tables import show_result

        self.close()
        show_result(result, brief)

    def reported(self, path: str, runs: list[dict[str, str]]) -> None:
        from raffed.cli.tables import show_summary

        show_summary(path, runs)

    def compared(self, tables: Mapping[str, pd.DataFrame], note: str) -> None:
        from raffed.cli.tables import show_differences

        show_differences(tables, note)

    def tabled(self, path: str, title: str, rows: list[dict[str, str]], words: Collection[str]) -> None:
        from raffed.cli.tables import show_item

        self.close()
        show_item(title, rows, words)
        print(visible(f"report: {path}"))


class BarScreen(LineScreen):
    """Shows a progress bar, on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.bar: Progress | None = None
        self._task: TaskID | None = None

    def start(self, title: str, method: str, rounds: int, seed: int | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
        from rich.table import Column

        self.close()
        super().start(title, method, rounds)
        # If there is not room for everything, the bar is dropped first and then the end of the text, but
        # never the number of the round.
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        words = TextColumn("{task.description}{task.fields[waiting]}", markup=False, table_column=rest)
        bar = [BarColumn(bar_width=16)] if Console().width >= ROOMY else []
        columns = (SpinnerColumn(), *bar, MofNCompleteColumn(table_column=Column(no_wrap=True)), words)
        self.bar = Progress(*columns, refresh_per_second=5, expand=True)
        if self.overall is not None and self.overall.total > 1:
            done, text = self.overall.ended, self.overall.text
            self.bar.add_task(text, total=self.overall.total, completed=done, waiting="")
        self._task = self.bar.add_task("", total=rounds, waiting=Waiting())
        self.bar.start()

    def round(self, event: RoundEvent) -> None:
        self._pace.add(event)
        if self.bar is not None and self._task is not None:
            text = f"{measured(event, short=True)}  {self._pace.text(event)}"
            self.bar.update(self._task, completed=event.round, description=text, waiting="")

    def studying(self, what: str, share: float) -> None:
        if self.bar is None or self._task is None or share == 0:
            self.start(what, "", 100)
        elif share == 1:
            self.close()
        else:
            self.bar.update(self._task, completed=round(100 * share), description=visible(what), waiting="")

    def stopping(self) -> None:
        if self.bar is None or self._task is None:
            super().stopping()
        else:
            self.bar.update(self._task, description=STOPPING, waiting="")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def make_screen(as_json: bool, quiet: bool) -> Screen:
    """Return the screen for these flags and this stdout."""
    if as_json:
        return JsonScreen()
    if quiet:
        return Screen()
    return BarScreen() if sys.stdout.isatty() else LineScreen()


def error_fields(error: BaseException | None) -> dict[str, str | int]:
    """Return the fields of the event `error`; none if the command did not end by an error."""
    if not isinstance(error, Exception) or _is_exit(error):
        return {}
    code = 2 if isinstance(error, UsageError) else 1
    return {"kind": type(error).__name__, "message": str(error), "exit_code": code}


def _is_exit(error: Exception) -> bool:
    import typer

    return isinstance(error, typer.Exit | typer.Abort)
