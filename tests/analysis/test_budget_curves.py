"""Accuracy against bytes and against virtual time, and what a method needs to match FedAvg."""

from __future__ import annotations

from pathlib import Path

import pytest
from raffed.analysis import load_runs

import raffed
from analysis.figures.budget_curves import budget_figure
from analysis.figures.curves import tasks
from analysis.figures.series import charts
from analysis.metrics.targets import target_table
from raffed import Clock, Data, Federation, Local, Model, RunConfig, Runtime
from raffed.config.validation import Value

PANEL = "Aggregation accuracy"


def run(
    folder: Path,
    clock: Clock | None = None,
    method: str = "fedavg",
    args: dict[str, Value] | None = None,
    **federation: object,
) -> None:
    config = RunConfig(
        method,
        args or {},
        data=Data("digits", "p10c2", samples=200),
        model=Model("mlp", {"hidden": [8]}),
        local=Local(lr=0.1, momentum=0.0, batch_size=16, epochs=1),
        federation=Federation(rounds=3, **federation),  # type: ignore[arg-type]
        runtime=Runtime(execution="serial"),
        clock=clock or Clock(),
    )
    raffed.run(config, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    run(made / "whole")
    run(made / "short", compression="quantize")
    return made


def test_methods_that_send_as_much_have_no_picture_against_bytes(tmp_path: Path) -> None:
    run(tmp_path / "one")
    run(tmp_path / "two", method="fedprox")
    runs = load_runs(tmp_path)
    [task] = tasks(runs)
    assert budget_figure(runs, task, PANEL, "bytes") is None
    assert budget_figure(runs, task, PANEL, "time") is None


def test_a_curve_against_bytes_ends_where_all_of_them_were_sent(folder: Path) -> None:
    """Three rounds of ten clients with 618 weights, sent whole, or down whole and up with 8 bits each."""
    runs = load_runs(folder)
    [task] = tasks(runs)
    figure = budget_figure(runs, task, PANEL, "bytes")
    assert figure is not None
    [chart] = charts(figure)
    assert chart.below.startswith("Megabytes sent")
    ends = sorted(series.x[-1] for series in chart.series)
    weights = 64 * 8 + 8 + 8 * 10 + 10
    up, short, down = 4 * weights + 4, weights + 4 * 4 + 4, 4 * weights
    assert ends == pytest.approx([30 * (down + short) / 1e6, 30 * (down + up) / 1e6], rel=1e-5)
    assert budget_figure(runs, task, PANEL, "time") is None, "there is no clock"


def test_a_curve_against_time_has_the_seconds_of_the_clock(tmp_path: Path) -> None:
    run(tmp_path / "waits", Clock(speeds="constant", work="round", seconds=2.0))
    run(tmp_path / "async", Clock(speeds="constant", work="round", seconds=2.0, server="fedbuff", buffer=5))
    runs = load_runs(tmp_path)
    [task] = tasks(runs)
    figure = budget_figure(runs, task, PANEL, "time")
    assert figure is not None
    [chart] = charts(figure)
    assert sorted(series.x for series in chart.series) == [[2.0, 2.0, 4.0], [2.0, 4.0, 6.0]]
    table = target_table(runs, tasks(runs)[task])
    assert table is not None
    assert table.titles[-1] == "Virtual seconds to it"
