"""End a command within ten seconds of a signal, whatever its main thread is doing.

Python runs signal handlers in the main thread, between two instructions. In a call that does not return, such
as one to a Ray whose processes the same signal has ended, they never run. So a separate thread also receives
the signals.
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

GRACE = 4.0  # seconds for the current round and a checkpoint; then the round is dropped
LIMIT = 8.0  # seconds from the signal until the process ends, whatever it is doing
EARLY = 3.0  # the same if no round is done yet
LOST_GRACE, LOST_LIMIT = 2.5, 6.0  # the same if Ray has died, because then a round cannot end
SENDING = 60.0  # additional seconds for transfers to a URL
LAST_WORDS = 1.0
POLL = 0.1
IDLE = 0.5  # seconds between two checks of Ray


class Deadlines:
    """Enforces the deadlines while the block runs, if the main thread is too busy to do so."""

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
        """Hide the message about an exception in a destructor if a signal caused it. Python drops such
        exceptions.
        """
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
        """Wait until the limit for the main thread to end. A signal that comes meanwhile reaches it too.

        `number` is that of the signal, or 0 if Ray was lost, which the work notices by itself if it can.
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
            if _signals(heard):  # a second signal ends the process at once
                limit = min(limit, waited + EARLY)
            if waited > limit and self._stuck(signals, begun, waited):
                leave(128 + number if number else 1, signals)

    @staticmethod
    def _stuck(signals: StopSignals | None, begun: bool, waited: float) -> bool:
        """Return whether nothing is lost if the process ends here.

        It waits for a checkpoint that is being written, and for transfers to a URL. But Ray may never answer.
        """
        if sending() and waited < LIMIT + SENDING:
            return False
        return not begun or "ray" in sys.modules or signals is None or not signals.cut


def _signals(heard: FileIO) -> list[int]:
    """Return the signals that came since the last call."""
    return [number for number in heard.read(64) or b"" if number in HEARD]


def leave(code: int, signals: StopSignals | None = None) -> None:
    """End this process now, after the last messages about its work."""

    endings.own.hush()

    def last_words() -> None:
        if signals is not None and signals.part is not None:
            signals.part()
        elif signals is not None:
            print(NOTHING, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()

    endings.within(LAST_WORDS, last_words)
    os._exit(code)
