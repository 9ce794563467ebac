"""Metrics of one's own: which rows they have, and that they are recorded, reported and checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

import raffed
from raffed.core.measures.own_metric import own_metrics
from raffed.errors import UsageError
from raffed.results import read_run
from raffed.search.request import Request
from raffed.search.space import check
from raffed.search.trials import recorded, score
from tests.cli.conftest import Cli
from tests.own.own_code import BASE, federated, write

RIGHT = replace(federated(metrics="./mylab.py:right,./mylab.py:nll"), data=replace(BASE.data, validation=0.2))


@pytest.fixture(autouse=True)
def mylab(lab: Path) -> Path:
    write(lab)
    return lab


def values(rows: pd.DataFrame, model: str, split: str, metric: str) -> list[float]:
    kept = rows[(rows["model"] == model) & (rows["split"] == split) & (rows["metric"] == metric)]
    return kept[kept["class"].isna()].sort_values(["round", "client"])["value"].tolist()


@pytest.mark.parametrize("method", ["fedavg", "map", "apfl"])
def test_the_share_of_right_answers_is_the_accuracy_of_every_model_on_every_part(method: str) -> None:
    rows = raffed.run(replace(RIGHT, method=method)).to_pandas()
    places = [("global", "test"), ("global", "val"), ("personal", "local_test"), ("personal", "val")]
    for place in places:
        found = values(rows, *place, "right")
        assert len(found) >= 2
        assert found == pytest.approx(values(rows, *place, "accuracy"), abs=1e-12)
    assert values(rows, "global", "test", "nll") == pytest.approx(
        values(rows, "global", "test", "loss"), rel=1e-5
    )


def test_measuring_moves_no_weight() -> None:
    measured, plain = raffed.run(RIGHT), raffed.run(replace(RIGHT, federation=BASE.federation))
    assert measured.hashes["weights"] == plain.hashes["weights"]


def test_a_run_says_what_its_metrics_mean_and_is_resumed_and_verified(mylab: Path, cli: Cli) -> None:
    whole = raffed.run(RIGHT, out="whole")
    done: list[int] = []
    config = replace(RIGHT, runtime=replace(RIGHT.runtime, checkpoint_every=1))
    raffed.run(config, out="run", watch=lambda event: done.append(event.round), stop=lambda: bool(done))
    assert raffed.resume("run").hashes == whole.hashes
    about = read_run(mylab / "run")
    assert about["metrics"][0] == {
        "name": "right",
        "better": "higher",
        "unit": "fraction",
        "meaning": "The share of right answers.",
        "reference": "./mylab.py:right",
    }
    assert {one["role"] for one in about["code"]} == {"metric ./mylab.py:right", "metric ./mylab.py:nll"}
    assert cli("verify run").code == 0


def test_a_watcher_and_the_report_show_them(mylab: Path, cli: Cli) -> None:
    said = "run --metric ./mylab.py:right --metric mylab:nll --split p4c5 --epochs 1 --rounds 1"
    done = cli(f"{said} --execution serial --json --out run")
    (event,) = [one for one in done.events if one["event"] == "round"]
    assert event["global test right"] == pytest.approx(event["accuracy"])
    assert event["global test nll"] > 0
    printed = cli(f"{said} --execution serial --out shown").out
    assert "right, global test" in printed
    assert "nll, global test" in printed
    shown = cli("report", "run", "--out", "report")
    assert shown.code == 0
    summary = (mylab / "report" / "summary.md").read_text("utf-8")
    assert "right, global % ↑" in summary
    assert "nll, global in nats ↓" in summary
    assert "right" in cli("metrics", "./mylab.py:right").out


def test_no_sample_is_nan_and_an_unmarked_function_is_a_number_that_should_be_high(mylab: Path) -> None:
    (mylab / "plain.py").write_text("def plain(scores, labels):\n    return 1\n", encoding="utf-8")
    (one,) = own_metrics("./plain.py:plain")
    assert (one.name, one.better, one.unit) == ("plain", "higher", "number")
    assert one.measure(torch.zeros(0, 3), torch.zeros(0)) != one.measure(torch.zeros(0, 3), torch.zeros(0))


def test_tune_may_choose_by_one_on_validation_data(mylab: Path) -> None:
    base = replace(federated(metrics="./mylab.py:right,./mylab.py:errors"), data=RIGHT.data)
    asked = {name: Request(base, ("fedavg",), score=name) for name in ("accuracy", "right", "wrong")}
    raffed.run(base, out="run")
    last = {name: recorded(Path("run"), metric=one.score)[2] for name, one in asked.items()}
    scores = {name: score(one, last[name]) for name, one in asked.items()}
    assert scores["right"] == pytest.approx(scores["accuracy"])
    assert scores["wrong"] == pytest.approx(scores["accuracy"])
    assert Request.from_dict(asked["right"].as_dict()).score == "right"
    assert asked["accuracy"].as_dict()["score"] == "accuracy"


@pytest.mark.parametrize(
    ("name", "words"), [("nll", "its unit is 'nats'"), ("rigth", "nearest: right"), ("loss", "score")]
)
def test_tune_refuses_a_score_that_cannot_choose(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check(Request(RIGHT, ("fedavg",), score=name))
