"""What a person, a log or a program sees of a sweep while it runs."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from raffed.cli.numbers import counted, duration, percent, plain
from raffed.cli.screen import error_fields
from raffed.cli.warned import count_warning
from raffed.results.storage import named
from raffed.results.visible import visible

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from raffed.experiments.tuning.request import Request
    from raffed.experiments.tuning.trials import Trial

SHOWN = 24  # most trials in the table on a terminal
WORDS = {
    "running": "cyan",
    "failed": "red",
    "done": "green",
    "pruned": "yellow",
}  # state → colour, in the order of the table
T = TypeVar("T")


class Board:
    """Shows one line for each finished trial: for a file, a pipe or a batch system's log."""

    def __init__(self) -> None:
        self._trials: dict[tuple[str, str], Trial] = {}
        self._total, self._since = 0, time.monotonic()

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, request: Request, out: Path) -> None:
        """Show that the sweep begins."""
        self._count(request)
        data = request.base.data
        what = (
            f"{', '.join(request.methods)} on {data.dataset}, {data.split}, "
            f"{counted(request.base.federation.rounds, 'round')}"
        )
        told = f"tune {what} → {named(out)}; {request.protocol} protocol, by {request.select} accuracy"
        print(visible(told), flush=True)

    def _count(self, request: Request) -> None:
        from raffed.cli.planning import trial_rows

        trials = sum(int(row["trials"]) for row in trial_rows(request))
        self._total = trials + len(request.methods) * len(request.final_seeds())
        self._since = time.monotonic()

    def _progress(self) -> str:
        """Return how many trials and final runs have ended, and the time that the others may take."""
        ended = sum(one.state != "running" for one in self._trials.values())
        told = f"{ended}/{max(ended, self._total)}"
        left = (time.monotonic() - self._since) / max(ended, 1) * (self._total - ended)
        return f"{told}, about {duration(left)} left" if ended and left > 0 else told

    def trial(self, method: str, trial: Trial, rounds: int) -> None:
        """Show that a trial began, reported a round, or ended, and count its warnings."""
        for text in trial.warnings:
            count_warning(text)
        self._show(method, trial, rounds)

    def _show(self, method: str, trial: Trial, rounds: int) -> None:
        self._trials[method, trial.name] = trial
        if trial.state != "running":
            # Final runs have no validation part
            scored = "" if math.isnan(trial.score) else f"  score {percent(trial.score)}"
            print(
                (
                    f"{visible(f'{method}  {trial.name}')}  {trial.state}{scored}  "
                    f"{duration(trial.seconds)}  ({self._progress()})"
                ),
                flush=True,
            )

    def stopped(self, again: str) -> None:
        """Show that the sweep was interrupted, and the command `again` that continues it."""
        self.close()
        print(f"raffed: stopped; continue with: {visible(again)}", file=sys.stderr)

    def finished(self, sweep: Mapping[str, object], out: Path) -> None:
        """Show that the sweep came to its end, complete or not."""
        from raffed.cli.checking import write_tuning

        self.close()
        write_tuning(out, sweep, shown=True)

    def close(self) -> None:
        """Remove what is on the screen. May be called again."""


class JsonBoard(Board):
    """Prints one JSON object per line, and nothing else on stdout."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if about := error_fields(error):
            self._emit("error", **about)
        self.close()

    def start(self, request: Request, out: Path) -> None:
        self._emit("tune", request=request.as_dict(), folder=named(out))

    def _show(self, method: str, trial: Trial, rounds: int) -> None:
        self._emit("trial", method=method, **trial.as_dict())

    def stopped(self, again: str) -> None:
        self._emit("stopped", resume=again)

    def finished(self, sweep: Mapping[str, object], out: Path) -> None:
        from raffed.cli.checking import write_tuning

        write_tuning(out, sweep, shown=False)
        self._emit("tuned", folder=named(out), **sweep)

    def _emit(self, event: str, **values: T) -> None:
        print(json.dumps({"event": event, **plain(values)}, allow_nan=False), flush=True)


class LiveBoard(Board):
    """Keeps a table up to date, on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._live: Live | None = None

    def _show(self, method: str, trial: Trial, rounds: int) -> None:
        from rich.live import Live

        self._trials[method, trial.name] = trial
        if self._live is None:
            self._live = Live(refresh_per_second=4)
            self._live.start()
        self._live.update(self._table(rounds))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self, rounds: int) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table("method", "trial", "state", box=SIMPLE_HEAD, pad_edge=False)
        for name in ("round", "score", "time"):
            table.add_column(name, justify="right")
        order = sorted(self._trials.items(), key=lambda one: list(WORDS).index(one[1].state))
        best = max((t.score for t in self._trials.values() if not math.isnan(t.score)), default=math.nan)
        for (method, name), trial in order[:SHOWN]:
            shown = Text(percent(trial.score), style="bold" if trial.score == best else "")
            state = Text(trial.state, style=WORDS[trial.state])
            table.add_row(
                Text(visible(method)),
                Text(visible(name)),
                state,
                f"{trial.rounds}/{rounds}",
                shown,
                duration(trial.seconds),
            )
        more = f"and {len(order) - SHOWN} more; " if len(order) > SHOWN else ""
        table.caption = f"{more}{self._progress()}"
        return table


def make_board(as_json: bool) -> Board:
    """Return the board for these flags and this stdout."""
    if as_json:
        return JsonBoard()
    return LiveBoard() if sys.stdout.isatty() else Board()
