"""SIGTERM, SIGHUP and the first Ctrl-C ask a run to stop after its round; the second signal stops it at once.

Before its first round is done there is nothing to lose, and the first signal stops it at once. However busy
the process is, the command has ended ten seconds after the signal (deadlines.py).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

HEARD = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
NOTHING = "raffed: stopped before anything was written"
_listening: list[StopSignals] = []  # the innermost last


class StopSignals:
    """Listens while the block runs. `asked` is a run's `stop`; `code`: the exit code that tells which signal
    came; `cut`: whether the work was cut off, even if a library that was being loaded swallowed that and
    failed of it later.

    tell: called when the run is asked to stop. part: says the last words where the main thread cannot, which
    then ends in the middle of whatever it does.
    """

    def __init__(self, tell: Callable[[], None], part: Callable[[], None] | None = None) -> None:
        self.code, self.cut, self.begun = 0, False, False
        self.part = part
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
            if handler is not None:  # not one that was set in C
                signal.signal(number, handler)
        for outer in _listening[-1:]:
            outer.code = outer.code or self.code

    def _listen(self) -> None:
        for number, before in self._before.items():
            if before is not signal.SIG_IGN or number in (
                signal.SIGINT,
                signal.SIGTERM,
            ):  # nohup has SIGHUP ignored
                signal.signal(number, self._received)

    def asked(self) -> bool:
        return self.code != 0

    def round_done(self) -> None:
        """From here on signals wait for a round's end. Takes them back: `ray.init` puts a handler of its
        own in place.
        """
        self.begun = True
        self._listen()

    def fall(self) -> None:
        """End at once, as after a second signal, with exit code 1: what the work needs is gone. From
        another thread.
        """
        self.code = self.code or 1
        signal.raise_signal(signal.SIGINT)

    def _received(self, number: int, frame: FrameType | None) -> None:
        at_once, self.code = self.code != 0 or not self.begun, self.code or 128 + number
        if at_once:
            self.cut = True
            raise KeyboardInterrupt
        self._tell()


def innermost() -> StopSignals | None:
    """What listens now."""
    return _listening[-1] if _listening else None
