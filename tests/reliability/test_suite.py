"""The fault suite of `python -m tests.reliability`, with few cases, and its log.

python -m pytest tests/reliability/test_suite.py -m slow
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from raffed.methods import METHODS
from tests.reliability.__main__ import main
from tests.reliability.case_log import Case, CaseLog, summary

CASE = Case("kill-0-0-0", "kill", "command", "serial", "fedavg", "equal", "SIGTERM")


def cases(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


@pytest.mark.more
def test_a_serial_run_that_is_killed_and_files_that_are_damaged_change_no_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chains of part 1 of 12 are serial runs, and the first one is of FedAvg for this seed."""
    log, few = tmp_path / "log.jsonl", "--kills 1 --damages 2 --conditions 0 --part 1/12"
    seed = sorted(METHODS).index("fedavg")
    assert main([*few.split(), "--seed", str(seed), "--log", str(log), "--work", str(tmp_path)]) == 0, (
        capsys.readouterr().out
    )
    assert {case["kind"] for case in cases(log)} == {"kill", "damage"}
    assert {"signal", "target", "execution", "method", "moment", "outcome"} <= set(cases(log)[0])
    assert "0 faults" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1"])
def test_kills_damages_and_hostile_conditions_change_no_number(tmp_path: Path, seed: str) -> None:
    log, some = tmp_path / "log.jsonl", "--kills 30 --damages 60 --conditions 16"
    words = [*some.split(), "--seed", seed, "--log", str(log), "--work", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.reliability", *words], capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len({case["execution"] for case in cases(log) if case["kind"] == "kill"}) >= 4


def test_a_log_that_was_interrupted_in_a_line_goes_on_after_it(tmp_path: Path) -> None:
    log = CaseLog(tmp_path / "log.jsonl")
    log.add(CASE)
    with log.path.open("a") as file:
        file.write('{"key": "kill-0-0-1", "kind"')
    again = CaseLog(log.path)
    assert again.cases == [CASE]
    assert again.has("kill-0-0-0")
    assert not again.has("kill-0-0-1")


def test_cases_that_came_too_late_are_neither_counted_nor_faults(tmp_path: Path) -> None:
    log = CaseLog(tmp_path / "log.jsonl")
    for number, outcome in enumerate(("equal", "too late", "hang")):
        log.add(replace(CASE, key=f"kill-0-0-{number}", outcome=outcome))
    assert [case.outcome for case in log.counted("kill")] == ["equal", "hang"]
    assert [case.outcome for case in log.faults()] == ["hang"]
    assert (
        "2 kills (1 signals, 1 targets, 1 executions, 1 methods), 0 damages, 0 conditions, 1 faults"
        in summary(log)
    )
