"""The process from which workers are forked: a fork is what Ray wanted, or the worker starts as always.

Ray's program is a script here that says who it is. The process imports what a test wants, so that this is
fast.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from raffed.runtime.ray_backend import warm_worker
from raffed.runtime.ray_backend.warm_workers import PACKAGES
from tests.live_output import next_line

PROGRAM = """
import atexit, json, os, resource, signal, sys, time
said = {"words": sys.argv[1:], "parent": os.getppid(), "pid": os.getpid(), "environment": dict(os.environ),
        "name": __name__, "path": sys.path, "folder": os.getcwd(), "group": os.getpgid(0),
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE), "nice": os.nice(0), "mask": os.umask(0o22),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "ignored": signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, "orig": sys.orig_argv,
        "oom": open("/proc/self/oom_score_adj").read().strip(), "open": sorted(os.listdir("/proc/self/fd"))}
print(json.dumps(said), flush=True)
if "sleep" in sys.argv:
    time.sleep(60)
atexit.register(print, "at exit", flush=True)
sys.exit(7)
"""
START = "import sys; sys.path.append(sys.argv[2]); from raffed.runtime.ray_backend import warm_process; "
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
Process = subprocess.Popen[bytes]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Process]]:
    """Starts the process from which workers are forked. What it imports is a module with the given lines."""
    made: list[Process] = []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def start(lines: str = "") -> Process:
        (tmp_path / "imported_first.py").write_text(lines)
        with socket.socket(socket.AF_UNIX) as line:
            line.bind(str(tmp_path / "warm"))
            line.listen(10)
            program = f"{START}warm_process.main(int(sys.argv[1]), sys.argv[2], ('imported_first',), ())"
            command = [sys.executable, "-c", program, str(line.fileno()), str(PACKAGES)]
            made.append(
                subprocess.Popen(
                    command,
                    env=environment(),
                    pass_fds=[line.fileno()],
                    stdin=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
        return made[0]

    yield start
    for one in made:
        assert one.stdin is not None
        assert one.stderr is not None
        one.stdin.close()
        one.wait(10)
        one.stderr.close()


@pytest.fixture
def process(importing: Callable[[], Process]) -> Process:
    return importing()


def environment() -> dict[str, str]:
    """Variables that stay the same during a test."""
    return {name: text for name, text in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def worker(program: Path, *words: str, **settings: Any) -> subprocess.Popen[str]:
    """What Ray starts, and where it is told to go."""
    told = {warm_worker.PLACE: str(program.with_name("warm")), warm_worker.PROGRAM: str(program)}
    return subprocess.Popen(
        [sys.executable, warm_worker.__file__, *words],
        env={**environment(), **told, **settings.pop("more", {})},
        cwd=program.parent,
        stdout=subprocess.PIPE,
        text=True,
        **settings,
    )


def said(one: subprocess.Popen[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next_line(one))
    return found


def until_ended(process: psutil.Process) -> None:
    """Wait until a process has ended. Its exit code can still be asked for."""
    until = time.monotonic() + 20
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
        time.sleep(0.05)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def odd_start() -> None:
    """Give a program other properties than the process has."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (123, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.nice(1)
    os.umask(0o57)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Path("/proc/self/oom_score_adj").write_text("777")


def test_a_fork_has_all_that_a_process_has_from_its_parent_as_if_ray_had_started_it(
    program: Path, process: Process
) -> None:
    """But for the parent and the group, of which a worker of Ray's is the leader as well."""
    started = [worker(program, "--a", "b", preexec_fn=odd_start)]
    forked = said(started[0])
    process.communicate(timeout=10)
    started.append(worker(program, "--a", "b", preexec_fn=odd_start))
    fresh = said(started[1])
    for one in started:
        one.communicate(timeout=10)
    assert (forked["parent"], fresh["parent"]) == (process.pid, os.getpid())
    assert forked["group"] == forked["pid"]
    apart = {"parent", "pid", "group"}
    assert {n: v for n, v in forked.items() if n not in apart} == {
        n: v for n, v in fresh.items() if n not in apart
    }
    assert (fresh["limits"][0], fresh["blocked"], fresh["ignored"], fresh["oom"]) == (123, [12], True, "777")


