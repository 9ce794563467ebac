"""Signals and kills, to the command alone and to its whole group, in every phase: code, last line, time, what
is left.

python -m pytest tests/reliability/test_endings.py -m slow
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

import raffed
from raffed import Federation, Local, RunConfig, Runtime
from raffed.results.runfile import read_run
from raffed.results.sweep_file import read_sweep
from tests.reliability.commands import ENDED_BY_RAY, SECONDS, Begin, strike

SMALL = ["--split", "p4c5", "--epochs", "1"]
COMMANDS = {  # words, the line that shows that its work goes on, what continues it
    "run": (["run", "--rounds", "100000"], r"^round ", "raffed resume {out}"),
    "compare": (
        ["compare", "--method", "fedavg", "--method", "fedrs", "--rounds", "100000"],
        r"^round ",
        "the same command with --out {out}",
    ),
    "tune": (
        ["tune", "--method", "fedavg", "--rounds", "60", "--grid", "local.lr=0.01,0.02,0.03,0.04,0.05,0.06"],
        r"^fedavg  local",
        "raffed tune --resume --out {out}",
    ),
}
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
SLOW = pytest.mark.slow


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "execution", "number", "target"),
    [
        # timeout(1), Slurm and `docker stop` send it to Ray's processes as well
        ("run", "ray", signal.SIGTERM, "group"),
        pytest.param("run", "ray", signal.SIGTERM, "everything", marks=SLOW),  # as systemd does
        pytest.param("run", "serial", signal.SIGHUP, "command", marks=SLOW),
        pytest.param("run", "ray", signal.SIGINT, "group", marks=SLOW),
        pytest.param("compare", "ray", signal.SIGTERM, "command", marks=SLOW),
        pytest.param("tune", "ray", signal.SIGTERM, "group", marks=SLOW),
    ],
)
def test_a_signal_while_work_goes_on_ends_the_command_resumably(
    begin: Begin, tmp_path: Path, name: str, execution: str, number: signal.Signals, target: str
) -> None:
    out, (words, shown, again) = tmp_path / "run", COMMANDS[name]
    placed = [] if name == "tune" else ["--execution", execution]
    command = begin([*words, *SMALL, *placed, "--out", str(out)])
    command.until(shown)
    ended = command.ended(lambda: strike(command.pids(target), number))
    assert ended.code == SIGNALS[number]
    # On a busy machine warnings are repeated behind it
    assert f"raffed: stopped; continue with: {again.format(out=out)}" in ended.err.splitlines()
    assert "Traceback" not in ended.err
    assert ended.seconds < SECONDS
    assert ended.left == []
    about = read_sweep(out) if name == "tune" else read_run(out / "fedavg" if name == "compare" else out)
    assert about["state"] == "stopped"
    if name == "run":
        assert (out / "checkpoints" / f"round-{about['rounds_done']:06d}").exists()


CONFIG = RunConfig(
    local=Local(epochs=10),
    federation=Federation(rounds=12),
    runtime=Runtime(execution="serial", checkpoint_every=2),
)
ENDS = ("raylet", "gcs_server", "agent", "command")  # a run ends with these


@pytest.fixture(scope="module")
def hashes() -> dict[str, str]:
    return raffed.run(CONFIG).hashes


@SLOW
@pytest.mark.parametrize("target", ["client actor", "driver actor", *ENDS])
def test_a_process_that_is_killed_changes_no_bit_of_the_run_that_is_continued(
    begin: Begin, tmp_path: Path, target: str, hashes: dict[str, str]
) -> None:
    out, words = tmp_path / "run", ["--epochs", "10", "--rounds", "12", "--checkpoint-every", "2"]
    command = begin(["run", *words, "--execution", "ray", "--actors", "2", "--out", str(out)])
    command.until("^round +4")
    ended = command.ended(lambda: strike(command.pids(target)[:1], signal.SIGKILL))
    assert "Traceback" not in ended.err
    assert ended.left == []
    if target not in ENDS:
        assert ended.code == 0
    elif target == "command":
        assert ended.code == -signal.SIGKILL
    else:
        assert ended.code == 1
        said = rf"raffed: .*(gcs_server|raylet)\), process \d+, died.*raffed resume {out}"
        assert re.search(f"{said}|{ENDED_BY_RAY}", ended.err)
    assert raffed.resume(out, runtime=CONFIG.runtime).hashes == hashes
