"""Signals stop a run: the first asks it to stop after its round, the second stops it at once.

This holds for SIGTERM, SIGHUP and Ctrl-C. Before the first round is done there is nothing to lose, so the
first signal stops the run at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

HEARD = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
NOTHING = "raffed: stopped before anything was written"
_listening: list[StopSignals] = []  # the innermost is the last


class StopSignals:
    """Listens for signals while the block runs.

    `asked` is the argument `stop` of a run. `code` is the exit code for the signal that came. `cut` says
    whether the work was interrupted, even if a library that was being loaded swallowed the interruption and
    failed later because of it. `told` says whether a listener inside this one was stopped, which reports it.

    Args:
        tell: Called when the run is asked to stop.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.code, self.cut, self.begun, self.told = 0, False, False, False
        self._tell = tell
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in HEARD}
            self._listen()
        _listening.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _listening.remove(self)
        for number, handler in self._before.items():
            if handler is not None:  # None is a handler that was set in C
                signal.signal(number, handler)
        for outer in _listening[-1:]:
            outer.code = outer.code or self.code
            outer.told = outer.told or self.told or self.code != 0

    def _listen(self) -> None:
        for number, before in self._before.items():
            # Nohup makes the process ignore SIGHUP
            if before is not signal.SIG_IGN or number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._received)

    def asked(self) -> bool:
        return self.code != 0

    def round_done(self) -> None:
        """Let signals wait for the end of a round from now on.

        This also restores the handlers, because `ray.init` installs its own.
        """
        self.begun = True
        self._listen()

    def _received(self, number: int, frame: FrameType | None) -> None:
        at_once, self.code = self.code != 0 or not self.begun, self.code or 128 + number
        if at_once:
            self.cut = True
            raise KeyboardInterrupt
        self._tell()
