"""Measures of a run and views of a task: stages, forgetting, classes, targets, gains, budgets, and their
pictures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raffed.analysis import load_runs
from raffed.analysis.figures.budget_curves import budget_figure
from raffed.analysis.figures.curves import class_heat_map, class_names, tasks
from raffed.analysis.figures.plots import client_dots, count_bins, gains
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
from raffed.analysis.metrics.measures import measures
from raffed.analysis.metrics.stages import a_glo, a_loc, a_sel, stage_counts, stage_forgetting
from raffed.analysis.metrics.stages import forgetting as forgetting_of_stages
from raffed.analysis.metrics.targets import target_table
from raffed.analysis.report import write_loaded
from raffed.analysis.runs.differing import differing
from raffed.analysis.runs.groups import groups
from raffed.analysis.runs.load import Runs

import raffed
from raffed import Clock, Data, Federation, Local, Model, RunConfig, Runtime
from raffed.results.by_samples import by_samples
from raffed.results.metric import Row
from raffed.results.runfile import sealed, write_json
from raffed.results.writer import MetricsWriter, read_metrics
from tests.analysis.changed_run import change
from tests.analysis.conftest import WriteRun
from tests.forging import sha256


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
    assert class_curves(runs, "a").to_numpy().tolist() == [[0.3, 0.5], [0.15, 0.25]]
    table = class_table(runs, groups(runs))
    assert table.rows == [["fedavg", "20.0"]]
    assert table.titles[-1] == "forgetting, points"


def test_a_run_that_knows_its_classes_shows_its_head_and_tail(tmp_path: Path, write_run: WriteRun) -> None:
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


def test_a_target_that_a_seed_never_reaches_has_no_mean(write_run: WriteRun) -> None:
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
    own = runs.metrics["run"].isin(["r0", "r1"]) & (runs.metrics["metric"] == "accuracy")
    without = replace(runs, metrics=runs.metrics[~own], _known={})
    rows = target_table(without, groups(without)).rows
    assert ["fedrs", "–", "not measured", "–"] in rows, "it has no global model"


def test_a_client_s_gain_is_that_of_its_last_model_on_one_split(write_run: WriteRun) -> None:
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


def test_every_client_is_a_dot_in_the_row_of_its_method(write_run: WriteRun, tmp_path: Path) -> None:
    """Each of two runs has clients with 0.02 less and more than the last mean, so that is the median."""
    write_run("a", [0.5, 0.6], personal=[0.5, 0.7])
    write_run("b", [0.5, 0.5], personal=[0.5, 0.9], method="map")
    figure = client_dots({"fedavg": [0.68, 0.72], "map": [0.88, 0.92]}, {"fedavg": 0, "map": 1})
    dots, medians = figure.axes[0].lines[::2], figure.axes[0].lines[1::2]
    assert [sorted(one.get_xdata()) for one in dots] == [[0.68, 0.72], [0.88, 0.92]]
    assert [list(one.get_xdata()) for one in medians] == [pytest.approx([at, at]) for at in (0.7, 0.9)]
    assert all(np.abs(np.asarray(one.get_ydata()) - row).max() < 0.36 for row, one in enumerate(dots))
    page = write_loaded(write_run.load(), tmp_path / "out").read_text()
    assert "Accuracy over clients" in page
    assert "Each dot is a client of one seed" in page


def test_classes_are_named_where_all_runs_name_them_alike(write_run: WriteRun) -> None:
    names = ["cat", "golden retriever", "owl"]
    folder = write_run("a", [0.5])
    runs = write_run.load()
    [members] = tasks(runs).values()
    assert class_names(runs, members, [0, 2]) == ["0", "2"]
    change(folder, "dataset.class_names", names)
    runs = write_run.load()
    [members] = tasks(runs).values()
    assert class_names(runs, members, [0, 2]) == ["cat", "owl"]
    figure = class_heat_map(runs, next(iter(tasks(runs))))
    assert figure is not None
    assert [one.get_text() for one in figure.axes[0].get_xticklabels()] == names
    assert class_names(runs, members, [0, 3]) == ["0", "3"], "a damaged file names too few"


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


def test_what_differs_besides_arguments_is_said(tmp_path: Path, write_run: WriteRun) -> None:
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


def written(folder: Path, rows: Sequence[Row], split: str = "stages:3:2:2:if5", rounds: int = 4) -> Runs:
    """The run of these rows, loaded."""
    writer = MetricsWriter(folder / "run", "run", "fedavg", "digits", split, 0)
    writer.add(sorted(rows, key=lambda row: row.round))
    writer.flush()
    data = {"dataset": "digits", "split": split}
    config = {"method": "fedavg", "data": data, "federation": {"rounds": rounds}}
    about = {"run_id": "run", "state": "finished", "config": config, "clients": 3}
    write_json(folder / "run" / "run.json", about)
    return load_runs([folder])


def own(
    round: int,
    stage: int | None,
    client: int | None,
    value: float,
    metric: str = "accuracy",
    model: str = "personal",
) -> Row:
    return Row(round, model, "local_test", metric, value, client=client, stage=stage, n=10)


def test_a_loc_is_the_mean_of_each_client_s_last_score_on_all_stages_tests(tmp_path: Path) -> None:
    """Client 0: 0.4 in round 4, not 0.9 in round 2; client 1: 0.6 of round 2; client 2 was in stage 1
    alone. Without stages all last scores count.
    """
    rows = [own(1, 0, 0, 0.95), own(2, 1, 0, 0.9), own(1, 0, 1, 0.7), own(2, 1, 1, 0.6), own(3, 0, 0, 0.8)]
    rows += [own(4, 1, 0, 0.4), own(3, 0, 2, 0.1), own(4, 1, None, 0.123)]
    runs = written(tmp_path, rows)
    assert a_loc(runs).loc["run"].to_dict() == {"value": pytest.approx(0.5), "clients": 2}
    assert measures(runs).loc["run", "a_loc"] == pytest.approx(0.5)
    rows = [own(1, None, 0, 0.9), own(2, None, 0, 0.5), own(1, None, 1, 0.7)]
    plain = written(tmp_path / "plain", rows, "equal:3:2")
    assert a_loc(plain).loc["run"].to_dict() == {"value": pytest.approx(0.6), "clients": 2}


def test_the_number_of_stages_is_the_split_s_even_if_the_run_did_not_get_there(tmp_path: Path) -> None:
    runs = written(tmp_path, [own(1, 0, 0, 0.9)], "stages:3:2:5:if50:outer")
    assert stage_counts(runs)["run"] == 5
    assert math.isnan(measures(runs).loc["run", "a_loc"])


def surveyed(values: dict[str, float], rounds: range, stages: int = 2) -> list[Row]:
    """Per round r the reading's value + r/100; in earlier stages it is 0.99."""
    between = "accuracy_between"
    models = {
        "global": ("global", between),
        "oracle": ("global", "accuracy_oracle"),
        "own": ("personal", between),
    }
    rows = []
    for r in rounds:
        stage = (r - 1) % stages
        for reading, value in values.items():
            model, metric = models[reading]
            rows.append(own(r, stage, None, value + r / 100 if stage == stages - 1 else 0.99, metric, model))
    return rows


