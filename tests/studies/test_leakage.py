"""Attacks in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch
from raffed.reproductions.studies.leakage import FIGURE_10, carried_out

from raffed.attacks.leakage import Effort

IMAGE = torch.linspace(0, 1, 64).reshape(1, 8, 8)
TASKS = [
    (setting, IMAGE, 3, 10, i, 0, Effort(iterations=2, restarts=1)) for i, setting in enumerate(FIGURE_10[:2])
]


@pytest.mark.more
def test_in_two_processes_attacks_have_the_outcomes_of_one_in_the_order_asked_for() -> None:
    alone, beside = list(carried_out(TASKS, 1, 1)), list(carried_out(TASKS, 2, 1))
    assert len(alone) == len(TASKS)
    for one, two in zip(alone, beside, strict=True):
        assert one.attempt.trace == two.attempt.trace
        assert torch.equal(one.attempt.image, two.attempt.image)
        assert (one.label, one.said) == (two.label, two.said)


@pytest.mark.slow
def test_nothing_is_left_of_them_when_their_parent_is_killed() -> None:
    program = (
        "from raffed.attacks.leakage import Effort\n"
        "from raffed.reproductions.studies.leakage import carried_out\n"
        "from tests.studies.test_leakage_processes import TASKS\n"
        "if __name__ == '__main__':\n"
        "    long = [(*task[:-1], Effort(iterations=10**6, done=0.0, limit=1e30)) for task in TASKS * 4]\n"
        "    found = carried_out([*TASKS, *long], 2, 1)\n"
        "    print(next(found).label, flush=True)\n"
        "    list(found)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline().strip() == "3"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(child.is_running() for child in children):
        assert time.monotonic() < deadline, children
        time.sleep(0.2)
