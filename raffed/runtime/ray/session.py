"""Ray for the length of a run, started in the background while this process loads torch and the data.

Every command gets its Ray here. It is an own one (own_ray.py), unless --address names a cluster, Ray already
runs in this process, or this process is the command of a Ray job. Whoever has started Ray ends it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from raffed.config.portable import is_set, variables
from raffed.errors import UsageError
from raffed.runtime.ray.own_ray import CLOSER, OwnRay, Patience, RayStartError, without_folders

# Find the Ray cluster that a user asked for, and check that it answers before Ray itself tries.


ANSWER_SECONDS = 10.0  # seconds in which a cluster's head has to accept a connection
CLIENT_PORT = 10001  # of ray:// addresses without a port
SPEAK_SECONDS = 10.0  # seconds in which it then has to send something
# The greeting of HTTP/2, with empty SETTINGS (RFC 9113, 3.4)
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS = 4  # type of the frame in the answer, which is its fourth byte
WHERE = (
    "a cluster's head is HOST:6379 or ray://HOST:10001 (port 8265 is its dashboard); cluster/README.md "
    "starts one"
)
AUTO, LOCAL = "auto", "local"
OF_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it only for the command of a job


def found(address: str) -> str:
    """Return the address of the cluster to join.

    For "auto", this is what RAY_ADDRESS says, or the cluster that `ray start` noted on this machine.

    Args:
        address: The value of --address.

    Raises:
        UsageError: There is no cluster, nothing answers, or something other than Ray answers.
    """
    if address == AUTO:
        address = os.environ.get("RAY_ADDRESS") or AUTO
    if address == AUTO:
        return _on_this_machine()
    check_answers(address)
    return address


def _on_this_machine() -> str:
    """Return the address of the cluster that `ray start` has noted on this machine, if it answers."""
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")
    if not is_trusted(str(note)):
        raise UsageError(
            f"--address auto: no Ray cluster of yours is noted on this machine; leave --address out; {WHERE}"
        )
    address = note.read_text(encoding="utf-8", errors="replace").strip()
    check_answers(address)
    return address


def is_trusted(file: str) -> bool:
    """Return whether a file belongs to this user or to root. Anybody can write into the folder /tmp."""
    try:
        return os.lstat(file).st_uid in (os.getuid(), 0)
    except OSError:
        return False


def check_answers(address: str) -> None:
    """Check that something accepts connections at HOST:PORT or ray://HOST[:PORT], and that it may be Ray.

    Ray itself would try for minutes, or for ever.

    Raises:
        UsageError: Nothing answers, or it answers as something other than Ray.
    """
    if address.startswith(("http://", "https://")):
        raise UsageError(
            f"--address {address}: that is a cluster's job server, which is meant for `raffed submit "
            f"--address`; {WHERE}"
        )
    match = re.fullmatch(r"(?P<client>ray://)?(?P<host>\[[^]]+\]|[^/:]+)(?::(?P<port>\d+))?", address)
    if match is None or not (match["port"] or match["client"]):
        raise UsageError(f"--address {address} must be auto, local, HOST:PORT or ray://HOST:PORT; {WHERE}")
    try:
        where = match["host"].strip("[]"), int(match["port"] or CLIENT_PORT)
        with socket.create_connection(where, ANSWER_SECONDS) as connection:
            said = None if os.environ.get("RAY_USE_TLS", "0") != "0" else _answer(connection)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(
            f"--address {address}: nothing answers there ({error}); start the cluster (cluster/README.md), "
            f"or leave --address out"
        ) from error
    if said is not None and (len(said) < 4 or said[3] != SETTINGS):
        what = "what answers there is not Ray" if said else "it takes connections and says nothing"
        raise UsageError(f"--address {address}: {what}; {WHERE}")


def _answer(connection: socket.socket) -> bytes:
    """Return the first bytes of the answer to a greeting by HTTP/2, which is Ray's protocol.

    They are empty if there is no answer.
    """
    connection.settimeout(SPEAK_SECONDS)
    with contextlib.suppress(OSError):
        connection.sendall(HELLO)
        return connection.recv(9)
    return b""


POLL_SECONDS = 1.0
START_SECONDS = 180.0  # seconds for the start of an own Ray; if one of its processes dies, it may never end
JOIN_SECONDS = 45.0  # seconds in which a cluster must have taken this process; Ray would try for minutes
log = logging.getLogger(__name__)


class RaySession:
    """Uses the Ray in this process, joins the cluster at `address`, or starts an own Ray.

    What was started or joined is ended at the end of the block. Ray begins and ends in one thread, which
    lives as long as Ray, because the kernel ends Ray's processes with the thread that started them. The
    thread is a daemon, since it may wait for ever if one of these processes is killed at the beginning.

    Example:
        with RaySession(address) as session:   # returns at once
            ...                                # load things
            session.wait()                     # from here on Ray is running
    """

    def __init__(self, address: str | None) -> None:
        self._address, self._own = address, address in (None, LOCAL)
        self._began, self._over = concurrent.futures.Future[None](), threading.Event()
        self._thread = threading.Thread(target=self._live, name="ray-session", daemon=True)

    def __enter__(self) -> RaySession:
        self._until = time.monotonic() + (START_SECONDS if self._own else JOIN_SECONDS)
        self._thread.start()
        return self

    def _live(self) -> None:
        try:
            end = _start(self._address)
        except BaseException as error:  # noqa: BLE001 (raised to whoever waits)
            self._began.set_exception(error)
            return
        self._began.set_result(None)
        self._over.wait()
        if end is not None:
            end()

    def wait(self) -> None:
        """Wait until Ray is running.

        Raises:
            RayStartError: The own Ray does not start.
            UsageError: The cluster does not exist, or does not take this process.
        """
        patience = Patience()
        while not concurrent.futures.wait([self._began], POLL_SECONDS).done:
            if waited := patience.due():
                what = f"the Ray cluster at {self._address} to take this process"
                log.warning("waiting for %s, %s", "Ray to start" if self._own else what, waited)
            if time.monotonic() > self._until:
                raise self._too_late()
        self._began.result()
        _handle_signals()

    def _too_late(self) -> UsageError:
        if self._own:
            return RayStartError(f"Ray has not started in {START_SECONDS:.0f} s; {CLOSER}")
        return UsageError(
            f"--address {self._address}: the cluster has not taken this process in {JOIN_SECONDS:.0f} s. "
            f"If it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH; {WHERE}"
        )

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(None if self._began.done() else max(0.0, self._until - time.monotonic()))
        _handle_signals()


def _handle_signals() -> None:
    """Let this process handle signals as before, because Ray's library does so instead from its start on.

    Python knows nothing of that. At its end, the library sets the system's default.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.getsignal(number) or signal.SIG_DFL)


