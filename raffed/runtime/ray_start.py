"""Ray for the length of a run, started in the background while this process loads torch and the data."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from raffed.core.errors import UsageError
from raffed.runtime import ray_endings
from raffed.runtime.memory_limit import check_room
from raffed.runtime.ray_shared import SharedRay

QUIET_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's default of 15 lets every other process on a laptop go before the actors
    "RAY_enable_open_telemetry": "0",  # every ray.init would leave a thread and a socket behind in this process
}
ANSWER_SECONDS = 10.0  # for a cluster's head to take a connection
CLIENT_PORT = 10001  # of ray:// where none is given
SPEAK_SECONDS = 3.0  # for whoever took it to say something
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # HTTP/2's, with empty SETTINGS (RFC 9113, 3.4)
SETTINGS = 4  # type of the frame that it is answered by, in its fourth byte
WHERE = "a cluster's head is HOST:6379 or ray://HOST:10001 (port 8265 is its dashboard); cluster/README.md starts one"


class RaySession:
    """Joins the Ray that runs in this process, or the cluster at `address`, or starts an own one; ends only the own, after the
    last session of this process.

    with RaySession(address) as session:   # returns at once
        ...                                # load things
        session.wait()                     # Ray is there from here on
    """

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._handlers = _handlers()
        self._own: Future[bool] = Future()
        self._over = threading.Event()
        # One thread for the whole session: the kernel ends Ray's processes when the thread that forked them ends. A daemon: it
        # may be in a call to a cluster that does not answer when this process is told to stop.
        self._thread = threading.Thread(target=self._live, name=ray_endings.SESSION, daemon=True)

    def __enter__(self) -> RaySession:
        check_room()
        for name, value in QUIET_RAY.items():
            os.environ.setdefault(name, value)
        self._ray = SharedRay.taken(self._address, partial(_begun, self._address))
        return self

    def wait(self) -> None:
        """Until Ray is up; raises what kept it from starting: a UsageError for a cluster that is not there."""
        self._ray.began.result()
        for number, handler in self._handlers.items():  # ray.init may replace the handler for SIGTERM
            signal.signal(number, handler)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        hurry = ray_endings.lost() is not None or kind is KeyboardInterrupt
        if self._own.done() or self._address is None:  # an own Ray comes up in seconds, or fails to
            patience = ray_endings.SHUTDOWN_SECONDS if self._own.done() else 0.5  # it starts, and ends itself once it has
            self._thread.join(patience if hurry else None)

    def _live(self) -> None:
        try:
            with ray_endings.turn:
                self._own.set_result(_start(self._address))
        except BaseException as error:  # noqa: BLE001 (told where it is waited for)
            self._own.set_exception(error)
            return
        self._over.wait()
        if self._own.result():
            import ray

            with ray_endings.turn, ray_endings.own.ending():
                ray.shutdown()

    return end


def _start(address: str | None) -> bool:
    """Make sure Ray is up; whether that took an own one, or an own connection."""
    import ray

    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        with ray_endings.own.starting():
            ray.init(include_dashboard=False, **quiet)
        return True
    check_answers(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"--address {address}: {error}; {WHERE}") from error
    return True


def check_answers(address: str) -> None:
    """That something takes connections at HOST:PORT or ray://HOST[:PORT], and does not answer as something else than Ray; a
    UsageError if not. Ray itself tries for minutes, or for ever."""
    match = re.fullmatch(r"(?P<client>ray://)?(?P<host>\[[^]]+\]|[^/:]+)(?::(?P<port>\d+))?", address)
    if match is None or not (match["port"] or match["client"]):
        return  # auto, local, or Ray's to refuse
    try:
        where = match["host"].strip("[]"), int(match["port"] or CLIENT_PORT)
        with socket.create_connection(where, ANSWER_SECONDS) as connection:
            said = b"" if os.environ.get("RAY_USE_TLS", "0") != "0" else _answer(connection)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(
            f"--address {address}: nothing answers there ({error}); start the cluster (cluster/README.md), or leave --address out"
        ) from error
    if len(said) > 3 and said[3] != SETTINGS:
        raise UsageError(f"--address {address}: what answers there is no Ray; {WHERE}")


def _answer(connection: socket.socket) -> bytes:
    """The first bytes that a greeting by HTTP/2, Ray's protocol, is answered by; none where nothing is said."""
    connection.settimeout(SPEAK_SECONDS)
    with contextlib.suppress(OSError):
        connection.sendall(HELLO)
        return connection.recv(9)
    return b""


def _handlers() -> dict[signal.Signals, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
