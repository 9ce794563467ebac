"""One Ray per process for all runs in it, from the first run to the last. Ray cannot be started twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from raffed.errors import UsageError
from raffed.runtime.ray_backend.address import LOCAL, meant, same_ray

End = Callable[[], None]
PATIENCE = (
    60.0  # seconds to wait for a Ray that is being ended, or still starting for a run that was given up
)

_changed = threading.Condition()
_current: list[SharedRay] = []  # holds at most one


class SharedRay:
    """A Ray that exists while at least one run of this process needs it.

    Args:
        address: The cluster to join, or None.
        begin: Starts Ray or finds it, and returns a function that ends what was started. Both are called in
            one thread that lives as long as Ray, because the kernel ends Ray's processes with the thread that
            started them. The thread is a daemon, since it may be waiting for a cluster that does not answer
            when this process has to end.
    """

    def __init__(self, address: str | None, begin: Callable[[], End]) -> None:
        self.address, self.began = address, Future[End]()
        self._begin, self._users, self._ending, self._over = begin, 0, False, threading.Event()
        self._thread = threading.Thread(target=self._live, name="ray-session", daemon=True)

    @staticmethod
    def taken(address: str | None, begin: Callable[[], End]) -> SharedRay:
        """Return the Ray of this process for one more user. It is started in the background if there is none.

        Raises:
            UsageError: A different Ray is wanted from the one that is running.
        """
        with _changed:
            if not _changed.wait_for(lambda: not _current or not _current[0]._ending, PATIENCE):
                raise UsageError(
                    "Ray is still busy in this process with a run that was abandoned; use a new process"
                )
            if not _current:
                _current.append(SharedRay(address, begin))
                _current[0]._thread.start()
            shared = _current[0]
            used = meant(shared.address)
            if address is not None and not same_ray(address, used):
                there = "a Ray of its own" if used == LOCAL else f"the Ray at {used}"
                raise UsageError(
                    f"--address {address}: another run of this process uses {there}; use a new process"
                )
            shared._users += 1
            return shared

    def let_go(self, patience: float | None = None) -> None:
        """Remove one user. The last one waits until Ray has ended.

        Args:
            patience: Seconds that it waits at most, or None for no limit.
        """
        with _changed:
            self._users -= 1
            if self._users:
                return
            self._ending = True
        self._over.set()
        self._thread.join(patience)

    def _live(self) -> None:
        try:
            self.began.set_result(self._begin())
        except BaseException as error:  # noqa: BLE001 (raised to whoever waits)
            self._leave()
            self.began.set_exception(error)
            return
        self._over.wait()
        try:
            self.began.result()()
        finally:
            self._leave()

    def _leave(self) -> None:
        """Make the next run start another Ray."""
        with _changed:
            self._ending = True
            _current.remove(self)
            _changed.notify_all()
