"""Scores in which every test sample counts once, and the best round of a run, as other papers print them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from raffed.analysis import load_runs
from raffed.analysis.metrics.measures import measures

from raffed.results import MetricsWriter, Row
from raffed.results.by_samples import by_samples
from raffed.results.writer import read_metrics
from tests.analysis.changed_run import change
from tests.analysis.conftest import WriteRun
from tests.forging import sha256

# Round, client → right answers of so many samples. Client 2 has no test samples.
RIGHT = {
    (1, 0): (1, 4),
    (1, 1): (9, 10),
    (1, 2): (0, 0),
    (2, 0): (4, 4),
    (2, 1): (1, 10),
    (3, 1): (7, 10),
}


def score(round: int, client: int, model: str = "personal", metric: str = "accuracy") -> Row:
    right, n = RIGHT[round, client]
    return Row(round, model, "local_test", metric, right / n if n else math.nan, client=client, n=n)


def written(folder: Path, rows: list[Row]) -> Path:
    writer = MetricsWriter(folder, folder.name, "fedavg", "digits", "iid:3", 0)
    writer.add(rows)
    writer.flush()
    return folder


def test_every_sample_counts_once_whoever_holds_it(tmp_path: Path) -> None:
    """Round 1: 10 of 14; round 2: 5 of 14; round 3: 7 of 10, since client 1 alone was scored."""
    found = by_samples(read_metrics(written(tmp_path / "run", [score(*key) for key in RIGHT])))
    assert found["round"].tolist() == [1, 2, 3]
    assert found["value"].tolist() == [10 / 14, 5 / 14, 0.7]


def test_models_and_metrics_are_apart_and_other_rows_do_not_count(tmp_path: Path) -> None:
    rows = [
        score(1, 0),
        score(1, 1, "local"),
        score(2, 1, metric="accuracy_between"),
        score(2, 0, metric="accuracy_observed"),
        Row(1, "personal", "local_test", "accuracy", 0.99, n=2),
        Row(1, "personal", "val", "accuracy", 0.5, client=0, n=4),
    ]
    found = by_samples(read_metrics(written(tmp_path / "run", rows)))
    assert found.values.tolist() == [
        ["local", "accuracy", 1, 0.9],
        ["personal", "accuracy", 1, 0.25],
        ["personal", "accuracy_between", 2, 0.1],
    ]


def test_a_run_without_scores_of_clients_has_none(tmp_path: Path) -> None:
    rows = [Row(1, "global", "test", "accuracy", 0.5, n=10)]
    assert by_samples(read_metrics(written(tmp_path / "run", rows))).empty


def test_the_measures_of_a_run_have_the_last_and_the_best_round(tmp_path: Path, write_run: WriteRun) -> None:
    folder = write_run("run", [0.1, 0.9, 0.2])
    part = folder / "metrics"
    for old in part.iterdir():
        old.unlink()
    written(
        folder,
        [
            *(score(*key) for key in RIGHT),
            *(score(*key, metric="accuracy_between") for key in RIGHT),
            *(Row(r, "personal", "local_test", "accuracy", r / 10, n=2) for r in (1, 2, 3)),
            *(Row(r, "global", "train", "accuracy", 1 - r / 10, n=2) for r in (1, 2, 3)),
        ],
    )
    change(folder, "files", {f"metrics/{part.name}": sha256(part) for part in (folder / "metrics").iterdir()})
    found = measures(load_runs([tmp_path])).loc["run"]
    assert (found["personal_weighted_last"], found["personal_weighted_best"]) == (0.7, 10 / 14)
    assert (found["between_weighted_last"], found["between_weighted_best"]) == (0.7, 10 / 14)
    assert (found["training_last"], found["training_best"]) == (pytest.approx(0.7), pytest.approx(0.9))
    assert found["personal_best"] == pytest.approx(0.3)
    assert math.isnan(found["local_weighted_best"])
