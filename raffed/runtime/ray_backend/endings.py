"""How an own Ray ends: with the command whatever ended it, not by a signal that was meant for the command,
and not unnoticed.

A batch system, `timeout` and a terminal send a signal to the whole group of processes. So Ray's processes
lead sessions of their own, where it does not reach them, and the command can write a checkpoint before it
ends them. If one that Ray cannot do without dies all the same, `lost` says so at once: Ray's client waits for
it up to a minute and then ends this process without a word. And keeper.py, a process of its own, sees to it
that nothing outlives a command that was killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from raffed.runtime.ray_backend import keeper

VITAL = {"gcs_server": "Ray's head process (gcs_server)", "raylet": "Ray's node process (raylet)"}
SESSION, LAST_CALL = "ray-session", "raffed-last-call"  # threads that call Ray
SHUTDOWN_SECONDS = 2.0  # for Ray to end by itself when the command is in a hurry


class Own:
    """The Ray that this process started. One at a time, as Ray itself has it."""

    def __init__(self) -> None:
        self.lost: str | None = None
        self.sessions: set[int] = set()
        self._told: list[int] = []  # where a child writes its process id: to this process, and to the keeper
        self._starter = 0  # the thread whose children lead sessions of their own
        self._keeper: subprocess.Popen[bytes] | None = None
        self._over = -1  # the end of a pipe; closed when the watch is over

    def lead(self) -> None:
        """In a new child, before it becomes Ray's program: its own session, which the keeper is told of."""
        if self._starter != threading.get_ident():
            return
        with contextlib.suppress(OSError):
            os.setsid()
        for told in self._told:
            with contextlib.suppress(OSError):
                os.write(told, f"{os.getpid()}\n".encode())

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Ray is started within, by this thread."""
        self.lost, self._keeper = None, _kept()
        born, tell = os.pipe()
        os.set_blocking(born, False)
        self._told = (
            [tell]
            if self._keeper is None or self._keeper.stdin is None
            else [tell, self._keeper.stdin.fileno()]
        )
        self._starter = threading.get_ident()
        try:
            yield
        except BaseException:
            self._let_go()
            raise
        finally:
            self._starter = 0
            self.sessions = _said(born)
            os.close(tell)
            os.close(born)
        self._watch([one for one in keeper.processes() if one.pid in self.sessions and one.name in VITAL])

    def _watch(self, processes: list[keeper.Process]) -> None:
        if not hasattr(os, "pidfd_open"):
            return  # not Linux: Ray itself notices, later
        vital: dict[int, str] = {}
        for one in processes:
            with contextlib.suppress(OSError):
                vital[os.pidfd_open(one.pid)] = f"{VITAL[one.name]}, process {one.pid},"
        over, self._over = os.pipe()
        threading.Thread(target=self._wait, args=(vital, over), name="raffed-ray-watch", daemon=True).start()

    def _wait(self, vital: dict[int, str], over: int) -> None:
        poll = select.poll()
        for handle in (*vital, over):
            poll.register(handle, select.POLLIN)
        ended = {handle for handle, _ in poll.poll()}
        if over not in ended:
            self.lost = " and ".join(vital[handle] for handle in sorted(ended))
        for handle in (*vital, over):
            os.close(handle)

    def unwatch(self) -> None:
        """From here on its processes may end."""
        over, self._over = self._over, -1
        if over >= 0:
            os.close(over)

    def end_all(self) -> None:
        """Kill its processes, workers and all. No client of Ray in this process is of use afterwards."""
        if self.sessions:
            self.unwatch()
            keeper.end_all(self.sessions)

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Ray is shut down within; afterwards nothing of it is left, and nobody looks after it. If it was
        lost there is nothing to be gentle with.
        """
        self.end_all() if self.lost is not None else self.unwatch()
        try:
            yield
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self.unwatch()
        beside, self._keeper = self._keeper, None
        if beside is not None and beside.stdin is not None:
            with contextlib.suppress(OSError):
                beside.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                beside.wait(keeper.PATIENCE + 1)
        self.sessions = set()


turn = threading.Lock()  # a session starts its Ray after the one before has ended its own
own = Own()
if hasattr(
    os, "register_at_fork"
):  # subprocess runs it where Ray gives it something to do before the program begins
    os.register_at_fork(after_in_child=own.lead)


def lost() -> str | None:
    """Which vital process of the own Ray has died, in words; None if none has."""
    return own.lost


def unfinished() -> bool:
    """Whether a call to Ray in this process has not come back, or never will: then the process cannot end
    in the usual way.
    """
    return own.lost is not None or any(
        thread.name in (SESSION, LAST_CALL) for thread in threading.enumerate()
    )


def within(seconds: float, work: Callable[[], object]) -> bool:
    """Call `work`, which may ask a Ray that does not answer; whether it came back in time. It is left
    alone if not.
    """
    thread = threading.Thread(target=work, name=LAST_CALL, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _said(handle: int) -> set[int]:
    """The numbers that were written to a pipe so far."""
    try:
        return {int(line) for line in os.read(handle, 1 << 16).split()}
    except BlockingIOError:  # none
        return set()


def _kept() -> subprocess.Popen[bytes] | None:
    """The keeper; None where no process can be started, or where it could find none to end."""
    if not Path("/proc/self/stat").exists():
        return None
    command = [sys.executable, "-I", "-S", keeper.__file__]
    quiet = subprocess.DEVNULL
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True, cwd="/"
        )
    except OSError:
        return None
