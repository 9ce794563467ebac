"""Signals and kills, to the command alone and to its whole group, in every phase: code, last line, time, what
is left.

python -m pytest tests/reliability/test_endings.py -m slow
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from raffed.experiments.tuning.folder import read_sweep
from raffed.results.runfile import read_run
from tests.reliability.commands import SECONDS, Begin, Ended
from tests.reliability.targets import found, strike

SMALL = ["--split", "p4c5", "--epochs", "1"]
COMMANDS = {  # words, the line that shows that its work goes on, what continues it
    "run": (["run", "--rounds", "100000"], r"^round ", "raffed resume {out}"),
    "compare": (
        ["compare", "--method", "fedavg", "--method", "fedrs", "--rounds", "100000"],
        r"^round ",
        "the same command",
    ),
    "tune": (
        ["tune", "--method", "fedavg", "--rounds", "60", "--grid", "local.lr=0.01,0.02,0.03,0.04,0.05,0.06"],
        r"^ *1  fedavg",
        "raffed tune --resume --out {out}",
    ),
}
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def struck(begin: Begin, out: Path, name: str, execution: str, number: int, whole: bool) -> Ended:
    """A command whose work goes on is sent a signal, alone or with its whole group."""
    words, shown, _ = COMMANDS[name]
    placed = [] if name == "tune" else ["--execution", execution]
    command = begin([*words, *SMALL, *placed, "--out", str(out)])
    command.until(shown)
    pid = command.pid
    return command.ended(lambda: os.killpg(pid, number) if whole else os.kill(pid, number))


def check(ended: Ended, code: int, says: str) -> None:
    assert ended.code == code
    assert ended.err.splitlines()[-1] == says
    assert "Traceback" not in ended.err
    assert ended.seconds < SECONDS
    assert ended.left == []


def test_sigterm_to_the_whole_group_of_a_run_on_ray_ends_it_resumably(begin: Begin, tmp_path: Path) -> None:
    """timeout(1), Slurm and `docker stop` send it to Ray's processes as well."""
    out = tmp_path / "run"
    ended = struck(begin, out, "run", "ray", signal.SIGTERM, whole=True)
    check(ended, 143, f"raffed: stopped; continue with: raffed resume {out}")
    about = read_run(out)
    assert about["state"] == "stopped"
    assert (out / "checkpoints" / f"round-{about['rounds_done']:06d}").exists()


CASES = [
    (name, execution, number, whole)
    for name in COMMANDS
    for execution in ("serial", "ray")
    for number in SIGNALS
    for whole in (False, True)
    if not (name == "tune" and execution == "serial")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "execution", "number", "whole"), CASES)
def test_a_signal_while_work_goes_on(
    begin: Begin, tmp_path: Path, name: str, execution: str, number: signal.Signals, whole: bool
) -> None:
    out = tmp_path / "run"
    ended = struck(begin, out, name, execution, number, whole)
    check(ended, SIGNALS[number], f"raffed: stopped; continue with: {COMMANDS[name][2].format(out=out)}")
    found = read_sweep(out) if name == "tune" else read_run(out / "fedavg" if name == "compare" else out)
    assert found["state"] == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("execution", ["serial", "ray"])
@pytest.mark.parametrize("after", [0.4, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("number", SIGNALS)
def test_an_early_signal_ends_a_command_within_five_seconds(
    begin: Begin, tmp_path: Path, number: signal.Signals, after: float, execution: str
) -> None:
    out = tmp_path / "run"
    command = begin(["run", "--rounds", "100000", *SMALL, "--execution", execution, "--out", str(out)])
    time.sleep(after)
    ended = command.ended(lambda: os.kill(command.pid, number))
    assert ended.code == SIGNALS[number]
    assert "raffed: stopped" in ended.err
    assert ended.seconds < 5
    assert ended.left == []
    assert not (out / "run.json").exists() or read_run(out)["state"] == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "tune"])
@pytest.mark.parametrize("vital", ["gcs_server", "raylet"])
def test_a_vital_process_of_ray_that_is_killed_ends_the_command_with_a_word(
    begin: Begin, tmp_path: Path, vital: str, name: str
) -> None:
    out = tmp_path / "run"
    words, shown, again = COMMANDS[name]
    command = begin([*words, *SMALL, "--out", str(out)])
    command.until(shown)
    [process] = [one.pid for one in command.family() if one.name == vital]
    ended = command.ended(lambda: os.kill(process, signal.SIGKILL))
    assert ended.code == 1
    assert re.search(rf"raffed: Ray's \w+ process \({vital}\), process {process}, died", ended.err)
    assert again.format(out=out) in ended.err
    assert ended.seconds < SECONDS
    assert ended.left == []
    assert (read_sweep(out) if name == "tune" else read_run(out))["state"] == "stopped"


