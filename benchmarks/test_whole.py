"""A benchmark to its last round: what its table says, and that its contestants make the same steps."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import whole


def row(name: str, *points: tuple[float, float, float], note: str = "") -> dict[str, Any]:
    keys = ("rounds", "seconds", "accuracy")
    return {"contestant": name, "points": [dict(zip(keys, one, strict=True)) for one in points], "note": note}


def shown(*rows: dict[str, Any]) -> list[list[str]]:
    text = io.StringIO()
    Console(width=150, file=text).print(whole.table(rows))
    lines = text.getvalue().splitlines()
    return [[part.strip() for part in line.strip("│").split("│")] for line in lines if line.startswith("│")]


def test_ratios_are_of_seconds_a_round_and_the_best_score_is_any_round_s() -> None:
    """One of them died half way, after 50 rounds of 3 s."""
    full = row("a", (50, 100, 0.5), (100, 200, 0.4))
    found = shown(full, row("b", (50, 150, 0.6), note="died (exit 1)"), row("c", note="absent: no pfl"))
    assert found == [
        ["a", "100", "200", "1.00", "0.4000", "0.5000", ""],
        ["b", "50", "150", "1.50", "0.6000", "0.6000", "died (exit 1)"],
        ["c", "0", "0", "–", "0.0000", "0.0000", "absent: no pfl"],
    ]


def test_there_must_be_a_core_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    with pytest.raises(ValueError, match="2 contestants need a core each, and there are 1"):
        whole.side_by_side(["bare", "raffed-serial"], "W3", 2, 1)


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it needs two cores")
def test_two_contestants_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "new" / "whole.json"
    rows = whole.side_by_side(["bare", "raffed-serial"], "W3", 5, 2, out)
    assert [[point["rounds"] for point in one["points"]] for one in rows] == [[2, 4, 5]] * 2
    assert all(one["points"][0]["seconds"] < one["points"][2]["seconds"] for one in rows)
    ends = [one["points"][2]["accuracy"] for one in rows]
    assert ends[0] == pytest.approx(ends[1], abs=0.02)  # the same steps, rounded otherwise
    assert json.loads(out.read_text())["rows"] == rows