@pytest.mark.parametrize(
    ("readings", "chosen", "value"),
    [
        ({"global": 0.1, "own": 0.5}, "global", 0.1),  # FedAvg, FedProx, APFL, Ditto
        ({"oracle": 0.2, "own": 0.5}, "oracle", 0.2),  # FedRep, FedPer
        ({"own": 0.5}, "own", 0.5),  # GLDP: prototypes
    ],
)
def test_a_glo_takes_the_global_model_else_the_oracle_else_the_clients_own_answer(
    readings: dict[str, float], chosen: str, value: float, tmp_path: Path
) -> None:
    """Rounds 2, 4, … 40 are at the last stage; the last ten of them are 22 … 40, whose mean is 31: value
    + 0.31.
    """
    runs = written(tmp_path, surveyed(readings, range(1, 41)), rounds=40)
    found = a_glo(runs).loc["run"]
    assert (found["reading"], found["value"]) == (chosen, pytest.approx(value + 0.31))


def test_a_sel_is_the_mean_over_the_last_ten_visits_of_each_stage(tmp_path: Path) -> None:
    """Visits of stage 1 are the odd rounds, of stage 2 the even ones; 40 rounds: the last ten are 21 … 39
    and 22 … 40. Methods without models at the clients are read off the global one.
    """
    rows = [own(r, (r - 1) % 2, None, r / 100) for r in range(1, 41)]
    runs = written(tmp_path, rows, rounds=40)
    assert a_sel(runs).loc["run"].tolist() == pytest.approx([0.30, 0.31])
    assert measures(runs).loc["run", "a_sel"] == pytest.approx(0.31)
    assert math.isnan(measures(runs).loc["run", "a_sel_global"])
    rows += [own(r, (r - 1) % 2, None, 0.3, "accuracy_between", "global") for r in range(1, 41)]
    runs = written(tmp_path / "whole", rows, rounds=40)
    assert a_sel(runs, whole=True).loc["run"].tolist() == pytest.approx([0.3, 0.3])
    assert measures(runs).loc["run", ["a_sel", "a_sel_global"]].tolist() == pytest.approx([0.31, 0.3])


