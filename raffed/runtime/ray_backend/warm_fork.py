"""How a fork of warm_process.py becomes the worker that Ray wanted, and when it must not be forked.

A fork must not be told from a worker that Ray starts, but by the process that is its parent.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

from raffed.runtime.ray_backend.warm_worker import THREADS

REQUEST_SECONDS = 10.0  # in which a program must have said what it wants
# Ray or raffed sets these in a worker's environment, and no library that was imported reads them. Whether a
# process imports from its folder (PYTHONSAFEPATH) is compared by its flags
OF_RAY = ("RAY_", "PYTHONBREAKPOINT", "PYTHONSAFEPATH", "REPORTER_UPDATE_INTERVAL_MS", "SPT_NOENV")
# Two terminals differ in these. raffed reads its own when it needs them, so a fork has its own values
OF_TERMINAL = frozenset(
    (
        *(
            "_",
            "COLORTERM",
            "COLUMNS",
            "DISPLAY",
            "LINES",
            "OLDPWD",
            "PWD",
            "SHLVL",
            "STY",
            "TERM",
            "TMPDIR",
            "TMUX",
        ),
        *(
            "TERM_PROGRAM",
            "TERM_PROGRAM_VERSION",
            "TMUX_PANE",
            "WINDOWID",
            "XAUTHORITY",
            "FORCE_COLOR",
            "NO_COLOR",
        ),
        *(
            "SSH_AUTH_SOCK",
            "SSH_CLIENT",
            "SSH_CONNECTION",
            "SSH_TTY",
            "RAFFED_COMMAND",
            "RAFFED_DATA",
            "RAFFED_LOG",
        ),
    )
)


class Wanted(NamedTuple):
    """What a worker of Ray's is to be.

    Args:
        words: Ray's program and its arguments, or raffed's.
        begun: How Python was begun.
        folder: The working folder.
        environment: The variables, without those of raffed's program.
        path: Where modules are looked for.
        python: Python's executable and flags.
        niceness: The priority.
        umask: The mask of new files.
        blocked: The signals that are blocked.
        ignored: The signals that are ignored.
        limits: The soft and the hard limit of resources, by name.
        oom_score: How soon the kernel ends it when memory runs out, or "" where that is not known.
    """

    words: list[str]
    begun: list[str]
    folder: str
    environment: dict[str, str]
    path: list[str]
    python: list[str]
    niceness: int
    umask: int
    blocked: list[int]
    ignored: list[int]
    limits: dict[str, tuple[int, int]]
    oom_score: str


def same_start(wanted: Wanted, mine: Mapping[str, str]) -> bool:
    """Return whether a process with the environment `mine` imports the same as the worker would.

    Libraries read variables when they are imported (portable bits are such variables). So all must be equal
    but those that Ray sets for every worker, and those of a terminal. A worker with variables of its own, as
    of a `runtime_env`, or with more rights than this process, is started as Ray starts it.
    """
    if wanted.python != [sys.executable, repr(sys.flags)] or wanted.niceness < os.nice(0):
        return False
    if any(
        resource.getrlimit(getattr(resource, name))[1] != hard for name, (_, hard) in wanted.limits.items()
    ):
        return False
    return _read(wanted.environment) == _read(mine)


def _read(environment: Mapping[str, str]) -> dict[str, str]:
    left_out = {name for name in environment if name in OF_TERMINAL or name.startswith(OF_RAY)}
    return {THREADS: "1", **{name: text for name, text in environment.items() if name not in left_out}}


def read_request(asker: socket.socket) -> tuple[Wanted, list[int]]:
    """Return what a worker is to be, and its three streams.

    Raises:
        OSError: It said nothing for too long.
        ValueError: It ended before it had said so.
    """
    asker.settimeout(REQUEST_SECONDS)
    length, streams, *_ = socket.recv_fds(asker, 8, 3)
    try:
        asked = b""
        while len(asked) < int(length):
            more = asker.recv(1 << 20)
            if not more:
                raise ValueError("it ended within its request")
            asked += more
        return Wanted(**json.loads(asked)), streams
    except (OSError, ValueError, TypeError):
        for stream in streams:
            os.close(stream)
        raise


def become(wanted: Wanted, streams: list[int], made: Mapping[str, str]) -> NoReturn:
    """Be the worker that Ray wanted, in this forked process.

    Args:
        wanted: What it is to be.
        streams: Its standard input, output and error.
        made: Variables that imports have set.
    """
    os.setpgid(0, 0)  # Ray kills the whole group of a worker that has ended
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
        os.close(stream)
    _settle(wanted, made)
    CODE.append(_code_of(wanted.words[0]))
    sys.exit()


def _settle(wanted: Wanted, made: Mapping[str, str]) -> None:
    """Take over what a process has from its parent, and forget what was derived from it before the fork."""
    os.environ.clear()
    os.environ.update({**made, **wanted.environment})
    os.chdir(wanted.folder)
    os.umask(wanted.umask)
    os.nice(wanted.niceness - os.nice(0))
    for name, (soft, hard) in wanted.limits.items():
        resource.setrlimit(getattr(resource, name), (soft, hard))
    for number in wanted.ignored:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, wanted.blocked)
    tempfile.tempdir = None
    time.tzset()
    if "torch" in sys.modules:
        from raffed.core.seeds import reseed_torch

        reseed_torch()
    if wanted.oom_score:
        Path("/proc/self/oom_score_adj").write_text(wanted.oom_score)
    sys.path[:] = wanted.path
    sys.argv, sys.orig_argv = list(wanted.words), list(wanted.begun)


def _code_of(program: str) -> int:
    """Execute Ray's program as Python does. Returns the exit code."""
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001  the program may raise anything
        traceback.print_exc()
        return 1
    return 0


CODE: list[int] = []  # the exit code of a fork, once it is known


def leave() -> None:
    """End a fork where Python would begin to tidy up. What is registered at exit has been executed.

    The destructors of Ray's library are not executed: in one of three forks they waited for ever for a thread
    of their own.
    """
    if CODE:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(CODE[0])


__all__ = ["Wanted", "become", "leave", "read_request", "same_start"]
