"""The signal handlers of a process are those that it set, also after Ray's library has ended in it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from raffed.runtime.ray_backend.signal_handlers import handlers_kept

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Ray resets handlers on POSIX systems only")


def reset_by_a_library() -> None:
    """Set SIGTERM to the default as C code does, which Python does not notice."""
    ctypes.pythonapi.PyOS_setsig(int(signal.SIGTERM), None)


def default() -> bool:
    """Whether SIGTERM would end this process."""
    read = ctypes.pythonapi.PyOS_getsig
    read.restype = ctypes.c_void_p
    return not read(int(signal.SIGTERM))


def test_a_handler_that_a_library_takes_away_in_any_thread_is_put_back() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:

        def ends() -> None:
            with handlers_kept():
                reset_by_a_library()
                while default():  # put back while the library is still ending
                    time.sleep(0.01)
                reset_by_a_library()

        thread = threading.Thread(target=ends)
        thread.start()
        thread.join()
        assert not default()
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


AFTER_RAY = """
import os, signal
from raffed.runtime.ray_backend.session import RaySession
signal.signal(signal.SIGTERM, lambda number, frame: print("heard", number, flush=True))
with RaySession(None) as session:
    session.wait()
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.slow
def test_a_user_s_handler_of_sigterm_works_after_an_own_ray_has_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER_RAY], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "heard 15\n"), done.stderr
