"""Splits, losses and metrics of one's own: their laws, what is no such function, and what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import raffed
from raffed import Data, Federation, Numerics, RunConfig
from raffed.core.losses import Criterion
from raffed.core.own_functions import check_loss, criterion_of, own_metric, own_metrics
from raffed.data.label_splits import Dirichlet
from raffed.data.own_data import read_own
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split, split_name
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.own.resolve import load
from raffed.own.user_code import UserCodeError
from raffed.results.runfile import read_run
from raffed.runs.run import RunResult
from raffed.search.folder import recorded, score
from raffed.search.request import Request
from raffed.testing import check_split
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
    read_own: "def bad():",
    measure: "@__import__('raffed').metric(unit='fraction')\ndef bad(scores, labels):",
}


@pytest.mark.parametrize(
    ("use", "body", "words"),
    [
        (divide, "return [[0, 1], [1, 2]]", "gave sample 1 to the clients 0 and 1"),
        (divide, "return [[0], []]", "gave client 1 no sample"),
        (divide, "return [[120]]", "the index 120; indices are 0 to 119"),
        (divide, "return labels.sort()", "read-only"),
        (lose, "return 3.0", "gave a float; it must give a tensor"),
        (lose, "return logits", r"the shape \(4, 3\) for 4 samples"),
        (lose, "return logits.sum() / 0", "is not finite"),
        (lose, "return logits.sum() * __import__('torch').rand(())", "global generator"),
        (measure, "return scores", "gave a Tensor; it must give one number"),
        (measure, "return 2.0", "a fraction lies in"),
        (read_own, "raise SystemExit(0)", "SystemExit: 0"),  # else the command would end as if all was done
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
        ({"data.split": "./mylab.py:halves", "data.split_args": {"client": 3}}, "nearest: clients"),
        ({"data.split": "./mylab.py:needs_clients"}, "give --split-arg clients=VALUE"),
        ({"data.split": "os:system"}, "must be a function of yours"),
        ({"data.split": "iid:5", "data.split_args": {"clients": 3}}, "takes no split_args"),
        ({"loss": "./mylab.py:focal", "loss_args": {"gamma": -1.0}}, "gamma = -1.0 is outside"),
        ({"loss": "os:system"}, "must be a function of yours"),
        ({"federation.metrics": "./mylab.py:right,mylab:right"}, "two metrics are called 'right'"),
        ({"federation.metrics": "os:getcwd"}, "must be a function of yours"),
        ({"federation.metrics": "./bad.py:accuracy"}, r"'accuracy' .* is one of raffed's own"),
    ],
    ids=str,
)
def test_what_is_no_such_function_is_refused(mylab: Path, changes: dict[str, Any], words: str) -> None:
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
        replace(BASE, federation=Federation(metrics=[3]))


LABELS = np.arange(120) % 10


def divided(text: str, seed: int = 0, owners: np.ndarray | None = None, **args: float) -> list[np.ndarray]:
    made = make_partition(parse_split(text, args), LABELS, 10, owners, seed, local_test=0.0)
    return list(made.train)


def test_a_function_divides_the_labels_with_arguments_of_its_own() -> None:
    assert [len(one) for one in divided("./mylab.py:halves")] == [60, 20, 20, 20]
    assert [len(one) for one in divided("mylab:halves", clients=3, share=0.25)] == [30, 45, 45]
    parts = divided("./mylab.py:by_class")
    assert [set(LABELS[one]) for one in parts] == [{one} for one in range(10)]
    assert parse_split("./mylab.py:halves", {"clients": 7}).client_count == 7
    assert [len(one) for one in divided("./mylab.py:everybody")] == [120] * 3  # which its mark allows
    assert len(divided("./mylab.py:everybody", clients=121)) == 121  # more clients than samples
    (Path.cwd() / "boom.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    assert split_name(" ./boom.py:f ") == "./boom.py:f"  # a name is checked without importing the file


def test_a_subclass_of_split_and_objects_are_splits_too(mylab: Path) -> None:
    lumps = load("./mylab.py:Lumps")
    assert [len(one) for one in divided("./mylab.py:Lumps", clients=4)] == [30] * 4
    assert Data(split=lumps(5)) == Data(split="./mylab.py:Lumps", split_args={"clients": 5})
    assert Data(split=Dirichlet(10, 0.5)) == Data(split="dirichlet:10:0.5")


DRAWS = {
    "NumPy's": "np.random.permutation(len(labels))",
    "one of no seed": "np.random.default_rng().permutation(len(labels))",
}


@pytest.mark.parametrize(
    ("whose", "named"), [("NumPy's", "labels"), *((whose, "labels, rng") for whose in DRAWS)]
)
def test_a_draw_from_another_generator_is_refused(mylab: Path, cli: Cli, whose: str, named: str) -> None:
    (mylab / "bad.py").write_text(
        "import random\nimport numpy as np\nimport torch\n\n"
        f"def bad({named}, clients=3):\n    return np.array_split({DRAWS[whose]}, clients)\n",
        encoding="utf-8",
    )
    done = cli("run", "--split", "./bad.py:bad", "--rounds", 1, "--execution", "serial", "--out", "run")
    assert done.code == 2
    said = " ".join(done.err.split())
    assert f"{mylab / 'bad.py'}:5: ./bad.py:bad must draw from" in said
    assert "an argument `rng` that it names" in said
    assert not (mylab / "run").exists()
    why = {one.name: one.why for one in check_split("./bad.py:bad").failed}
    assert "`rng`" in why["same-twice"]


def trained(config: RunConfig = BASE, **changes: object) -> RunResult:
    return raffed.run(replace(config, **changes))


# Methods whose clients also train privately, have a head, a companion, a solver, or k.ce in a term
SLOW = ("fedrs", "ditto", "apfl", "fedphp", "fedproc", "perfedavg", "fedrep", "gldp", "mpfedcon", "pfedme")
METHODS = [
    *("fedavg", "map", "fedrod", "flda"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW),
]


@pytest.mark.parametrize("method", METHODS)
def test_the_cross_entropy_by_reference_is_no_loss_at_all(method: str) -> None:
    """Bit for bit: the fast kernels of the plain cross-entropy have autograd's bits."""
    plain, named = trained(method=method), trained(method=method, loss="./mylab.py:mean_ce")
    assert named.hashes == plain.hashes


