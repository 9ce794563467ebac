"""Keep this process's signal handlers while Ray's library ends.

When Ray's library ends, it sets SIGTERM to the system's default without Python's knowledge. The next SIGTERM
would then end the process without a word. Python can set a handler only in its main thread, but Ray may end
in another thread, so two functions of Python's C interface are used that work in every thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Iterator

KEPT = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
EVERY = 0.02  # seconds between two looks at the handlers


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Give signals the handlers that they have now, during the body and after it."""
    if os.name != "posix":
        yield
        return
    before, over = {number: _handler(number) for number in KEPT}, threading.Event()

    def keep() -> None:
        while not over.wait(EVERY):
            _restore(before)

    thread = threading.Thread(target=keep, name="raffed-handlers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _restore(before)


def _restore(before: dict[signal.Signals, int]) -> None:
    for number, handler in before.items():
        if _handler(number) != handler:
            _set_handler(number, handler)


def _handler(number: signal.Signals) -> int:
    """Return the address of the function that handles a signal; 0 is the system's default."""
    read = ctypes.pythonapi.PyOS_getsig
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.c_int]
    return int(read(number) or 0)


def _set_handler(number: signal.Signals, handler: int) -> None:
    write = ctypes.pythonapi.PyOS_setsig
    write.restype, write.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    write(number, handler)
