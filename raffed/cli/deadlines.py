"""A command ends within ten seconds of a signal, whatever its main thread does.

Python's handlers run in the main thread between two of its instructions. In a call that does not come back,
such as one to a Ray whose processes the same signal has ended, they never do. A thread of its own hears of
signals as well.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from io import FileIO
from types import TracebackType

from raffed.cli.signals import HEARD, NOTHING, StopSignals, innermost
from raffed.results.storage import sending
from raffed.runtime.ray_backend import endings

GRACE = 4.0  # seconds for the round at hand and a checkpoint; then the round is dropped
LIMIT = 8.0  # seconds from the signal until the process ends in the middle of whatever it does
EARLY = 3.0  # the same where no round is done yet
LOST_GRACE, LOST_LIMIT = 2.5, 6.0  # the same where Ray has died: a round cannot end then
SENDING = 60.0  # seconds more for what is left to be sent to a URL
LAST_WORDS = 1.0
POLL = 0.1
IDLE = 0.5  # seconds between two looks at Ray


class Deadlines:
    """Keeps them while the block runs, in the main thread's place where that is busy."""

    def __enter__(self) -> Deadlines:
        self._heard, self._tell = os.pipe()
        for handle in (self._heard, self._tell):
            os.set_blocking(handle, False)
        self._main = threading.current_thread() is threading.main_thread()
        self._before = signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False) if self._main else -1
        self._hook, sys.unraisablehook = sys.unraisablehook, self._swallowed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="raffed-deadlines", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        sys.unraisablehook = self._hook
        if self._main:
            signal.set_wakeup_fd(self._before)
        os.close(self._tell)
        self._thread.join(2 * IDLE)

    def _swallowed(self, about: sys.UnraisableHookArgs) -> None:
        """Python drops what is raised in a destructor and shows it; of a signal there is nothing to show."""
        if about.exc_type is not KeyboardInterrupt:
            self._hook(about)

    def _watch(self) -> None:
        with FileIO(self._heard) as heard:
            while not self._over.is_set():
                select.select([heard], [], [], IDLE)
                for number in _signals(heard)[:1]:
                    self._count_down(number, heard)
                if endings.lost() is not None:
                    self._count_down(0, heard)

    def _count_down(self, number: int, heard: FileIO) -> None:
        """The main thread has until the limit to end; a signal that comes meanwhile reaches it as well.
        number: of the signal, 0 where Ray was lost: the work notices that by itself if it can.
        """
        began, reminded, signals = time.monotonic(), False, innermost()
        begun = signals is not None and (signals.begun or not number)
        grace, limit = GRACE, LIMIT if begun else EARLY
        while not self._over.wait(POLL):
            waited, signals = time.monotonic() - began, innermost()
            if endings.lost() is not None:
                grace, limit = LOST_GRACE, min(limit, LOST_LIMIT)
            if waited > grace and begun and not reminded and signals is not None and not signals.cut:
                reminded = True
                os.kill(os.getpid(), number) if number else signals.fall()
            if _signals(heard):  # once more: at once
                limit = min(limit, waited + EARLY)
            if waited > limit and self._stuck(signals, begun, waited):
                leave(128 + number if number else 1, signals)

    @staticmethod
    def _stuck(signals: StopSignals | None, begun: bool, waited: float) -> bool:
        """Whether nothing is lost if the process ends here. A checkpoint that is being written is waited for,
        and what is being sent to a URL; but Ray may never answer.
        """
        if sending() and waited < LIMIT + SENDING:
            return False
        return not begun or "ray" in sys.modules or signals is None or not signals.cut


def _signals(heard: FileIO) -> list[int]:
    """Those that came since it was last asked."""
    return [number for number in heard.read(64) or b"" if number in HEARD]


def leave(code: int, signals: StopSignals | None = None) -> None:
    """End this process now, with the last words of what goes on."""

    def last_words() -> None:
        if signals is not None and signals.part is not None:
            signals.part()
        elif signals is not None:
            print(NOTHING, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()

    endings.within(LAST_WORDS, last_words)
    os._exit(code)
