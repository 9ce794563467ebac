"""How a Ray that this process started ends: together with the command, and never unnoticed.

A batch system, `timeout` or a terminal sends a signal to the whole group of processes. So Ray's processes
lead sessions of their own, which the signal does not reach. Then the command can write a checkpoint before it
ends them. If a process that Ray cannot do without dies, `lost` reports it at once. Ray's client would wait
for it for up to a minute, and then end this process without a message. A process of its own, keeper.py, makes
sure that nothing outlives a command that was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from raffed.runtime.ray_backend import keeper

VITAL = {"gcs_server": "Ray's head process (gcs_server)", "raylet": "Ray's node process (raylet)"}
SESSION, LAST_CALL = "ray-session", "raffed-last-call"  # names of threads that call Ray
SHUTDOWN_SECONDS = 2.0  # seconds in which Ray may end by itself if the command must end quickly


class Own:
    """The Ray that this process started. There is at most one at a time, as Ray allows only one."""

    def __init__(self) -> None:
        self.lost: str | None = None
        self.sessions: set[int] = set()
        self._told: list[
            int
        ] = []  # pipes to this process and to the keeper, into which a child writes its process id
        self._starter = 0  # the thread whose children get sessions of their own
        self._keeper: subprocess.Popen[bytes] | None = None
        self._over = -1  # the end of a pipe, which is closed to end the watching
        self._at_start = dict[int, str]()  # vital processes that were seen while Ray started
        self._last_words = ""  # what the keeper says if this process ends without a word

    def lead(self) -> None:
        """Give a new child its own session, before it becomes Ray's program.

        The session is reported to the keeper.
        """
        if self._starter != threading.get_ident():
            return
        with contextlib.suppress(OSError):
            os.setsid()
        for told in self._told:
            with contextlib.suppress(OSError):
                os.write(told, f"{os.getpid()}\n".encode())

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Start Ray in the body, in this thread."""
        self.lost, self._keeper = None, self._kept()
        self._at_start = {}
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

    def died_at_start(self) -> str | None:
        """Return which vital process of a Ray that is still starting has died, in words, or None.

        `ray.init` would wait for it for ever. To be called again and again, from any thread.
        """
        alive = {
            one.pid: f"{VITAL[one.name]}, process {one.pid},"
            for one in keeper.processes()
            if one.parent == os.getpid() and one.name in VITAL and one.state not in ("Z", "X")
        }
        gone = [what for pid, what in sorted(self._at_start.items()) if pid not in alive]
        self._at_start |= alive
        return " and ".join(gone) or None

    def _watch(self, processes: list[keeper.Process]) -> None:
        if not hasattr(os, "pidfd_open"):
            return  # not on Linux, where Ray itself notices it later
        vital: dict[int, str] = {}
        for one in processes:
            with contextlib.suppress(OSError):
                vital[os.pidfd_open(one.pid)] = f"{VITAL[one.name]}, process {one.pid},"
        over, self._over = os.pipe()
        threading.Thread(target=self._wait, args=(vital, over), name="raffed-ray-watch", daemon=True).start()

    def _wait(self, vital: dict[int, str], over: int) -> None:
        poll, keeping = select.poll(), self._keeping()
        for handle in (*vital, over, *keeping):
            poll.register(handle, select.POLLIN)
        while (ended := {handle for handle, _ in poll.poll()}) <= set(keeping):
            _closed(poll, keeping)
            keeping = self._kept_again()
            for handle in keeping:
                poll.register(handle, select.POLLIN)
        if over not in ended:
            self.lost = " and ".join(vital[handle] for handle in sorted(ended & set(vital)))
        _closed(poll, (*vital, over, *keeping))

    def _keeping(self) -> list[int]:
        """Return a handle of the keeper's process, or nothing if there is no keeper."""
        if self._keeper is None:
            return []
        try:
            return [os.pidfd_open(self._keeper.pid)]
        except OSError:
            return []

    def _kept_again(self) -> list[int]:
        """Start another keeper in place of one that was killed. Otherwise a kill of this process would leave
        Ray's workers behind.
        """
        before, self._keeper = self._keeper, self._kept()
        if before is not None:
            before.poll()
        return self._keeping()

    def _kept(self) -> subprocess.Popen[bytes] | None:
        """Return a keeper that knows the sessions so far and the last words."""
        made = _kept(self.sessions, speaks=bool(self._last_words))
        _write(made, self._last_words)
        return made

    def speak_for(self, file: Path, continues: str) -> None:
        """Let the keeper say what continues the work if this process ends without having said it.

        Ray's client ends it like that if it sees that Ray has died before this process does.

        Args:
            file: It exists once the work has begun; nothing is said before.
            continues: The command that continues the work.
        """
        words = f"raffed: ended from outside (killed, or its Ray died); continue with: {continues}"
        self._last_words = json.dumps([str(file.absolute()), words])

    def hush(self) -> None:
        """Let the keeper say nothing, because this process says itself how its work ended."""
        _write(self._keeper, "hush")

    def unwatch(self) -> None:
        """Stop watching Ray's processes, because they may end from now on."""
        over, self._over = self._over, -1
        if over >= 0:
            os.close(over)

    def end_all(self) -> None:
        """Kill Ray's processes, with all workers.

        Afterwards no client of Ray in this process works any more.
        """
        if self.sessions:
            self.unwatch()
            keeper.end_all(self.sessions)

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Shut Ray down in the body. Afterwards nothing of it is left, and it is no longer watched.

        If Ray was lost, its processes are killed at once.
        """
        self.end_all() if self.lost is not None else self.unwatch()
        try:
            yield
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self.unwatch()
        self.hush()
        beside, self._keeper = self._keeper, None
        if beside is not None and beside.stdin is not None:
            with contextlib.suppress(OSError):
                beside.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                beside.wait(keeper.PATIENCE + 1)
        self.sessions = set()


start_lock = threading.Lock()  # a session starts its Ray after the session before has ended its own
own = Own()
# Subprocess calls it if Ray asks for work to be done before the program begins
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=own.lead)


def lost() -> str | None:
    """Return which vital process of the own Ray has died, in words, or None."""
    return own.lost


def unfinished() -> bool:
    """Return whether a call to Ray in this process has not returned.

    It may never return. Then the process cannot end in the usual way.
    """
    return own.lost is not None or any(
        thread.name in (SESSION, LAST_CALL) for thread in threading.enumerate()
    )


def within(seconds: float, work: Callable[[], object]) -> bool:
    """Call `work`, which may wait for a Ray that does not answer, and return whether it ended in time.

    If it did not, it is left running in its thread.
    """
    thread = threading.Thread(target=work, name=LAST_CALL, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _closed(poll: select.poll, handles: Iterable[int]) -> None:
    """Stop polling some handles, and close them."""
    for handle in handles:
        poll.unregister(handle)
        os.close(handle)


def _said(handle: int) -> set[int]:
    """Return the numbers that were written to a pipe so far."""
    try:
        return {int(line) for line in os.read(handle, 1 << 16).split()}
    except BlockingIOError:  # nothing was written
        return set()


def _write(beside: subprocess.Popen[bytes] | None, line: str) -> None:
    """Give the keeper a line."""
    if line and beside is not None and beside.stdin is not None:
        with contextlib.suppress(OSError, ValueError):
            beside.stdin.write(f"{line}\n".encode())
            beside.stdin.flush()


def _kept(sessions: Iterable[int], *, speaks: bool) -> subprocess.Popen[bytes] | None:
    """Start the keeper. It knows these sessions already, and gets others through its input.

    Returns None if no process can be started, or if the keeper could not find processes to end.
    """
    if not Path("/proc/self/stat").exists():
        return None
    command = [sys.executable, "-I", "-S", keeper.__file__, *map(str, sessions)]
    quiet = subprocess.DEVNULL
    said = None if speaks and sys.stderr is not None else quiet
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=quiet, stderr=said, start_new_session=True, cwd="/"
        )
    except OSError:
        return None
