"""How an own Ray ends, shown with processes that stand for Ray's: none of this needs Ray itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raffed.runtime.ray_backend import keeper
from raffed.runtime.ray_backend.endings import Own, own, within

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")


def until(true: Callable[[], object]) -> bool:
    """Whether it came true within twenty seconds."""
    for _ in range(200):
        if true():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def head(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program with the name of Ray's head process, started as Ray starts its own, with a worker that
    leads a group.
    """
    program = tmp_path / "gcs_server"
    shutil.copy(shutil.which("bash") or "", program)
    command = [str(program), "-c", "set -m; sleep 300 & wait"]
    with own.starting():
        process = subprocess.Popen(command, preexec_fn=lambda: None)
    yield process
    with own.ending():
        pass
    process.wait(10)


def test_ray_s_processes_lead_sessions_that_a_signal_to_the_command_s_group_does_not_reach(
    head: subprocess.Popen[bytes],
) -> None:
    assert os.getsid(head.pid) == os.getpgid(head.pid) == head.pid != os.getpgid(0)
    assert own.sessions == {head.pid}


def test_children_that_are_not_ray_s_stay_where_they_are() -> None:
    with subprocess.Popen(["sleep", "300"], preexec_fn=lambda: None) as other:
        assert os.getsid(other.pid) == os.getsid(0)
        other.kill()


def test_the_death_of_ray_s_head_process_is_told_at_once(head: subprocess.Popen[bytes]) -> None:
    assert own.lost is None
    head.kill()
    assert until(lambda: own.lost)
    assert own.lost == f"Ray's head process (gcs_server), process {head.pid},"


def test_an_end_that_was_asked_for_is_no_loss_and_leaves_nothing(head: subprocess.Popen[bytes]) -> None:
    assert until(lambda: len(keeper.members({head.pid})) == 2)
    with own.ending():
        head.kill()
    assert own.lost is None
    assert keeper.members({head.pid}) == []


COMMAND = """
import subprocess, sys, time
from raffed.runtime.ray_backend.endings import own
with own.starting():
    head = subprocess.Popen(["bash", "-c", "set -m; sleep 300 & wait"], preexec_fn=lambda: None)
print(head.pid, flush=True)
time.sleep(300)
"""


def test_nothing_outlives_a_command_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        head = int(command.stdout.readline())
        assert until(lambda: len(keeper.members({head})) == 2)
        command.send_signal(signal.SIGKILL)
    assert until(lambda: not keeper.members({head}))


def test_without_a_ray_of_its_own_there_is_nothing_to_end() -> None:
    one = Own()
    one.end_all()
    with one.ending():
        pass
    assert one.lost is None


def test_a_call_that_does_not_come_back_is_left_alone() -> None:
    assert within(10, lambda: None)
    assert not within(0.05, lambda: time.sleep(1))
