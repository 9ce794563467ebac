"""A command with --address warm goes on in a fork of the process that has imported torch, and is told from a
command that goes on by itself only by its time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from raffed.runtime.ray_backend.standing_ray import note
from raffed.runtime.ray_backend.warm_command import asks_for_it
from raffed.scratch import hold
from tests.runtime.ray_backend.test_warm_process import Process, environment, importing, process, said

__all__ = ["importing", "process"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are forked on Linux only")
ALONE = 99
WARM = ("--address", "warm")
Begun = Callable[..., "subprocess.Popen[str]"]
COMMAND = f"""
import sys
from pathlib import Path
from raffed.runtime.ray_backend import warm_command
warm_command.PROGRAM = Path(sys.argv[1])
code = warm_command.continued(sys.argv[2:])
sys.exit({ALONE} if code is None else code)
"""
PROGRAM = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print(json.dumps({"parent": os.getppid(), "pid": os.getpid(), "words": sys.argv[1:], "begun": sys.orig_argv,
                  "folder": os.getcwd(), "terminal": os.environ.get("COLUMNS")}), flush=True)
if "sleep" in sys.argv:
    time.sleep(60)
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def begun(tmp_path: Path, process: Process) -> Iterator[Begun]:
    """Begins a command beside a Ray that stands ready, as far as its record and its process go."""
    (tmp_path / "program.py").write_text(PROGRAM)
    tmp_path.chmod(0o700)
    let_go = hold(tmp_path)
    note(tmp_path, "127.0.0.1:1234", "secret")
    yield lambda *words, **more: command(tmp_path / "program.py", *words, **more)
    let_go()


def command(program: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(program), *words],
        env={**environment(), **more},
        cwd=program.parent,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_fork_has_the_commands_words_folder_and_terminal_and_its_exit_code_is_the_commands(
    begun: Begun, process: Process, tmp_path: Path
) -> None:
    with begun("run", *WARM, COLUMNS="77") as one:
        found: dict[str, Any] = said(one)
    assert found["parent"] == process.pid
    assert found["words"] == ["run", *WARM]
    assert found["begun"][1:2] == ["-c"]
    assert (found["folder"], found["terminal"]) == (str(tmp_path), "77")
    assert one.returncode == 7


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (("run", "--address", "auto"), {}),
        (("run", *WARM), {"LIBRARIES_MIGHT_READ_IT": "1"}),
        (("run", *WARM), {"OMP_NUM_THREADS": "7"}),
    ],
    ids=["another address", "another variable", "another number of threads"],
)
def test_a_command_that_needs_another_process_goes_on_by_itself(
    begun: Begun, words: tuple[str, ...], more: dict[str, str]
) -> None:
    with begun(*words, **more) as one:
        assert one.communicate(timeout=20)[0] == ""
    assert one.returncode == ALONE


def test_without_a_ray_that_stands_ready_a_command_goes_on_by_itself(
    tmp_path: Path,
) -> None:
    with command(tmp_path / "program.py", "run", *WARM) as one:
        one.wait(20)
    assert one.returncode == ALONE


def test_a_signal_to_the_command_is_heard_by_its_fork(begun: Begun) -> None:
    with begun("sleep", *WARM) as one:
        said(one)
        one.send_signal(signal.SIGTERM)
        one.wait(20)
    assert one.returncode == 5


def test_a_command_that_is_killed_takes_its_fork_along(begun: Begun) -> None:
    with begun("sleep", *WARM) as one:
        fork = psutil.Process(said(one)["pid"])
        one.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([fork], timeout=10)[1] == []


def test_a_fork_that_is_killed_ends_the_command_as_a_shell_says_it(begun: Begun) -> None:
    with begun("sleep", *WARM) as one:
        os.kill(said(one)["pid"], signal.SIGKILL)
        one.wait(20)
    assert one.returncode == 128 + signal.SIGKILL


def test_the_words_of_a_command_say_whether_it_joins_the_ray_that_stands_ready() -> None:
    assert asks_for_it(["run", "--address", "warm"])
    assert asks_for_it(["run", "--address=warm", "--rounds", "3"])
    assert not asks_for_it(["run", "--address", "auto", "--out", "warm"])
    assert not asks_for_it(["run", "--out", "--address"])