def test_a_short_run_is_judged_by_its_second_half(tmp_path: Path) -> None:
    """Five visits of each of two stages: the last two, not all, whose first is of an untrained model; surveys
    that were taken in the last rounds alone are all read: the half is of the visits planned.
    """
    rows = [own(r, (r - 1) % 2, None, r / 100) for r in range(1, 11)] + surveyed(
        {"global": 0.5}, range(7, 11)
    )
    runs = written(tmp_path, rows, rounds=10)
    assert a_sel(runs).loc["run"].tolist() == pytest.approx([0.08, 0.09])
    assert measures(runs).loc["run", "a_sel_drop"] == pytest.approx(-0.01)
    assert a_glo(runs).loc["run", "value"] == pytest.approx(0.5 + 0.09)


def test_forgetting_is_the_sheet_s_example() -> None:
    """docs/papers/gldp.md §10 no. 16: a = [[.9], [.6, .8], [.5, .7, .9]] → ((.9 − .5) + (.8 − .7))/2."""
    nan = math.nan
    rest = [[0.6, 0.8, nan], [0.5, 0.7, 0.9]]
    assert stage_forgetting(np.array([[0.9, nan, nan], *rest])) == pytest.approx(0.25)
    assert stage_forgetting(np.array([[nan, nan, nan], *rest])) == pytest.approx(0.1)
    assert math.isnan(stage_forgetting(np.array([[0.9, nan], [nan, nan]])))


def test_a_run_s_forgetting_is_the_mean_over_clients_at_their_last_visits(tmp_path: Path) -> None:
    """Client 0: 0.9 → 0.5, of its last visits; client 1: 0.6 → 0.7; client 2 never came to the last stage."""
    first = [(1, 0, 0, 1.0), (2, 1, 0, 0.0), (3, 0, 0, 0.9), (4, 1, 0, 0.5), (1, 0, 1, 0.6), (2, 1, 1, 0.7)]
    rows = [own(*one, "accuracy_stage0") for one in [*first, (1, 0, 2, 0.3)]]
    rows.append(own(4, 1, 0, 0.8, "accuracy_stage1"))
    assert forgetting_of_stages(written(tmp_path, rows))["run"] == pytest.approx((0.4 - 0.1) / 2)


def test_mpfedcon_s_accuracy_is_over_all_parties_and_the_last_ten_rounds(tmp_path: Path) -> None:
    """docs/papers/mpfedcon.md §6 no. 9: N = 4, T = 12. Party i of 4 has i/4 + r/100 after round r when it is
    asked; two take part a round.

        All four over rounds 3 … 12: mean i/4 = 0.375, mean r/100 = 0.075. Participants (parties 2 and 3)
        alone: 0.625 + 0.075.
    """
    rows = []
    for r in range(1, 13):
        scores = [i / 4 + r / 100 for i in range(4)]
        rows += [own(r, None, i, scores[i], "accuracy_between") for i in range(4)]
        rows.append(own(r, None, None, sum(scores) / 4, "accuracy_between"))
        rows += [own(r, None, i, scores[i]) for i in (2, 3)] + [own(r, None, None, sum(scores[2:]) / 2)]
    found = measures(written(tmp_path, rows, "equal:4:2", rounds=12)).loc["run"]
    assert found["between_mean10"] == pytest.approx(0.45)
    assert found["between_last"] == pytest.approx(0.375 + 0.12)
    assert found["personal_mean10"] == pytest.approx(0.7)


