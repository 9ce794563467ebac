"""Views of a task: forgetting, classes, targets, who gains; the pictures draw what they are given."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raffed.analysis import load_runs
from raffed.analysis.figures.budget_curves import budget_figure
from raffed.analysis.figures.curves import tasks
from raffed.analysis.figures.plots import count_bins, gains
from raffed.analysis.figures.search_plots import history, pruning, searched_trials
from raffed.analysis.figures.series import Chart, charts
from raffed.analysis.figures.theme import svg
from raffed.analysis.metrics.classes import (
    class_curves,
    class_groups,
    class_table,
    forgetting,
    held_and_missing,
)
from raffed.analysis.metrics.gains import client_gains
from raffed.analysis.metrics.targets import target_table
from raffed.analysis.report import write_loaded
from raffed.analysis.runs.differing import differing
from raffed.analysis.runs.groups import groups

import raffed
from raffed import Clock, Data, Federation, Local, Model, RunConfig, Runtime
from raffed.results import MetricsWriter, write_json
from raffed.results.metrics import TEST_ACCURACY, TRAINING_LOSS
from raffed.results.runfile import sealed
from tests.analysis.conftest import WriteRun


@pytest.mark.filterwarnings("error")
def test_forgetting_and_what_is_held_or_missing_leave_out_classes_without_test_samples() -> None:
    """Class 0 falls from 0.9 to 0.6, class 1 rises to its best: (0.3 - 0.3) / 2. Class 0 (accuracy 1) is
    held by 3 of 4 clients, class 1 (accuracy 0) by one.
    """
    nan = math.nan
    assert forgetting(np.array([[0.9, 0.2], [0.5, 0.4], [0.6, 0.7]])) == pytest.approx((0.3 - 0.3) / 2)
    assert forgetting(np.array([[0.9, nan], [0.5, nan]])) == pytest.approx(0.4)
    assert math.isnan(forgetting(np.array([[0.9, 0.2]])))
    assert held_and_missing([1.0, nan, 0.0], [3, 4, 1], 4) == (0.75, 0.25)
    assert math.isnan(held_and_missing([1.0], [4], 4)[1])
    assert np.isnan(held_and_missing([nan], [2], 4)).all()


def test_head_and_tail_are_thirds_by_samples_and_equal_classes_have_none() -> None:
    assert class_groups([5, 100, 50, 10, 70, 20]) == {"head": [1, 4], "medium": [2, 5], "tail": [0, 3]}
    assert class_groups([100, 90, 100]) == {}


def test_class_curves_are_rounds_by_classes(write_run: WriteRun) -> None:
    write_run("a", [0.5, 0.25], classes=2)
    runs = write_run.load()
    # Accuracy · (0.6 + 0.8 c / 2)
    assert class_curves(runs, "a").to_numpy().tolist() == [
        [0.3, 0.5],
        [0.15, 0.25],
    ]
    table = class_table(runs, groups(runs))
    assert table.rows == [["fedavg", "20.0"]]
    assert table.titles[-1] == "forgetting, points"


def test_a_run_that_knows_its_classes_shows_head_tail_held_and_missing(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("a", [0.5], classes=3, clients=4)
    file = tmp_path / "a" / "run.json"
    about = json.loads(file.read_text())
    classes = {"samples": [90, 50, 10], "holders": [4, 2, 2]}
    file.write_text(json.dumps(sealed({**about, "classes": classes})))
    runs = write_run.load()
    table = class_table(runs, groups(runs))
    assert list(table.titles) == ["Method", "head %", "medium %", "tail %", "held %", "missing %"]
    accuracy = [50 * (0.6 + 0.8 * c / 3) for c in range(3)]
    held = (4 * accuracy[0] + 2 * accuracy[1] + 2 * accuracy[2]) / 8
    missing = (accuracy[1] + accuracy[2]) / 2
    assert [float(cell) for cell in table.rows[0][1:]] == pytest.approx([*accuracy, held, missing], abs=0.05)


def test_what_a_small_network_sends_is_not_rounded_to_nothing(tmp_path: Path) -> None:
    """Two rounds with 23,000 bytes in each direction are 0.092 MB."""
    for name, method in (("a", "fedavg"), ("m", "map")):
        writer = MetricsWriter(tmp_path / name, name, method, "digits", "p10c2", 0)
        for number in (1, 2):
            sent = TRAINING_LOSS.row(number, 1.0, n=9, bytes_up=23_000, bytes_down=23_000)
            writer.add([sent, TEST_ACCURACY.row(number, number / 4, n=9)])
        writer.flush()
        config = {"method": method, "data": {"dataset": "digits", "split": "p10c2"}}
        write_json(tmp_path / name / "run.json", {"run_id": name, "state": "finished", "config": config})
    runs = load_runs([tmp_path])
    table = target_table(runs, groups(runs))
    assert [row[3] for row in table.rows] == ["0.092", "0.092"]


def test_rounds_and_bytes_to_fedavg_s_best_of_the_same_seed_have_no_mean_where_a_seed_never_reaches_it(
    write_run: WriteRun,
) -> None:
    """A mean over the seeds that reach it would praise a method that seldom does. A round costs 2 MB up and
    4 MB down.
    """
    for seed in (0, 1):
        write_run(f"a{seed}", [0.1, 0.3, 0.5], method="fedavg", seed=seed)
        write_run(f"p{seed}", [0.2, 0.5, 0.6], method="fedprox", seed=seed)
        write_run(f"m{seed}", [0.6 if seed == 0 else 0.2, 0.3, 0.3], method="map", seed=seed)
        write_run(f"r{seed}", [0.2, 0.3, 0.3], method="fedrs", seed=seed)
    runs = write_run.load()
    table = target_table(runs, groups(runs))
    assert {row[0]: row[1:] for row in table.rows} == {
        "fedavg": ["2/2", "3.0", "18.0"],
        "fedprox": ["2/2", "2.0", "12.0"],
        "fedrs": ["0/2", "never", "–"],
        "map": ["1/2", "not by all", "–"],
    }


def test_a_client_s_gain_is_the_difference_of_its_last_personal_models_on_one_split(
    write_run: WriteRun,
) -> None:
    write_run("a", [0.1, 0.1], personal=[0.4, 0.5], method="fedavg")
    write_run("m", [0.1, 0.1], personal=[0.4, 0.75], method="map")
    write_run("n", [0.1, 0.1], personal=[0.4, 0.9], method="fedmr", partition_sha256="another split")
    runs = write_run.load()
    by_label = {group.label: group for group in groups(runs)}
    assert client_gains(runs, by_label["map"].used, by_label["fedavg"].used) == [pytest.approx([0.25, 0.25])]
    assert client_gains(runs, by_label["fedmr"].used, by_label["fedavg"].used) == []


def test_gains_of_several_seeds_are_counted_seed_by_seed_and_four_panels_stand_in_a_square() -> None:
    """Of three clients one loses with one seed, two with the other: 1.5 of 3. Three of six gain 10
    points: a bar of 1.5. Bins take their lower edge and what rounding keeps from it.
    """
    figure = gains({"map": [[0.11, -0.1, 0.11], [-0.1, -0.1, 0.11]]}, "fedavg")
    drawn = svg(figure)
    assert "map: 1.5 of 3 lose" in drawn
    assert "Clients, mean of 2 seeds" in drawn
    assert sorted(bar.get_height() for bar in figure.axes[0].patches)[-2:] == [1.5, 1.5]
    four = gains({name: [[0.1]] for name in "abcd"}, "fedavg")
    assert len({round(axes.get_position().x0, 6) for axes in four.axes}) == 2
    edges = np.array([-0.05, 0.0, 0.05, 0.1])
    assert count_bins(np.array([-0.05, -1e-12, 0.0, 0.05, 0.15 - 0.1]), edges) == [1, 2, 2]


def test_a_search_is_drawn_with_what_asha_ended_and_with_the_best_so_far() -> None:
    """Three trials, one ended after round 1; the best score goes 50, 50, 70 %."""
    records: list[dict[str, Any]] = [
        {"number": 0, "state": "finished", "score": 0.5, "reports": [[1, 0.2], [3, 0.5]]},
        {"number": 1, "state": "pruned", "score": None, "reports": [[1, 0.1]]},
        {"number": 2, "state": "finished", "score": 0.7, "reports": [[1, 0.3], [3, 0.7]]},
    ]
    trials = searched_trials(records)
    figure = pruning(trials)
    ends = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"]
    assert [(line.get_marker(), line.get_xdata()[0]) for line in ends] == [("o", 3), ("X", 1), ("o", 3)]
    assert pruning([one for one in trials if one.state == "finished"]) is None
    figure = history(trials)
    best, every = figure.axes[0].lines
    assert list(best.get_ydata()) == [0.5, 0.7]
    assert list(every.get_xdata()) == [1, 3], "the trial that was ended has no score"
    assert history(trials[:2]) is None


def test_what_differs_between_the_methods_of_a_task_besides_their_arguments_is_said(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("a", [0.5])
    write_run("b", [0.6, 0.7], method="fedmr", args={"mu1": 0.1})
    runs = write_run.load()
    assert differing(runs, groups(runs)) == [("federation.rounds", {"1": ["fedavg"], "2": ["fedmr"]})]
    page = write_loaded(runs, tmp_path / "out").read_text()
    assert "Not the same for all of these" in page


def run(folder: Path, clock: Clock | None = None, **federation: object) -> None:
    config = RunConfig(
        data=Data("digits", "p10c2", samples=200),
        model=Model("mlp", {"hidden": [8]}),
        local=Local(lr=0.1, momentum=0.0, batch_size=16, epochs=1),
        federation=Federation(rounds=3, **federation),  # type: ignore[arg-type]
        runtime=Runtime(execution="serial"),
        clock=clock or Clock(),
    )
    raffed.run(config, folder)


def chart_of(folder: Path, against: str) -> Chart | None:
    runs = load_runs(folder)
    [task] = tasks(runs)
    figure = budget_figure(runs, task, "Aggregation accuracy", against)
    return charts(figure)[0] if figure else None


def test_a_curve_against_bytes_ends_where_all_of_them_were_sent(tmp_path: Path) -> None:
    """Three rounds of ten clients with 618 weights, sent whole, or down whole and up with 8 bits each.
    There is no picture where all send as much, nor against time without a clock.
    """
    run(tmp_path / "whole")
    assert chart_of(tmp_path, "bytes") is None
    run(tmp_path / "short", compression="quantize")
    chart = chart_of(tmp_path, "bytes")
    assert chart.below.startswith("Megabytes sent")
    ends = sorted(series.x[-1] for series in chart.series)
    weights = 64 * 8 + 8 + 8 * 10 + 10
    up, short, down = 4 * weights + 4, weights + 4 * 4 + 4, 4 * weights
    assert ends == pytest.approx([30 * (down + short) / 1e6, 30 * (down + up) / 1e6], rel=1e-5)
    assert chart_of(tmp_path, "time") is None


def test_a_curve_against_time_has_the_seconds_of_the_clock(tmp_path: Path) -> None:
    run(tmp_path / "waits", Clock(speeds="constant", work="round", seconds=2.0))
    run(tmp_path / "async", Clock(speeds="constant", work="round", seconds=2.0, server="fedbuff", buffer=5))
    chart = chart_of(tmp_path, "time")
    assert sorted(series.x for series in chart.series) == [[2.0, 2.0, 4.0], [2.0, 4.0, 6.0]]
    runs = load_runs(tmp_path)
    table = target_table(runs, next(iter(tasks(runs).values())))
    assert table.titles[-1] == "Virtual seconds to it"
