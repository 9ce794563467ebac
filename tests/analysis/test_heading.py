"""The top of a report says what was run, when, by which version, with which command. Methods have names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from raffed.analysis import load_runs, write_report
from raffed.analysis.figures.curves import panel_figure
from raffed.analysis.figures.series import charts
from raffed.analysis.heading import heading
from raffed.analysis.runs.groups import groups
from raffed.analysis.runs.method_names import METHOD_NAMES

from raffed.methods import METHODS, method_info

WriteRun = Callable[..., Path]


def part(started: str, command: str = "", raffed: str = "0.1.0") -> dict[str, Any]:
    about = {"from": 1, "to": 1, "started": started, "versions": {"raffed": raffed}, "said": []}
    return about | ({"command": command} if command else {})


def test_a_report_says_what_was_run_when_by_which_version_and_with_which_commands(
    tmp_path: Path, write_run: WriteRun
) -> None:
    early, late = "2026-11-25T10:12:33+00:00", "2026-11-26T07:00:01+00:00"
    both = "raffed compare --method fedavg --method map"
    write_run("a", [0.5], segments=[part(late, both)], commit="0123456789abcdef+")
    write_run("b", [0.5], method="map", segments=[part(early, both), part(late, "raffed resume b", "0.2.0")])
    write_run("c", [0.5], method="map", seed=1, versions={"raffed": "0.1.0"}, started=early, commit=None)
    found = heading(load_runs([tmp_path]).called(METHOD_NAMES))
    assert found.title == "FedAvg and MAP on digits · p10c2"
    assert found.when == "2026-11-25 10:12 UTC to 2026-11-26 07:00 UTC"
    assert found.versions == [
        "raffed 0.1.0, commit 0123456789+",
        "raffed 0.2.0, commit 0123abc",
        "raffed 0.1.0",
    ]
    assert found.commands == [both, "raffed resume b"]
    assert found.unnamed == 1
    page = write_report([tmp_path], tmp_path / "out").read_text(encoding="utf-8")
    assert "<h1>FedAvg and MAP on digits · p10c2</h1>" in page
    assert f"<code>{both}</code>" in page
    assert "<title>FedAvg and MAP on digits · p10c2 – raffed report</title>" in page


def test_the_names_of_methods_are_those_of_the_methods() -> None:
    assert {name: method_info(name).title for name in METHODS} == METHOD_NAMES


def test_a_title_that_is_a_name_of_raffed_s_does_not_stand_for_a_method_of_one_s_own(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("a", [0.5], method="finetune")
    write_run("b", [0.5], method="./own.py:mine", title="FedAvg+FT")
    labels = {group.label for group in groups(load_runs([tmp_path]).called(METHOD_NAMES))}
    assert labels == {"FedAvg+FT", "./own.py:mine"}


def test_a_chart_has_the_values_and_the_looks_of_its_picture(tmp_path: Path, write_run: WriteRun) -> None:
    for seed in (0, 1):
        write_run(f"s{seed}", [0.25, 0.5 + seed / 4], seed=seed)
    figure = panel_figure(load_runs([tmp_path]), ("digits", "p10c2"), "Aggregation accuracy")
    assert figure is not None
    ((chart,), (one,)) = (charts(figure), charts(figure)[0].series)
    assert (chart.below, chart.points, chart.percent_below) == ("Round", False, False)
    assert (one.label, one.colour, one.marker, one.dashed) == ("fedavg", 0, "o", False)
    assert (one.x, one.y, one.low, one.high) == ([1, 2], [0.25, 0.625], [0.25, 0.5], [0.25, 0.75])
