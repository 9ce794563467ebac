"""Splits, losses and metrics of one's own: what is no such function, what decides a run, what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raffed
from raffed import Data, Federation, RunConfig
from raffed.core.measures.own_metric import own_metric
from raffed.core.training.own_loss import check_loss
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split
from raffed.errors import RunFolderError, UsageError
from raffed.own.resolve import load
from raffed.own.user_code import UserCodeError
from raffed.results import read_run
from tests.cli.conftest import Cli
from tests.own.own_code import BASE, federated, write


@pytest.fixture(autouse=True)
def mylab(lab: Path) -> Path:
    write(lab)
    return lab


def divide(name: str) -> object:
    return make_partition(parse_split(name, {}), np.arange(120) % 10, 10, None, 0, local_test=0.0)


def lose(name: str) -> None:
    state = torch.get_rng_state()
    try:
        check_loss(name, {}, 3, stacked=False)
    finally:
        torch.set_rng_state(state)


def measure(name: str) -> float:
    return own_metric(name).measure(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64))


FUNCTION = {
    divide: "def bad(labels):",
    lose: "def bad(logits, labels):",
    measure: "@__import__('raffed').metric(unit='fraction')\ndef bad(scores, labels):",
}


@pytest.mark.parametrize(
    ("use", "body", "words"),
    [
        (divide, "return [[0, 1], [1, 2]]", "gave sample 1 to the clients 0 and 1"),
        (divide, "return [[0, 0]]", "gave client 0 a sample twice"),
        (divide, "return [[0], []]", "gave client 1 no sample"),
        (divide, "return [[120]]", "the index 120; indices are 0 to 119"),
        (divide, "return [[-1]]", "the index -1"),
        (divide, "return [[0.5]]", "float64"),
        (divide, "return []", "gave no client at all"),
        (divide, "return {0: [1]}", "gave a dict"),
        (divide, "return labels.sort()", "read-only"),
        (divide, "raise KeyError('x')", "KeyError"),
        (lose, "return 3.0", "gave a float; it must give a tensor"),
        (lose, "return logits", r"the shape \(4, 3\) for 4 samples"),
        (lose, "return logits.detach().sum()", "without a gradient"),
        (lose, "return logits.sum() / 0", "is not finite"),
        (lose, "return logits.sum() * __import__('torch').rand(())", "global generator"),
        (measure, "return scores", "gave a Tensor; it must give one number"),
        (measure, "return 2.0", "a fraction lies in"),
        (measure, "return nothing", "NameError"),
    ],
)
def test_what_a_function_may_not_give_is_refused_by_its_file_and_line(
    mylab: Path, use: Callable[[str], object], body: str, words: str
) -> None:
    (mylab / "bad.py").write_text(f"{FUNCTION[use]}\n    {body}\n", encoding="utf-8")
    with pytest.raises((UsageError, UserCodeError), match=words) as found:
        use("./bad.py:bad")
    assert str(found.value).startswith(f"{mylab / 'bad.py'}:")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data.split": "./mylab.py:halves", "data.split_args": {"clients": 1}}, "is below 2"),
        ({"data.split": "./mylab.py:halves", "data.split_args": {"client": 3}}, "nearest: clients"),
        ({"data.split": "./mylab.py:halves", "data.split_args": {"labels": 3}}, "argument of split"),
        ({"data.split": "./mylab.py:needs_clients"}, "give --split-arg clients=VALUE"),
        ({"data.split": "./mylab.py:ce"}, "needs its argument logits"),
        ({"data.split": "os:system"}, "must be a function of yours"),
        ({"data.split": "iid:5", "data.split_args": {"clients": 3}}, "takes no split_args"),
        ({"loss": "./mylab.py:focal", "loss_args": {"gamma": -1.0}}, "gamma = -1.0 is outside"),
        ({"loss": "./mylab.py:focal", "loss_args": {"beta": 1.0}}, "argument of loss"),
        ({"loss": "./mylab.py:nowhere"}, "has no 'nowhere'"),
        ({"loss": "os:system"}, "must be a function of yours"),
        ({"loss": "./mylab.py:mine"}, "a loss takes logits and labels first"),
        ({"federation.metrics": "./mylab.py:right,mylab:right"}, "two metrics are called 'right'"),
        ({"federation.metrics": "os:getcwd"}, "must be a function of yours"),
        ({"federation.metrics": "./bad.py:accuracy"}, r"'accuracy' .* is one of raffed's own"),
    ],
    ids=str,
)
def test_what_is_no_such_function_is_refused_before_work_starts(
    mylab: Path, changes: dict[str, Any], words: str
) -> None:
    (mylab / "bad.py").write_text("def accuracy(scores, labels):\n    return 1.0\n", encoding="utf-8")
    with pytest.raises(UsageError, match=words) as found:
        raffed.run(BASE.changed(changes))
    assert "\n" not in str(found.value)


def test_what_is_named_and_its_arguments_decide_a_run_and_an_object_is_stored_as_its_reference() -> None:
    focal, right, nll = (load(f"./mylab.py:{name}") for name in ("focal", "right", "nll"))
    halves = Data(split="./mylab.py:halves", split_args={"clients": 3})
    runs = [
        *(BASE, replace(BASE, loss=focal), replace(BASE, loss=focal, loss_args={"gamma": 1.0})),
        *(replace(BASE, data=Data(split="./mylab.py:halves")), replace(BASE, data=halves)),
        federated(metrics=right),
    ]
    assert len({one.identity() for one in runs}) == len(runs)
    assert [RunConfig.from_dict(one.as_dict()) for one in runs] == runs
    assert runs[1].loss == "./mylab.py:focal"
    assert Federation(metrics=[right, "mylab:nll"]).metrics == "./mylab.py:right,mylab:nll"
    assert Federation(metrics=(right, nll)) == Federation(metrics="./mylab.py:right,./mylab.py:nll")
    assert Data(split=load("./mylab.py:halves")).split == "./mylab.py:halves"
    assert federated(metrics="").identity() == BASE.identity()  # as before there were any
    with pytest.raises(UsageError, match=r"federation\.metrics"):
        Federation(metrics=[3])


TOML = """
loss = "./mylab.py:focal"
loss_args = {gamma = 1}
[local]
epochs = 1
[data]
split = "./mylab.py:halves"
split_args = {clients = 3}
[federation]
metrics = "./mylab.py:right"
"""


def test_a_run_names_them_in_a_file_records_their_code_and_refuses_another(mylab: Path, cli: Cli) -> None:
    (mylab / "run.toml").write_text(TOML, "utf-8")
    said = ["run run.toml --rounds 1 --execution serial --quiet", "--out"]
    assert cli(*said, "run", "--split-arg", "share=0.2").code == 0
    about = read_run(mylab / "run")
    assert about["config"]["data"]["split_args"] == {"clients": 3, "share": 0.2}
    assert {one["role"]: one["reference"] for one in about["code"]} == {
        "loss": "./mylab.py:focal",
        "split": "./mylab.py:halves",
        "metric ./mylab.py:right": "./mylab.py:right",
    }
    assert cli("verify run").code == 0
    assert cli(*said, "other", "--split", "iid:4").code == 0
    assert read_run(mylab / "other")["config"]["data"]["split_args"] == {}
    (mylab / "mylab.py").write_text((mylab / "mylab.py").read_text("utf-8") + "# changed\n", "utf-8")
    refused = cli("verify run")
    assert (refused.code, "mylab.py has changed" in refused.err) == (2, True)
    with pytest.raises(RunFolderError, match="accept-changed-code"):
        raffed.verify("run")
