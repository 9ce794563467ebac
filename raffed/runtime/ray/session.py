"""Ray for the length of a run, started in the background while this process loads torch and the data.

Every command gets its Ray here. It is an own one (own_ray.py), unless --address names a cluster, Ray already
runs in this process, or this process is the command of a Ray job. Whoever has started Ray ends it.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType

from raffed.budget import check_room
from raffed.config.portable import is_set, variables
from raffed.errors import UsageError
from raffed.runtime.ray.address import AUTO, LOCAL, OF_A_JOB, WHERE, found
from raffed.runtime.ray.own_ray import CLOSER, OwnRay, RayStartError, without_folders
from raffed.runtime.ray.patience import Patience

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
        check_room()
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


def _start(address: str | None) -> Callable[[], None] | None:
    """Make sure that Ray is running. Return a function that ends the own Ray or connection, or None."""
    import ray

    if ray.is_initialized():
        return None
    if address is None and OF_A_JOB in os.environ:
        address = AUTO
        log.warning(
            "this command runs in a Ray job, so it joins the job's cluster (--address local starts its "
            "own Ray)"
        )
    if address in (None, LOCAL):
        own = OwnRay()
        own.start()
        return own.end
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

    return ray.shutdown


def _environment() -> dict[str, dict[str, str]] | None:
    """Return what actors of a cluster need to compute this process's bits. Those of an own Ray inherit it."""
    return {"env_vars": variables()} if is_set() else None
