"""Ray for the length of a run, started in the background while this process loads torch and the data."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

QUIET_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's default of 15 lets every other process on a laptop go before the actors
}


class RaySession:
    """Joins the Ray that runs in this process, or the cluster at `address`, or starts an own one; ends only the own.

    with RaySession(address) as session:   # returns at once
        ...                                # load things
        session.wait()                     # Ray is there from here on
    """

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._handlers = _handlers()
        # One thread for the whole session: the kernel ends Ray's processes when the thread that forked them ends.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ray-session")

    def __enter__(self) -> RaySession:
        for name, value in QUIET_RAY.items():
            os.environ.setdefault(name, value)
        self._own = self._thread.submit(_start, self._address)
        return self

    def wait(self) -> None:
        """Until Ray is up; raises what kept it from starting."""
        self._own.result()
        for number, handler in self._handlers.items():  # ray.init may replace the handler for SIGTERM
            signal.signal(number, handler)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._own.exception() is None and self._own.result():
            import ray

            self._thread.submit(ray.shutdown).result()
        self._thread.shutdown()


def _start(address: str | None) -> bool:
    """Make sure Ray is up; whether that took an own one, or an own connection."""
    import ray

    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        ray.init(include_dashboard=False, **quiet)
    else:
        ray.init(address=address, **quiet)
    return True


def _handlers() -> dict[signal.Signals, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