def test_a_fork_ends_with_the_exit_code_of_rays_program_after_what_it_registered(
    program: Path, process: Process
) -> None:
    with worker(program) as one:
        assert said(one)["parent"] == process.pid
        assert one.communicate(timeout=10)[0] == "at exit\n"
    assert one.returncode == 7


@pytest.mark.parametrize(
    "more", [{"ATEN_CPU_CAPABILITY": "default"}, {"OMP_NUM_THREADS": "7"}, {"OF_A_RUNTIME_ENV": ""}]
)
def test_a_worker_whose_libraries_might_read_other_variables_starts_as_always(
    program: Path, process: Process, more: dict[str, str]
) -> None:
    with worker(program, more=more) as one:
        assert said(one)["pid"] == one.pid
    assert one.returncode == 7


@pytest.mark.parametrize("more", [{"RAY_JOB_ID": "01", "OMP_NUM_THREADS": "1", "SPT_NOENV": "1"}, {}])
def test_variables_that_ray_sets_for_every_worker_are_no_hindrance(
    program: Path,
    importing: Callable[[], Process],
    more: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    process = importing()
    with worker(program, more=more) as one:
        found = said(one)
    assert found["parent"] == process.pid
    assert more.items() <= found["environment"].items()
    assert ("OMP_NUM_THREADS" in found["environment"]) == ("OMP_NUM_THREADS" in more)


def test_what_an_import_sets_in_the_environment_is_set_in_forks(
    program: Path, importing: Callable[[str], Process]
) -> None:
    importing("import os; os.environ['SET_BY_IMPORT'] = 'yes'")
    with worker(program) as one:
        assert said(one)["environment"]["SET_BY_IMPORT"] == "yes"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
            "2 threads",
        ),
        ("raise ImportError('there is no torch')", "there is no torch"),
    ],
    ids=["a thread", "no import"],
)
def test_a_process_whose_forks_would_lack_something_ends_and_says_why(
    program: Path, importing: Callable[[str], Process], lines: str, why: str
) -> None:
    process = importing(lines)
    with worker(program) as one:
        assert said(one)["pid"] == one.pid
    assert why in process.communicate(timeout=10)[1].decode()
    assert process.returncode == 1


def test_without_the_process_a_worker_starts_as_always(program: Path) -> None:
    with worker(program, "x") as one:
        found = said(one)
    assert (found["pid"], found["words"], one.returncode) == (one.pid, ["x"], 7)
    assert not [name for name in found["environment"] if name.startswith("RAFFED_WARM_P")]


def test_a_worker_that_is_killed_takes_its_fork_along(program: Path, process: Process) -> None:
    with worker(program, "sleep") as one:
        fork = psutil.Process(said(one)["pid"])
        one.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([fork], timeout=10)[1] == []


def test_a_worker_that_waits_for_its_fork_is_a_shell_which_takes_less_memory(
    program: Path, process: Process
) -> None:
    with worker(program, "sleep") as one:
        said(one)
        waiting = psutil.Process(one.pid)
        until = time.monotonic() + 20
        while "python" in waiting.exe() and time.monotonic() < until:
            time.sleep(0.05)
        assert "python" not in waiting.exe()
        assert waiting.memory_info().rss < 4 * 2**20
        one.kill()


def test_forks_end_with_the_process(program: Path, process: Process) -> None:
    with worker(program, "sleep") as one:
        fork = psutil.Process(said(one)["pid"])
        assert process.stdin is not None
        process.stdin.close()
        one.wait(10)
    until_ended(fork)


def test_a_program_that_gave_up_before_it_was_greeted_gets_no_fork(program: Path, process: Process) -> None:
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(program.with_name("warm")))
    with worker(program, "sleep") as one:
        said(one)
        assert len(psutil.Process(process.pid).children()) == 1
        one.kill()


def test_the_folder_of_the_program_that_asks_hides_no_module_of_pythons() -> None:
    """It is the first place where that program looks for modules."""
    names = {path.stem for path in Path(warm_worker.__file__).parent.glob("*.py")}
    assert names & set(sys.stdlib_module_names) == set()
