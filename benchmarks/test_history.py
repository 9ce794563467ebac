"""The history of benchmarks: one JSON line for each row, with host and commit, and a figure of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.history import add, lines_in, plot, series


def test_a_row_is_added_as_one_line_with_host_commit_load_and_benchmark(tmp_path: Path) -> None:
    for seconds in (1.5, 1.25):
        add(tmp_path / "bench" / "history.jsonl", "registered", [{"clients": 1000, "start_s": seconds}])
    found = list(lines_in(tmp_path / "bench" / "history.jsonl"))
    assert [(one["clients"], one["start_s"], one["benchmark"]) for one in found] == [
        (1000, 1.5, "registered"),
        (1000, 1.25, "registered"),
    ]
    assert all({"time", "host", "commit", "changed", "load"} <= one.keys() for one in found)


def test_figures_of_two_hosts_are_two_series_and_what_was_measured_is_not_a_figure() -> None:
    common = {"benchmark": "registered", "clients": 1000, "load": 0.5, "changed": False}
    told = iter(
        [
            {**common, "host": "a", "commit": "1", "start_s": 2.0},
            {**common, "host": "b", "commit": "1", "start_s": 5.0},
            {**common, "host": "a", "commit": "2", "start_s": 1.0},
        ]
    )
    found = {key: dict(rows) for key, rows in series(told).items()}
    assert found == {
        ("registered", "start_s"): {
            "clients 1000 (a)": [("1", 2.0), ("2", 1.0)],
            "clients 1000 (b)": [("1", 5.0)],
        }
    }


def test_a_history_is_drawn(tmp_path: Path) -> None:
    add(tmp_path / "h.jsonl", "driver", [{"actors": 4, "sums": "by node", "add_s": 0.5, "in_mb": 3.0}])
    plot(tmp_path / "h.jsonl", tmp_path / "h.svg")
    assert (tmp_path / "h.svg").read_text().count("<!-- driver: ") == 2


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_line_that_is_not_an_object_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "h.jsonl").write_text(json.dumps({"host": "a"}) + f"\n{text}\n")
    with pytest.raises(ValueError, match=r"h\.jsonl, line 2: not"):
        list(lines_in(tmp_path / "h.jsonl"))
