"""Execute several runs at the same time, each in a process of its own.

Such a process is the command line with a hidden command (raffed/cli/seed_process.py). It reads on its
standard input what to run, and writes its events to its standard output, as JSON. When its standard input
ends, the command that started it has gone, and it stops like after a signal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Protocol, TypeAlias

from raffed.commands.seeds import INSIDE, Place, SeedRun
from raffed.config.validation import Json
from raffed.errors import NumericsError
from raffed.references import gate

GRACE = 8.5  # seconds from the request to stop until a process that still works is killed
POLL = 0.2
STOPPED = (129, 130, 143, -1, -2, -15)  # exit codes after a signal; the negative ones while Python starts
# The process finds modules where this one does, before it imports anything
PROGRAM = "import sys; sys.path[:] = {path!r}; from raffed.cli import main; main(['seed-process'])"
Event: TypeAlias = Mapping[str, Json]
Stop = Callable[[], bool]


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        state: "finished", "stopped" or "failed".
        why: The reason of a failure.
        refused: Whether the request itself is at fault, so that no other seed would fare better.
        diverged: Whether its training diverged.
    """

    state: str
    why: str = ""
    refused: bool = False
    diverged: bool = False


class RunsShown(Protocol):
    """What is shown of several runs while they execute."""

    def started(self, run: SeedRun) -> None:
        """Show that the process of a run was started."""

    def heard(self, run: SeedRun, event: Event) -> None:
        """Show an event of a run, as `raffed run --json` prints it."""

    def said(self, line: str) -> None:
        """Show a line that a run wrote to its standard error."""

    def warned(self, text: str) -> None:
        """Count a warning of a run. It is shown by `said` the first time that a run gives it."""


def execute_side_by_side(
    runs: Sequence[SeedRun], places: Sequence[Place], shown: RunsShown, stop: Stop
) -> dict[SeedRun, Ending]:
    """Execute runs, or what is left of them, each in a process of its own.

    Args:
        runs: The runs. Those that are waiting begin in this order.
        places: One for each run that may execute at the same time.
        shown: Is told what happens, in this thread.
        stop: Asked all the time. If it returns True, the runs end after their round and no other one begins.

    Returns:
        Run → how it ended, without those that did not begin.

    Raises:
        KeyboardInterrupt: It came from outside. All processes have ended.
    """
    team = _Team(places, shown)
    try:
        return team.carry_out(runs, stop)
    finally:
        team.end()


class _Worker:
    """The process of a run, and the threads that listen to it."""

    def __init__(self, run: SeedRun, place: Place, heard: Queue[tuple[_Worker, Event]]) -> None:
        self.run, self.place, self.last = run, place, dict[str, Json]()
        self._heard = heard
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, INSIDE: "1", **place},
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches the command, which passes it on
        )
        threading.Thread(target=self._listen, name=f"raffed-{run.title}", daemon=True).start()

    def order(self) -> None:
        """Tell the process what to run."""
        stream = self.process.stdin
        assert stream is not None
        order = {
            "config": self.run.config.as_dict(),
            "folder": str(self.run.folder.absolute()),
            "accept": self.run.accept,
            "known": {name: sorted(texts) for name, texts in gate.state()._asdict().items()},
        }
        try:
            stream.write(json.dumps(order) + "\n")
            stream.flush()
        except OSError:
            return  # it has ended already, which its exit code explains

    def _listen(self) -> None:
        errors = threading.Thread(target=self._listen_to_errors, daemon=True)
        errors.start()
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._put(line)
        errors.join()
        self._heard.put((self, {"event": "ended", "code": self.process.wait()}))

    def _listen_to_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._heard.put((self, {"event": "said", "line": line.rstrip("\n")}))

    def _put(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:  # something other than raffed printed it
            event = {"event": "said", "line": line.rstrip("\n")}
        self._heard.put((self, event))

    def ending(self, code: int) -> Ending:
        """Return how the run ended, from its last event and the exit code of its process."""
        if self.last.get("event") == "finished" and code == 0:
            return Ending("finished")
        if code in STOPPED:
            return Ending("stopped")
        if self.last.get("event") in ("failed", "error"):
            diverged = self.last.get("kind") == NumericsError.__name__
            return Ending("failed", str(self.last["message"]), code == 2, diverged)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Ending("failed", f"its process ended with {how}; repeat the command to continue it")


class _Team:
    """The processes that work at the moment."""

    def __init__(self, places: Sequence[Place], shown: RunsShown) -> None:
        self._free, self._shown = list(reversed(places)), shown
        self._heard: Queue[tuple[_Worker, Event]] = Queue()
        self._working: list[_Worker] = []
        self._asked_at: float | None = None
        self._said: set[str] = set()
        self._endings: dict[SeedRun, Ending] = {}

    def carry_out(self, runs: Sequence[SeedRun], stop: Stop) -> dict[SeedRun, Ending]:
        waiting, interrupted = deque(runs), False
        while self._working or (waiting and self._asked_at is None):
            try:
                if self._asked_at is None and stop():
                    self._ask_to_stop()
                while waiting and self._free and self._asked_at is None:
                    self._start(waiting.popleft())
                self._listen()
            except KeyboardInterrupt:
                interrupted = True
                self._ask_to_stop()
        if interrupted:
            raise KeyboardInterrupt
        return self._endings

    def end(self) -> None:
        """Kill what is left. That is nothing unless this process itself failed."""
        for worker in self._working:
            worker.process.kill()

    def _start(self, run: SeedRun) -> None:
        worker = _Worker(run, self._free.pop(), self._heard)
        self._working.append(worker)
        worker.order()
        self._shown.started(run)

    def _ask_to_stop(self) -> None:
        """Signal all processes. The first signal lets them finish their round, and the second does not."""
        self._asked_at = self._asked_at or time.monotonic()
        for worker in self._working:
            worker.process.terminate()

    def _listen(self) -> None:
        if self._asked_at is not None and time.monotonic() - self._asked_at > GRACE:
            self.end()
        try:
            worker, event = self._heard.get(timeout=POLL)
        except Empty:
            return
        kind = event.get("event")
        if kind == "ended":
            self._ended(worker, int(str(event["code"])))
        elif kind == "said":
            self._say(str(event["line"]))
        elif kind == "warning":
            self._say(str(event["text"]))
            self._shown.warned(str(event["text"]))
        else:
            worker.last = dict(event)
            self._shown.heard(worker.run, event)

    def _ended(self, worker: _Worker, code: int) -> None:
        self._working.remove(worker)
        self._free.append(worker.place)
        ending = self._endings[worker.run] = worker.ending(code)
        if ending.state == "failed" and worker.last.get("event") != "failed":
            lost: Event = {
                "event": "failed",
                "method": worker.run.method,
                "seed": worker.run.seed,
                "folder": str(worker.run.folder),
                "kind": "RaffedError",
                "message": ending.why,
            }
            self._shown.heard(worker.run, lost)
        if ending.refused:
            self._ask_to_stop()

    def _say(self, line: str) -> None:
        """Show a line once, because all runs give the same warnings. What a stop leaves is not shown."""
        if line not in self._said and self._asked_at is None:
            self._said.add(line)
            self._shown.said(line)


__all__ = ["Ending", "RunsShown", "execute_side_by_side"]
