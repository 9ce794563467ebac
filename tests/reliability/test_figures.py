"""The tables of docs/reliability.md, from the log of the suite."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.reliability.case_log import Case, CaseLog
from tests.reliability.figures import BEGIN, END, figures, inserted, main

KILL = Case("kill-0-0-0", "kill", "raylet", "ray", "fedavg", "equal", "SIGTERM", details={"after": 2.4})
DAMAGE = Case("damage-0-0", "damage", "run: a/run.json", "verify", "map", "refused", "flip")


def test_each_case_is_counted_once_in_each_table_and_what_came_too_late_in_none() -> None:
    cases = [KILL, replace(KILL, signal="SIGKILL"), replace(KILL, outcome="too late"), DAMAGE]
    found = figures(cases)
    assert "2 kills (2 signals, 1 targets, 1 executions, 1 methods), 1 damages and 0 conditions" in found
    assert "1 cases came too late or were impossible" in found
    assert "| target | SIGKILL | SIGTERM | all |\n|---|---|---|---|\n| raylet | 1 | 1 | 2 |" in found
    assert "| run.json | 1 | 1 |" in found
    assert "2 seconds" in found


def test_a_fault_is_named() -> None:
    found = figures([KILL, replace(KILL, key="kill-0-1-0", outcome="hang")])
    assert "Faults: 1.\n- kill-0-1-0, raylet, SIGTERM: hang" in found


def test_figures_replace_those_that_a_page_has(tmp_path: Path) -> None:
    log, page = tmp_path / "log.jsonl", tmp_path / "page.md"
    CaseLog(log, "abc").add(KILL)
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    main([str(log), "--into", str(page)])
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n\n1 kills")
    assert text.endswith(
        f"abc (1 kills).\n\nKills by target and signal:\n\n{figures_of(log)}\n\n{END}\nafter\n"
    )
    main([str(log), "--into", str(page)])
    assert page.read_text() == text


def figures_of(log: Path) -> str:
    """What follows the first heading."""
    return figures(CaseLog(log).cases).partition("signal:\n\n")[2]


def test_a_page_without_the_comments_is_refused() -> None:
    with pytest.raises(ValueError, match="must have the comments"):
        inserted("text", "figures")