_JOINED: set[str] = set()  # the addresses by which this process has joined a cluster


def _start(address: str | None) -> Callable[[], None] | None:
    """Make sure that Ray is running. Return a function that ends the own Ray or connection, or None."""
    import ray

    if ray.is_initialized():
        if address in (None, AUTO, LOCAL, *_JOINED):
            return None
        if address == (here := ray.get_runtime_context().gcs_address):
            return None
        raise UsageError(
            f"--address {address}: this process is connected to the Ray at {here} already; call "
            "ray.shutdown() before, or leave the address out"
        )
    if address is None and OF_A_JOB in os.environ:
        address = AUTO
        log.warning(
            "this command runs in a Ray job, so it joins the job's cluster (--address local starts its "
            "own Ray)"
        )
    if address in (None, LOCAL):
        own_ray = OwnRay()
        own_ray.start()
        return own_ray.end
    return _joined(found(str(address)), str(address))


def _joined(there: str, address: str) -> Callable[[], None]:
    """Connect to a cluster. Return a function that ends the connection.

    Args:
        there: Where its head is.
        address: The value of --address.
    """
    import ray
    from ray.exceptions import RayError

    environment, named = _environment(), os.environ.get("RAY_ADDRESS")
    if address == AUTO:  # Ray looks for the token of this user only if it is not told the address
        os.environ["RAY_ADDRESS"] = there
    try:
        ray.init(
            address=AUTO if address == AUTO else there,
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env=environment,
            job_config=without_folders(),
        )
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        raise UsageError(f"--address {address}: {' '.join(str(error).split())}; {WHERE}") from error
    finally:
        if address == AUTO:
            os.environ.pop("RAY_ADDRESS") if named is None else os.environ.update(RAY_ADDRESS=named)

    _JOINED.add(address)
    return ray.shutdown


def _environment() -> dict[str, dict[str, str]] | None:
    """Return what actors of a cluster need to compute this process's bits. Those of an own Ray inherit it."""
    return {"env_vars": variables()} if is_set() else None
