"""Python processes that begin where a fresh one is once it has imported torch, pandas and raffed.

To import them costs three CPU seconds, which is most of what a small run in a process of its own costs. So
one process imports them, does nothing else, and is forked for every call. Each call is a new process, which
knows nothing of this one and of the calls before it. It has its own working folder, environment, streams and
exit code. Only the seed of Python's hashes is the same in all of them. Tests whose subject is how a process
starts, or that need a process while it runs, call `subprocess`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "torch",
    "pandas",
    "pyarrow.parquet",
    "raffed.cli.app",
    "raffed.runs.federation",
    "raffed.runs.run",
    "raffed.runs.verify",
    "raffed.methods.fedavg",
    "raffed.models.mlp",
    "raffed.runtime.worker",
)


MORE = "RAFFED_WARM"  # a variable that names modules that are imported as well


def python(
    words: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """`python WORDS...` in a process of its own, as `subprocess.run` with `capture_output` and `text`.

    The words begin with -c and a program, -m and a module, or the file of a script.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        wanted = {"words": list(words), "cwd": str(cwd or Path.cwd()), "env": dict(env or os.environ)}
        line = _server()
        socket.send_fds(line, [json.dumps(wanted).encode()], [out.fileno(), err.fileno()])
        code = _answer(line, list(words), timeout)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(list(words), code, *texts)


def begin(
    words: Sequence[str],
    out: Path,
    err: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """Start `python WORDS...` as the leader of a session, with default signal handlers. Do not wait for it.

    Args:
        words: As those of `python`.
        out: The file that gets its standard output.
        err: The file that gets its standard error.
        cwd: Its working folder.
        env: Its environment.

    Returns:
        Its process id. The process stays a zombie until `reap` is called.
    """
    wanted = {
        "words": list(words),
        "cwd": str(cwd or Path.cwd()),
        "env": dict(env or os.environ),
        "leads": True,
    }
    line = _server()
    with out.open("ab") as out_file, err.open("ab") as err_file:
        socket.send_fds(line, [json.dumps(wanted).encode()], [out_file.fileno(), err_file.fileno()])
    return int(line.recv(100))


def reap(pid: int) -> int:
    """Wait until a process that `begin` started has ended. Returns its exit code, negative for a signal."""
    line = _server()
    line.send(json.dumps({"reap": pid}).encode())
    return int(line.recv(100))


def _answer(line: socket.socket, words: list[str], timeout: float) -> int:
    pid = int(line.recv(100))
    line.settimeout(timeout)
    try:
        return int(line.recv(100))
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        line.settimeout(None)
        line.recv(100)
        raise subprocess.TimeoutExpired(words, timeout) from None
    finally:
        line.settimeout(None)


@cache
def _server() -> socket.socket:
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(its.fileno())],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        pass_fds=[its.fileno()],
        stdin=subprocess.DEVNULL,
    )
    its.close()

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return mine


def _serve(line: socket.socket) -> None:
    """Answer each call with the number of its process and, once that has ended, its exit code."""
    while True:
        asked, streams, *_ = socket.recv_fds(line, 1 << 20, 2)
        if not asked:
            return
        wanted = json.loads(asked)
        pid = wanted.get("reap") or os.fork()
        if pid == 0:
            line.close()
            _become(wanted, streams)
        for stream in streams:
            os.close(stream)
        if "reap" not in wanted:
            line.send(str(pid).encode())
        if "leads" not in wanted:
            line.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(wanted: dict[str, object], streams: list[int]) -> None:
    """Do what was asked in this forked process, and end it.

    What is registered at exit is executed. Python's own tidying is left out: it takes 0.4 CPU seconds, since
    it writes to all memory that is shared with the process that was forked.
    """
    for at, stream in enumerate(streams, start=1):
        os.dup2(stream, at)
        os.close(stream)
    if "leads" in wanted:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):  # nohup ignores them
            signal.signal(number, signal.SIG_DFL)
    settle(wanted["env"], str(wanted["cwd"]))  # type: ignore[arg-type]
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*(one for one in path if one), *sys.path[1:]]
    CODE.append(code_of(list(wanted["words"])))  # type: ignore[call-overload]
    sys.exit()


def settle(env: Mapping[str, str], folder: str) -> None:
    """Take an environment and a working folder, and forget what was derived from the former ones.

    A module that was imported before the fork may have asked for the folder of temporary files, as dill does
    when it is imported. Python keeps the answer, and a fresh process would find its own.
    """
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    tempfile.tempdir = None
    time.tzset()


def code_of(words: list[str]) -> int:
    """Execute the words as Python does. Returns the exit code."""
    try:
        _execute(words)
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001  a program may raise anything
        traceback.print_exc()
        return 1
    return 0


def _execute(words: list[str]) -> None:
    kind = words[0]
    sys.argv = words[1:] if kind == "-m" else ["-c", *words[2:]] if kind == "-c" else words
    sys.path.insert(0, {"-c": "", "-m": os.getcwd()}.get(kind, str(Path(kind).resolve().parent)))
    if kind == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.modules["__main__"] = main = ModuleType("__main__")
    if kind != "-c":
        main.__file__ = kind
    code = words[1] if kind == "-c" else Path(kind).read_bytes()
    exec(compile(code, "<string>" if kind == "-c" else kind, "exec"), main.__dict__)


CODE: list[int] = []  # the exit code of a forked process, once it is known


def leave() -> None:
    """End a forked process, where Python would begin to tidy up."""
    if CODE:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(CODE[0])


if __name__ == "__main__":
    atexit.register(leave)  # first, so that it is called last
    for module in (*IMPORTED, *os.environ.pop(MORE, "").split()):
        importlib.import_module(module)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
