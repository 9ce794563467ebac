"""Measures of a run and views of a task: stages, forgetting, classes, targets, gains and bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from raffed.analysis import load_runs
from raffed.analysis.figures.budget_curves import budget_figure
from raffed.analysis.figures.curves import tasks
from raffed.analysis.figures.series import charts
from raffed.analysis.metrics.classes import class_groups, class_table, forgetting, held_and_missing
from raffed.analysis.metrics.gains import client_gains
from raffed.analysis.metrics.measures import measures
from raffed.analysis.metrics.stages import a_glo, a_loc, a_sel, stage_forgetting
from raffed.analysis.metrics.stages import forgetting as forgetting_of_stages
from raffed.analysis.metrics.targets import target_table
from raffed.analysis.runs.groups import groups
from raffed.analysis.runs.load import Runs

import raffed
from raffed import Federation, Local
from raffed.results.metric import Row
from raffed.results.rows import by_samples
from raffed.results.writer import MetricsWriter, read_metrics
from tests.analysis.conftest import WriteRun, change, write_rows
from tests.tiny import digits


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


def test_a_run_that_knows_its_classes_shows_its_head_and_tail(tmp_path: Path, write_run: WriteRun) -> None:
    classes = {"samples": [90, 50, 10], "holders": [4, 2, 2]}
    write_run("a", [0.5], classes=3, clients=4)
    change(tmp_path / "a", "classes", classes)
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


def test_a_client_s_gain_is_that_of_its_last_model_on_one_split(write_run: WriteRun) -> None:
    write_run("a", [0.1, 0.1], personal=[0.4, 0.5], method="fedavg")
    write_run("m", [0.1, 0.1], personal=[0.4, 0.75], method="map")
    write_run("n", [0.1, 0.1], personal=[0.4, 0.9], method="fedmr", partition_sha256="another split")
    runs = write_run.load()
    by_label = {group.label: group for group in groups(runs)}
    assert client_gains(runs, by_label["map"].used, by_label["fedavg"].used) == [pytest.approx([0.25, 0.25])]
    assert client_gains(runs, by_label["fedmr"].used, by_label["fedavg"].used) == []


def test_a_curve_against_bytes_ends_where_all_of_them_were_sent(tmp_path: Path) -> None:
    """Three rounds of ten clients with 618 weights, sent whole, or down whole and up with 8 bits each."""
    for compression in ("", "quantize"):
        federation = Federation(3, compression=compression)
        config = digits("p10c2", samples=200, local=Local(epochs=1), federation=federation)
        raffed.run(config, tmp_path / (compression or "whole"))
    runs = load_runs(tmp_path)
    [task] = tasks(runs)
    [chart] = charts(budget_figure(runs, task, "Aggregation accuracy", "bytes"))
    ends = sorted(series.x[-1] for series in chart.series)
    weights = 64 * 8 + 8 + 8 * 10 + 10
    up, short, down = 4 * weights + 4, weights + 4 * 4 + 4, 4 * weights
    assert ends == pytest.approx([30 * (down + short) / 1e6, 30 * (down + up) / 1e6], rel=1e-5)
    assert budget_figure(runs, task, "Aggregation accuracy", "time") is None, "no run has a clock"


def written(folder: Path, rows: Sequence[Row], split: str = "stages:3:2:2:if5", rounds: int = 4) -> Runs:
    """The run of these rows, loaded."""
    write_rows(folder / "run", rows, {"federation": {"rounds": rounds}}, split, clients=3)
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
    alone.
    """
    rows = [own(1, 0, 0, 0.95), own(2, 1, 0, 0.9), own(1, 0, 1, 0.7), own(2, 1, 1, 0.6), own(3, 0, 0, 0.8)]
    rows += [own(4, 1, 0, 0.4), own(3, 0, 2, 0.1), own(4, 1, None, 0.123)]
    runs = written(tmp_path, rows)
    assert a_loc(runs).loc["run"].to_dict() == {"value": pytest.approx(0.5), "clients": 2}
    assert measures(runs).loc["run", "a_loc"] == pytest.approx(0.5)


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
    that were taken in the last rounds alone are all read: the half is of the visits planned. The mean of the
    clients' heads stands in for a global model, and goes before what the clients answer themselves.
    """
    rows = [own(r, (r - 1) % 2, None, r / 100) for r in range(1, 11)]
    for r in range(7, 11):
        stage, value = (r - 1) % 2, 0.99 if r % 2 else 0.5 + r / 100
        rows.append(own(r, stage, None, value, "accuracy_oracle", "global"))
        rows.append(own(r, stage, None, 0.7, "accuracy_between"))
    runs = written(tmp_path, rows, rounds=10)
    assert a_sel(runs).loc["run"].tolist() == pytest.approx([0.08, 0.09])
    assert measures(runs).loc["run", "a_sel_drop"] == pytest.approx(-0.01)
    assert a_glo(runs).loc["run"].to_dict() == {"value": pytest.approx(0.59), "reading": "oracle"}


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


def test_the_measures_of_a_run_have_the_last_and_the_best_round(tmp_path: Path) -> None:
    rows = [score(*key, metric=metric) for metric in ("accuracy", "accuracy_between") for key in RIGHT]
    for r in (1, 2, 3):
        rows.append(Row(r, "personal", "local_test", "accuracy", r / 10, n=2))
        rows.append(Row(r, "global", "train", "accuracy", 1 - r / 10, n=2))
    found = measures(written(tmp_path, rows, "iid:3", rounds=3)).loc["run"]
    assert (found["personal_weighted_last"], found["personal_weighted_best"]) == (0.7, 10 / 14)
    assert (found["between_weighted_last"], found["between_weighted_best"]) == (0.7, 10 / 14)
    assert (found["training_last"], found["training_best"]) == (pytest.approx(0.7), pytest.approx(0.9))
    assert found["personal_best"] == pytest.approx(0.3)
    assert math.isnan(found["local_weighted_best"])
