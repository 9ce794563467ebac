"""The process from which Ray's workers on this machine are forked, after it has imported torch and raffed.

Importing them takes most of the time in which an actor starts, and about 300 MB that forks share. Ray starts
a process of Python for every worker. For an own Ray, raffed lets it start warm_worker.py, which asks this
process for a fork, and hands over its arguments, environment and streams (warm_fork.py). The fork executes
Ray's program. Where this process cannot help, the worker starts as Ray starts it, and nothing but time is
lost.

This process has one thread and never initialises CUDA, so its forks may do both. Ray itself is not imported,
because it reads its environment when it is imported. Only the seed of Python's hashes is the same in all
workers.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys

from raffed.runtime.ray_backend.warm_fork import Wanted, become, leave, read_request, same_start

IMPORTED = ("torch", "raffed.runtime.worker", "raffed.methods")
# What `import ray` imports of others in every worker, which reads no variable of Ray's
FOR_RAY = (
    "asyncio",
    "filelock",
    "google.protobuf.message",
    "html",
    "jsonschema",
    "psutil",
    "requests",
    "yaml",
)
GREETING, STARTED, REFUSED = b"?", b"+", b"-"


class Forks:
    """The forks of this process, and the programs that wait for them.

    Args:
        line: The socket at which programs ask.
        environment: That of this process before it imported anything.
    """

    def __init__(self, line: socket.socket, environment: dict[str, str]) -> None:
        self._line, self._environment = line, environment
        self._made = {name: text for name, text in os.environ.items() if environment.get(name) != text}
        self._waiting: dict[int, socket.socket] = {}
        self._ready = selectors.DefaultSelector()
        self._ended, self._note = socket.socketpair()

    def serve(self) -> None:
        """Fork for everyone who asks, until the standard input ends."""
        for end in (self._ended, self._note):
            end.setblocking(False)
        signal.set_wakeup_fd(self._note.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source in (self._line, self._ended, sys.stdin):
            self._ready.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self._ready.select():
                if key.fileobj is sys.stdin:
                    return self._end()
                if key.fileobj is self._line:
                    self._answer(self._line.accept()[0])
                elif key.fileobj is self._ended:
                    self._ended.recv(4096)
                    self._reap()
                elif key.data in self._waiting:
                    self._pass_on(key.data)

    def _answer(self, asker: socket.socket) -> None:
        try:
            asker.send(GREETING)
            wanted, streams = read_request(asker)
        except (OSError, ValueError):  # it was killed meanwhile
            return asker.close()
        if same_start(wanted, self._environment):
            self._fork(asker, wanted, streams)
        else:
            with contextlib.suppress(OSError), asker:
                asker.send(REFUSED)
        for stream in streams:
            os.close(stream)

    def _fork(self, asker: socket.socket, wanted: Wanted, streams: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError:  # there is no room for a process
            return asker.close()
        if pid == 0:  # it ends by a SystemExit, so nothing around this call may catch one
            self._forget(asker)
            become(wanted, streams, self._made)
        with contextlib.suppress(OSError):
            asker.send(STARTED)
        self._waiting[pid] = asker
        self._ready.register(asker, selectors.EVENT_READ, pid)

    def _pass_on(self, pid: int) -> None:
        """Send a fork the signals that the program which waits for it has got. SIGKILL has no handler."""
        with contextlib.suppress(OSError):
            numbers = self._waiting[pid].recv(64)
            for number in numbers or [signal.SIGKILL]:
                os.kill(pid, number)
            if not numbers:
                self._ready.unregister(self._waiting[pid])

    def _forget(self, asker: socket.socket) -> None:
        """Close in a fork what belongs to this process, so that nothing closes the same numbers later."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._ready.close()
        for one in (asker, self._line, self._ended, self._note, *self._waiting.values()):
            one.close()

    def _reap(self) -> None:
        while self._waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._waiting.pop(pid) as asker, contextlib.suppress(OSError, KeyError):
                self._ready.unregister(asker)
                code = os.waitstatus_to_exitcode(status)
                asker.send(b"%d" % (code if code >= 0 else 128 - code))  # as a shell says it

    def _end(self) -> None:
        signal.set_wakeup_fd(-1)
        for pid in self._waiting:
            os.kill(pid, signal.SIGKILL)


def check_threads() -> None:
    """Check that this process has no thread that its forks would lack.

    NumPy's library of products may have threads. It ends them before a fork, and starts them when it needs
    them. So a fork is tried first.

    Raises:
        RuntimeError: Another thread is left.
    """
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        raise RuntimeError(f"it has {threads} threads after its imports, and its forks would have one")


def main(
    descriptor: int, packages: str, modules: tuple[str, ...] = IMPORTED, others: tuple[str, ...] = FOR_RAY
) -> None:
    """Import what workers need, and fork until the standard input ends.

    Args:
        descriptor: The socket at which programs ask.
        packages: The folder in which the package raffed lies.
        modules: What is imported.
        others: What is imported if it is installed.
    """
    atexit.register(leave)  # first, so that it is called last
    line, environment = socket.socket(fileno=descriptor), dict(os.environ)
    sys.path.append(packages)
    for module in modules:
        importlib.import_module(module)
    for module in others:
        with contextlib.suppress(ImportError):  # other versions of Ray may do without it
            importlib.import_module(module)
    check_threads()
    gc.collect()
    gc.freeze()
    Forks(line, environment).serve()
