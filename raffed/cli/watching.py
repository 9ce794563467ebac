"""`raffed report --watch`: the report is written again while runs go on, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import typer

from raffed.cli.screen import Screen
from raffed.cli.signals import StopSignals
from raffed.errors import UsageError
from raffed.results.storage import is_url, named
from raffed.results.text import visible

EVERY = 5.0  # seconds between two looks at the files, and after which an open page loads itself again
NAP = 0.2  # seconds between two looks for a signal


def watch_report(runs: Sequence[str], place: str, screen: Screen, as_json: bool) -> None:
    """Write the report on `runs` to `place` whenever they change. Ctrl-C ends it with exit code 0.

    Raises:
        UsageError: One of the places is a URL.
    """
    for one in (*runs, place):
        if is_url(one):
            raise UsageError(
                f"{named(one)} is a URL, and --watch needs folders of this machine. Give a folder, or leave "
                "out --watch."
            )
    places, out = [Path(one) for one in runs], Path(place)
    with StopSignals(lambda: None) as signals:
        signals.round_done()  # a signal lets a report that is being written come to its end
        writer = _Writer(places, out, screen, as_json)
        with contextlib.suppress(KeyboardInterrupt):  # a second signal
            repeat(writer.write, lambda: snapshot(places), lambda: nap(signals), signals.asked)
        writer.end()
    if signals.code not in (0, 130):
        raise typer.Exit(signals.code)


def nap(signals: StopSignals) -> None:
    """Wait until it is time for the next look, or until a signal has come."""
    until = time.monotonic() + EVERY
    while time.monotonic() < until and not signals.asked():
        time.sleep(NAP)


class _Writer:
    """Writes the report again and again. The first time its summary is shown, later one line."""

    def __init__(self, places: Sequence[Path], out: Path, screen: Screen, as_json: bool) -> None:
        self._places, self._out, self._screen, self._as_json = places, out, screen, as_json
        self._path: Path | None = None
        self._said = ""

    def write(self) -> None:
        from raffed.api.reporting import reported, unpacked_records

        try:
            with unpacked_records(self._places) as here:
                found = reported(here, self._out, self._tell, reload=EVERY)
        except UsageError as error:  # the first run may not have begun
            self._tell(f"{error}; waiting")
            return
        first, self._path = self._path is None, found.path
        if first or self._as_json:
            self._screen.show({"event": "report", "path": named(found.path), "runs": found.rows})
        else:
            print(visible(f"report: {named(found.path)}, written again at {time.strftime('%H:%M:%S')}"))

    def _tell(self, text: str) -> None:
        """Say a thing once, and not again after every change."""
        if text not in self._said.splitlines():
            print(visible(f"raffed: {text}"), file=sys.stderr)
            self._said += f"{text}\n"

    def end(self) -> None:
        """Leave a page that does not load itself again."""
        from raffed.analysis.report import stop_reloading

        if self._path is not None:
            stop_reloading(self._path)
        print(f"raffed: no longer watching; {visible(named(self._path or self._out))} stays", file=sys.stderr)


READ = frozenset({"run.json", "sweep.json", "item.json", "study.json"})  # and the parts of metrics
LEFT_OUT = frozenset({"checkpoints", "vaults"})  # folders of which no report reads anything

Snapshot = frozenset[tuple[str, int, int]]


def snapshot(places: Iterable[Path]) -> Snapshot:
    """Return name, size and time of change of every file at or below `places` that a report reads."""
    found = set()
    for place in places:
        for folder, below, names in os.walk(place):
            below[:] = [name for name in below if name not in LEFT_OUT]
            for name in names:
                if name in READ or (name.endswith(".parquet") and not name.startswith(".")):
                    found.update(_known(Path(folder) / name))
    return frozenset(found)


def _known(path: Path) -> list[tuple[str, int, int]]:
    try:
        about = path.stat()
    except OSError:  # it was replaced or merged meanwhile
        return []
    return [(str(path), about.st_size, about.st_mtime_ns)]


def repeat(
    write: Callable[[], None],
    look: Callable[[], Snapshot],
    wait: Callable[[], None],
    stopped: Callable[[], bool],
) -> None:
    """Write at once, and again after every change, until it is stopped.

    Args:
        write: What is done. A file that changes meanwhile is seen at the next look.
        look: Returns what the files are like.
        wait: Waits between two looks.
        stopped: Whether to end. It is asked before every look.
    """
    before: Snapshot | None = None
    while not stopped():
        now = look()
        if now != before:
            write()
            before = now
        wait()
