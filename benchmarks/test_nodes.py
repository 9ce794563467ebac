"""What a round should send on several nodes, and the page that says what it did."""

from __future__ import annotations

import json

import pytest

from benchmarks.nodes import PAGE, RECORD, forms, predicted, predicted_seconds, table
from benchmarks.workloads import workload
from raffed import RunConfig
from raffed.config.toml import parse_toml


def test_the_form_w1_is_w1() -> None:
    there = workload("W1").config
    here = RunConfig.from_dict(parse_toml(forms(1, there.federation.rounds)["W1"], "W1"))
    assert here == there


def test_the_drivers_line_carries_what_those_of_all_others_do() -> None:
    """1,448 bytes of each frame of 1,514 are a model's or a sum's; 66 more for two frames come back."""
    driver, other = predicted(3, weights=1448)
    assert other == pytest.approx((4 * 1514 + 4 * 66, 8 * 1514 + 2 * 66))
    assert driver == pytest.approx((2 * other[1], 2 * other[0]))
    assert predicted(1) == ((0.0, 0.0), (0.0, 0.0))


def test_the_third_node_adds_its_bytes_at_the_lines_rate() -> None:
    on_line = sum(predicted(2)[0]) * 8 / 100e6
    assert predicted_seconds(3, {1: 1.0, 2: 2.5}) == pytest.approx(2.5 + on_line)
    assert predicted_seconds(2, {1: 1.0, 2: 2.5}) is None


def test_the_page_in_the_repository_has_the_table_of_its_record() -> None:
    assert table(json.loads(RECORD.read_text())) in PAGE.read_text()