def test_losses_of_samples_are_averaged() -> None:
    rows = trained().to_pandas(), trained(loss="./mylab.py:ce").to_pandas()
    one, other = (table[table["metric"] == "loss"]["value"].to_numpy() for table in rows)
    assert one == pytest.approx(other, rel=1e-5)


def test_class_counts_are_the_clients_own() -> None:
    """Balanced softmax by reference is FedROD's head: log n_c is added to the logits in training."""
    criterion = criterion_of("./mylab.py:balanced", {})
    logits, y = torch.linspace(-1, 1, 12).view(4, 3).double(), torch.tensor([0, 1, 2, 0])
    counts = torch.tensor([5, 1, 2])
    wanted = torch.nn.functional.cross_entropy(logits + counts.double().log(), y)
    assert torch.allclose(criterion(logits, y, counts), wanted)
    assert trained(loss="./mylab.py:balanced").hashes["weights"] != trained().hashes["weights"]


@pytest.mark.parametrize("name", ["focal", "balanced"])
def test_a_stack_of_clients_trains_with_it_as_each_client_alone(name: str) -> None:
    alone, stacked = (
        trained(loss=f"./mylab.py:{name}", method="map", numerics=Numerics(cohort=cohort)).to_pandas()
        for cohort in (0, 4)
    )
    losses = [
        table[(table["metric"] == "loss") & (table["split"] == "train")]["value"]
        for table in (alone, stacked)
    ]
    assert losses[0].to_numpy() == pytest.approx(losses[1].to_numpy(), rel=1e-4)


def test_a_method_that_does_not_admit_another_loss_refuses_it() -> None:
    with pytest.raises(UsageError, match="works with gradients of the cross-entropy"):
        build_method("creff").with_loss(Criterion(torch.nn.functional.cross_entropy, "mine"))


RIGHT = replace(federated(metrics="./mylab.py:right,./mylab.py:nll"), data=replace(BASE.data, validation=0.2))


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
