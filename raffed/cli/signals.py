"""SIGTERM and the first Ctrl-C ask a run to stop after its round; the second signal stops it at once.

Before its first round is done there is nothing to lose, and the first signal stops it at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

HEARD = (signal.SIGINT, signal.SIGTERM)
NOTHING = "raffed: stopped before anything was written"


class StopSignals:
    """Listens while the block runs. `asked` is a run's `stop`; `code`: the exit code that tells which signal came; `cut`:
    whether the work was cut off, even if a library that was being loaded swallowed that and failed of it later."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.code, self.cut = 0, False
        self._tell = tell
        self._begun = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._received) for number in HEARD}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def asked(self) -> bool:
        return self.code != 0

    def round_done(self) -> None:
        """From here on signals wait for a round's end. Takes them back: `ray.init` puts a handler of its own in place."""
        self._begun = True
        for number in HEARD:
            signal.signal(number, self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        at_once, self.code = self.code != 0 or not self._begun, 128 + number
        if at_once:
            self.cut = True
            raise KeyboardInterrupt
        self._tell()
