"""One Ray a process, for all the runs in it: Ray cannot be started twice. It is there from the first run
to the last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from raffed.errors import UsageError

End = Callable[[], None]
PATIENCE = (
    60.0  # seconds for a Ray that is being ended, or is still being looked for after its run was given up
)

_changed = threading.Condition()
_current: list[SharedRay] = []  # none or one


class SharedRay:
    """Ray while at least one run of this process needs it.

    begin: starts Ray, or finds it; what it returns ends what was started. Both are called in one thread,
    which lives as long: the kernel ends Ray's processes when the thread that forked them ends. It is a
    daemon, since it may be in a call to a cluster that does not answer when this process is told to stop.
    """

    def __init__(self, address: str | None, begin: Callable[[], End]) -> None:
        self.address, self.began = address, Future[End]()
        self._begin, self._users, self._ending, self._over = begin, 0, False, threading.Event()
        self._thread = threading.Thread(target=self._live, name="ray-session", daemon=True)

    @staticmethod
    def taken(address: str | None, begin: Callable[[], End]) -> SharedRay:
        """The Ray of this process for one more user, started in the background if there is none.

        Raises UsageError where another one is wanted than is there.
        """
        with _changed:
            if not _changed.wait_for(lambda: not _current or not _current[0]._ending, PATIENCE):
                raise UsageError(
                    "Ray is still busy in this process with a run that was given up; use a process of its own"
                )
            if not _current:
                _current.append(SharedRay(address, begin))
                _current[0]._thread.start()
            shared = _current[0]
            if address not in (None, shared.address):
                there = "a Ray of its own" if shared.address is None else f"the Ray at {shared.address}"
                raise UsageError(
                    f"--address {address}: another run of this process uses {there}; use a process of its own"
                )
            shared._users += 1
            return shared

    def let_go(self, patience: float | None = None) -> None:
        """One user less; the last one waits until Ray has ended, for at most `patience` seconds if that
        is given.
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
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            self._leave()
            self.began.set_exception(error)
            return
        self._over.wait()
        try:
            self.began.result()()
        finally:
            self._leave()

    def _leave(self) -> None:
        """From here on a run starts another one."""
        with _changed:
            self._ending = True
            _current.remove(self)
            _changed.notify_all()
