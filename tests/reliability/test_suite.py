"""The fault suite of `python -m tests.reliability`, with few cases, its log and its figures.

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
from tests.reliability.case_log import Case, CaseLog
from tests.reliability.figures import BEGIN, END, figures
from tests.reliability.figures import main as write_figures

KILL = Case("kill-0-0-0", "kill", "raylet", "ray", "fedavg", "equal", "SIGTERM", details={"after": 2.4})
DAMAGE = Case("damage-0-0", "damage", "run: a/run.json", "verify", "map", "refused", "flip")


def cases(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


@pytest.mark.more
def test_a_serial_run_that_is_killed_and_files_that_are_damaged_change_no_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chains of part 1 of 12 are serial runs, and the first one is of FedAvg for this seed."""
    log, few = tmp_path / "log.jsonl", "--kills 1 --damages 2 --part 1/12"
    seed = sorted(METHODS).index("fedavg")
    code = main([*few.split(), "--seed", str(seed), "--log", str(log), "--work", str(tmp_path)])
    said = capsys.readouterr().out
    assert code == 0, said
    assert {case["kind"] for case in cases(log)} == {"kill", "damage"}
    assert {"signal", "target", "execution", "method", "moment", "outcome"} <= set(cases(log)[0])
    assert "Faults: 0." in said


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1"])
def test_kills_and_damages_change_no_number(tmp_path: Path, seed: str) -> None:
    log, some = tmp_path / "log.jsonl", "--kills 30 --damages 60"
    words = [*some.split(), "--seed", seed, "--log", str(log), "--work", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.reliability", *words], capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len({case["execution"] for case in cases(log) if case["kind"] == "kill"}) >= 4


def test_a_log_that_was_interrupted_in_a_line_goes_on_after_it(tmp_path: Path) -> None:
    log = CaseLog(tmp_path / "log.jsonl")
    log.add(KILL)
    with log.path.open("a") as file:
        file.write('{"key": "kill-0-0-1", "kind"')
    again = CaseLog(log.path)
    assert again.cases == [KILL]
    assert [again.has(f"kill-0-0-{number}") for number in (0, 1)] == [True, False]


def test_each_case_is_counted_once_what_came_too_late_in_no_table_and_a_fault_is_named(
    tmp_path: Path,
) -> None:
    log, page = CaseLog(tmp_path / "log.jsonl"), tmp_path / "page.md"
    hung = replace(KILL, key="kill-0-1-0", signal="SIGKILL", outcome="hang")
    for case in (KILL, hung, replace(KILL, key="kill-0-2-0", outcome="too late"), DAMAGE):
        log.add(case)
    assert [case.outcome for case in log.counted("kill")] == ["equal", "hang"]
    assert [case.outcome for case in log.faults()] == ["hang"]
    found = figures(log.cases)
    assert "2 kills (2 signals, 1 targets, 1 executions, 1 methods) and 1 damages" in found
    assert "1 cases came too late or were impossible" in found
    assert "Faults: 1.\n- kill-0-1-0, raylet, SIGKILL: hang" in found
    assert "| target | SIGKILL | SIGTERM | all |\n|---|---|---|---|\n| raylet | 1 | 1 | 2 |" in found
    for before in ("old", found):  # figures replace those that a page has
        page.write_text(f"before\n{BEGIN}\n{before}\n{END}\nafter\n")
        write_figures([str(log.path), "--into", str(page)])
        assert page.read_text() == f"before\n{BEGIN}\n\n{found}\n\n{END}\nafter\n"