@pytest.mark.slow
def test_sigterm_to_every_process_ends_the_command_all_the_same(begin: Begin, tmp_path: Path) -> None:
    """What scancel and systemd do: sessions protect nobody."""
    out = tmp_path / "run"
    command = begin([*COMMANDS["run"][0], *SMALL, "--out", str(out)])
    command.until("^round ")
    pids = [one.pid for one in command.family()]
    ended = command.ended(lambda: [os.kill(pid, signal.SIGTERM) for pid in pids] and None)
    assert ended.code == 143
    assert f"raffed: stopped; continue with: raffed resume {out}" in ended.err
    assert ended.seconds < SECONDS
    assert ended.left == []
    assert read_run(out)["state"] == "stopped"


@pytest.mark.slow
def test_nothing_outlives_a_command_that_was_killed(begin: Begin, tmp_path: Path) -> None:
    command = begin([*COMMANDS["run"][0], *SMALL, "--out", str(tmp_path / "run")])
    command.until("^round ")
    ended = command.ended(lambda: os.kill(command.pid, signal.SIGKILL))
    assert ended.code == -signal.SIGKILL
    assert ended.left == []


@pytest.mark.slow
def test_nothing_outlives_a_command_whose_keeper_was_killed_before_it(begin: Begin, tmp_path: Path) -> None:
    command = begin([*COMMANDS["run"][0], *SMALL, "--out", str(tmp_path / "run")])
    command.until("^round ")
    [keeper] = found(command, "keeper")
    strike([keeper], signal.SIGKILL)
    while (again := found(command, "keeper")) in ([], [keeper]):
        time.sleep(0.1)
    assert len(again) == 1
    ended = command.ended(lambda: os.kill(command.pid, signal.SIGKILL))
    assert ended.left == []


@pytest.mark.slow
@pytest.mark.parametrize("vital", ["gcs_server", "raylet"])
def test_a_vital_process_that_is_killed_while_ray_starts_ends_the_command_with_a_word(
    begin: Begin, tmp_path: Path, vital: str
) -> None:
    """`ray.init` would wait for it for ever."""
    command = begin([*COMMANDS["run"][0], *SMALL, "--out", str(tmp_path / "run")])
    while not (pids := found(command, vital)):
        time.sleep(0.05)
    time.sleep(1.0)
    ended = command.ended(lambda: strike(pids, signal.SIGKILL) and None)
    assert ended.code in (1, 2)
    assert re.search(rf"raffed: .*{vital}.* died", ended.err)
    assert "Traceback" not in ended.err
    assert ended.left == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_rays_client_ends_after_an_agent_died_has_last_words(
    begin: Begin, tmp_path: Path, number: signal.Signals
) -> None:
    """The agent's node process ends with it, and Ray's client may end the command before that knows of it."""
    out = tmp_path / "run"
    command = begin([*COMMANDS["run"][0], *SMALL, "--out", str(out)])
    command.until("^round ")
    ended = command.ended(lambda: strike(found(command, "agent")[:1], number) and None)
    assert ended.code == 1
    assert [
        line
        for line in ended.err.splitlines()
        if line.startswith("raffed: ") and f"raffed resume {out}" in line
    ]
    assert ended.left == []


@pytest.mark.slow
def test_a_worker_that_is_killed_as_soon_as_it_exists_does_not_keep_the_run_from_its_end(
    begin: Begin, tmp_path: Path
) -> None:
    """`ray.init` waited for ever for workers that Ray started in advance. A later one is replaced by Ray, if
    it had not registered only after a minute.
    """
    out = tmp_path / "run"
    command = begin(["run", *SMALL, "--rounds", "2", "--execution", "ray", "--out", str(out)])
    while not (pids := found(command, "idle worker")):
        time.sleep(0.02)
    strike(pids[:1], signal.SIGKILL)
    assert command.wait(300) == 0, command.errors.read_text()
    assert read_run(out)["state"] == "finished"
