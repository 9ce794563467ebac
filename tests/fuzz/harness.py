"""What must hold of every fuzzed input, and the folder of a finished run in which inputs are damaged."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

from raffed.cli import main
from raffed.errors import UsageError

SECONDS = 60.0  # no input may keep raffed busy for longer; the machine may be slow


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refused_or_done(work: Callable[[], object]) -> None:
    """The property: `work` ends, in time, with a value or a UsageError."""
    with in_time(), contextlib.suppress(UsageError):
        work()


def exits_cleanly(argv: list[str]) -> None:
    """The property at the command line: an exit code that means something, and never a traceback."""
    with in_time(), pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code in (None, 0, 1, 2)


class Source(NamedTuple):
    """A folder with a finished run to damage, and one to damage it in."""

    run: Path
    work: Path

    def room(self) -> Path:
        """A folder to put files in; those of earlier cases may be there."""
        self.work.mkdir(exist_ok=True)
        return self.work

    def fresh(self) -> Path:
        """A copy of the run, in an otherwise empty folder."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.run, self.work / "run")
        return self.work / "run"

    def nothing_escaped(self) -> None:
        assert {path.name for path in self.work.parent.iterdir()} <= {"work", "run"}
