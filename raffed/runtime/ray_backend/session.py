"""Ray for the length of a run, started in the background while this process loads torch and the data.

Every command gets its Ray here. It is an own one (own_ray.py), unless --address names a cluster, Ray already
runs in this process, or this process is the command of a Ray job. Runs in one process share one Ray
(shared_ray.py).
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType, TracebackType

from raffed.budget import check_room
from raffed.config.portable import is_set, variables
from raffed.errors import UsageError
from raffed.runtime.ray_backend import endings
from raffed.runtime.ray_backend.address import AUTO, LOCAL, OF_A_JOB, WHERE, found
from raffed.runtime.ray_backend.own_ray import CLOSER, OwnRay, RayStartError, without_folders
from raffed.runtime.ray_backend.patience import Patience
from raffed.runtime.ray_backend.shared_ray import End, SharedRay
from raffed.runtime.ray_backend.signal_handlers import handlers_kept

POLL_SECONDS = 1.0
GRACE_SECONDS = 20.0  # seconds in which a start that is no longer wanted may end by itself
HURRIED_SECONDS = 0.5  # the same time after Ctrl-C
JOIN_SECONDS = 45.0  # seconds in which a cluster must have taken this process; Ray would try for minutes
Handler = Callable[[int, FrameType | None], None] | int | None
log = logging.getLogger(__name__)


class RaySession:
    """Joins the Ray in this process or the cluster at `address`, or starts an own Ray.

    Only an own Ray is ended, after the last session of this process.

    Example:
        with RaySession(address) as session:   # returns at once
            ...                                # load things
            session.wait()                     # from here on Ray is running
    """

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._handlers = _handlers()

    def __enter__(self) -> RaySession:
        check_room()
        self._ray = SharedRay.taken(self._address, partial(_begun, self._address))
        return self

    def wait(self) -> None:
        """Wait until Ray is running.

        Raises:
            RayStartError: A process of Ray died while Ray was starting.
            UsageError: The cluster does not exist, or Ray cannot start on this machine.
        """
        patience, own = Patience(), self._address in (None, LOCAL)
        until = time.monotonic() + JOIN_SECONDS
        while not concurrent.futures.wait([self._ray.began], POLL_SECONDS).done:
            if waited := patience.due():
                what = "Ray to start" if own else f"the Ray cluster at {self._address} to take this process"
                log.warning("waiting for %s, %s", what, waited)
            if own and (died := endings.own.died_at_start()) is not None:
                raise RayStartError(f"{died} died while Ray was starting; {CLOSER}")
            if not own and time.monotonic() > until:
                raise UsageError(
                    f"--address {self._address}: the cluster has not taken this process in "
                    f"{JOIN_SECONDS:.0f} s. If it asks for a token, set RAY_AUTH_MODE=token and "
                    f"RAY_AUTH_TOKEN_PATH; {WHERE}"
                )
        self._ray.began.result()
        for number, handler in self._handlers.items():  # because ray.init may replace the handler for SIGTERM
            signal.signal(number, handler)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        hurry = endings.lost() is not None or kind is KeyboardInterrupt
        if self._ray.began.done():
            self._ray.let_go(endings.SHUTDOWN_SECONDS if hurry else None)
        else:  # an unfinished start ends itself when it is done, or with this process
            self._ray.let_go(HURRIED_SECONDS if hurry else GRACE_SECONDS)


def _begun(address: str | None) -> End:
    """Make sure that Ray is running, and return a function that ends an own Ray or connection."""
    with endings.start_lock:
        end = _start(address)

    def ended() -> None:
        if end is not None:
            with endings.start_lock:
                end()

    return ended


def _start(address: str | None) -> Callable[[], None] | None:
    """Make sure that Ray is running. Return a function that ends the own Ray or connection, or None."""
    import ray

    if ray.is_initialized():
        if not _is_worker():
            log.warning("this process has already started Ray, so that Ray is used")
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

    def end() -> None:
        with handlers_kept():
            ray.shutdown()

    return end


def _environment() -> dict[str, dict[str, str]] | None:
    """Return what actors of a cluster need to compute this process's bits. Those of an own Ray inherit it."""
    return {"env_vars": variables()} if is_set() else None


def _is_worker() -> bool:
    """Return whether this process was started by Ray, such as a trial of a sweep."""
    import ray

    return bool(ray.get_runtime_context().worker.mode == ray.WORKER_MODE)


def _handlers() -> dict[signal.Signals, Handler]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