def test_what_was_asked_for_is_read_off_the_last_round_and_seconds_are_a_median(tmp_path: Path) -> None:
    """The seconds of the first round do not count."""
    variance = "eigenvalue_variance"
    rows = [
        Row(r, "local", "train", "loss", 1.0, client=c, n=10 * (c + 1), seconds=seconds)
        for r, c, seconds in ((1, 0, 9.0), (1, 1, 9.0), (2, 0, 1.0), (2, 1, 2.0), (3, 0, 3.0))
    ]
    for kind, value in {"": 100.0, "_class": 50.0, "_raw": 7.0}.items():
        rows.append(Row(4, "global", "test", f"{variance}{kind}", value, n=78))
    for client, value in ((0, 1.0), (1, 3.0), (None, 2.0)):
        rows.append(Row(4, "local", "train", variance, value, client=client, n=3))
    rows.append(Row(4, "local", "train", "floats_training", 3e6))
    runs = written(tmp_path, rows, "p5c2")
    found = measures(runs).loc["run"]
    names = [f"{variance}{kind}" for kind in ("", "_class", "_client", "_raw")]
    assert found[names].tolist() == [100.0, 50.0, 2.0, 7.0]
    assert found["floats_training"] == 3.0
    assert runs.runs.loc["run", "client_seconds"] == 2.0  # of 1, 2, 3
    assert runs.runs.loc["run", "client_sample_seconds"] == pytest.approx(0.1)  # of 1/10, 2/20, 3/10


# Round, client → right answers of so many samples. Client 2 has no test samples.
RIGHT = {(1, 0): (1, 4), (1, 1): (9, 10), (1, 2): (0, 0), (2, 0): (4, 4), (2, 1): (1, 10), (3, 1): (7, 10)}


def score(round: int, client: int, model: str = "personal", metric: str = "accuracy") -> Row:
    right, n = RIGHT[round, client]
    return Row(round, model, "local_test", metric, right / n if n else math.nan, client=client, n=n)


def test_every_sample_counts_once_whoever_holds_it_and_other_rows_do_not_count(tmp_path: Path) -> None:
    """Round 1: 10 of 14; round 2: 5 of 14; round 3: 7 of 10, since client 1 alone was scored."""
    others = [
        score(1, 1, "local"),
        score(2, 1, metric="accuracy_between"),
        score(2, 0, metric="accuracy_observed"),
        Row(1, "personal", "local_test", "accuracy", 0.99, n=2),
        Row(1, "personal", "val", "accuracy", 0.5, client=0, n=4),
    ]
    writer = MetricsWriter(tmp_path / "run", "run", "fedavg", "digits", "iid:3", 0)
    writer.add([*(score(*key) for key in RIGHT), *others])
    writer.flush()
    assert by_samples(read_metrics(tmp_path / "run")).values.tolist() == [
        ["local", "accuracy", 1, 0.9],
        *(["personal", "accuracy", round, value] for round, value in ((1, 10 / 14), (2, 5 / 14), (3, 0.7))),
        ["personal", "accuracy_between", 2, 0.1],
    ]


def test_the_measures_of_a_run_have_the_last_and_the_best_round(write_run: WriteRun) -> None:
    folder = write_run("run", [], planned=3, rounds_done=3)
    writer = MetricsWriter(folder, "run", "fedavg", "digits", "iid:3", 0)
    for metric in ("accuracy", "accuracy_between"):
        writer.add([score(*key, metric=metric) for key in RIGHT])
    for r in (1, 2, 3):
        personal = Row(r, "personal", "local_test", "accuracy", r / 10, n=2)
        writer.add([personal, Row(r, "global", "train", "accuracy", 1 - r / 10, n=2)])
    writer.flush()
    change(folder, "files", {f"metrics/{part.name}": sha256(part) for part in (folder / "metrics").iterdir()})
    found = measures(write_run.load()).loc["run"]
    assert (found["personal_weighted_last"], found["personal_weighted_best"]) == (0.7, 10 / 14)
    assert (found["between_weighted_last"], found["between_weighted_best"]) == (0.7, 10 / 14)
    assert (found["training_last"], found["training_best"]) == (pytest.approx(0.7), pytest.approx(0.9))
    assert found["personal_best"] == pytest.approx(0.3)
    assert math.isnan(found["local_weighted_best"])
