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
from raffed import Data, Federation, Head, Method, Numerics, RunConfig
from raffed.core.losses import Criterion
from raffed.core.measures.own_metric import own_metric, own_metrics
from raffed.core.training.own_loss import check_loss, criterion_of
from raffed.data.label_splits import Dirichlet
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split, split_name
from raffed.errors import RunFolderError, UsageError
from raffed.methods import build_method
from raffed.own.resolve import load
from raffed.own.user_code import UserCodeError
from raffed.results.runfile import read_run
from raffed.runs.result import RunResult
from raffed.search import space
from raffed.search.request import Request
from raffed.search.trials import recorded, score
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


RUN_FILE = """
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
    (mylab / "run.toml").write_text(RUN_FILE, "utf-8")
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
    (Path.cwd() / "boom.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    assert split_name(" ./boom.py:f ") == "./boom.py:f"  # a name is checked without importing the file


def test_natural_clients_are_given_to_a_function_that_asks_for_them() -> None:
    assert [len(one) for one in divided("./mylab.py:owners_of", owners=LABELS // 5)] == [60, 60]
    with pytest.raises(UsageError, match="needs the natural clients"):
        divided("./mylab.py:owners_of")


def test_a_subclass_of_split_and_objects_are_splits_too(mylab: Path) -> None:
    lumps = load("./mylab.py:Lumps")
    assert [len(one) for one in divided("./mylab.py:Lumps", clients=4)] == [30] * 4
    assert Data(split=lumps(5)) == Data(split="./mylab.py:Lumps", split_args={"clients": 5})
    assert Data(split=Dirichlet(10, 0.5)) == Data(split="dirichlet:10:0.5")


DRAWS = {
    "NumPy's": "np.random.permutation(len(labels))",
    "Python's": "random.sample(range(len(labels)), len(labels))",
    "torch's": "torch.randperm(len(labels)).numpy()",
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
    assert ("its argument `rng` only" if "rng" in named else "an argument `rng`, which it must name") in said
    assert not (mylab / "run").exists()
    why = {one.name: one.why for one in check_split("./bad.py:bad").failed}
    assert "`rng`" in why["same-twice"]


def test_a_subclass_that_draws_from_a_global_generator_is_refused_with_its_file_and_line(mylab: Path) -> None:
    (mylab / "bad.py").write_text(
        "from dataclasses import dataclass\nimport numpy as np\nfrom raffed.data.splits import Split\n\n"
        "@dataclass(frozen=True)\nclass Bad(Split):\n    name, syntax, meaning = 'bad', 'bad', 'draws'\n"
        "    def divide(self, labels, seed, num_classes=None):\n"
        "        return np.array_split(np.random.permutation(len(labels)), 3)\n",
        encoding="utf-8",
    )
    with pytest.raises(UsageError, match=r"bad\.py:\d+: Bad must draw from stream\(seed, PURPOSE\) only"):
        divided("./bad.py:Bad")


def test_a_split_that_has_changed_is_named(mylab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (mylab / "odd.py").write_text(
        "import os\nimport numpy as np\n\ndef odd(labels):\n"
        "    return np.array_split(np.roll(np.arange(len(labels)), int(os.environ['SHIFT'])), 3)\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("SHIFT", "0")
    config = BASE.changed(
        {"data.split": "./odd.py:odd", "federation.rounds": 3, "runtime.execution": "serial"}
    )
    next(rounds := raffed.iterate(config, out="run"))
    rounds.close()
    monkeypatch.setenv("SHIFT", "1")
    refused = cli("resume", "run")
    assert refused.code == 2
    message = " ".join(refused.err.split())
    assert "the labels are the same, so the split has drawn other lists" in message
    assert f"{mylab / 'odd.py'}:4: ./odd.py:odd must draw from an argument `rng`" in message
    assert "data have changed" not in message


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


def test_a_focus_of_0_is_the_cross_entropy_and_another_is_not() -> None:
    zero = trained(loss="./mylab.py:focal", loss_args={"gamma": 0.0})
    assert zero.hashes == trained(loss="./mylab.py:ce").hashes
    assert trained(loss="./mylab.py:focal").hashes["weights"] != zero.hashes["weights"]


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


def test_in_bfloat16_it_gets_logits_in_float32(mylab: Path) -> None:
    (mylab / "kind.py").write_text(
        "def kind(logits, labels):\n"
        "    assert str(logits.dtype) == 'torch.float32'\n"
        "    return -logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0]\n",
        encoding="utf-8",
    )
    assert trained(loss="./kind.py:kind", numerics=Numerics(precision="bf16")).state == "finished"


class Own(Head):
    """A head with a loss of its own."""

    def loss(self, f: raffed.Forward, k: raffed.Context) -> torch.Tensor:
        return f.logits.square().mean()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Method("Mine", head=Own()), "Mine has a loss of its own"),
        (build_method("creff"), "works with gradients of the cross-entropy"),
    ],
)
def test_a_method_that_does_not_admit_another_loss_refuses_it_in_a_line(made: Method, words: str) -> None:
    with pytest.raises(UsageError, match=words) as found:
        made.with_loss(Criterion(torch.nn.functional.cross_entropy, "mine"))
    assert "\n" not in str(found.value)


def test_a_branch_on_a_value_is_refused_where_clients_are_stacked(mylab: Path) -> None:
    (mylab / "bad.py").write_text(
        "def bad(logits, labels):\n    return logits.sum() if logits.sum() > 9 else logits.mean()\n", "utf-8"
    )
    check_loss("./bad.py:bad", {}, 3, stacked=False)
    with pytest.raises(UserCodeError, match=r"bad\.py:2"):
        check_loss("./bad.py:bad", {}, 3, stacked=True)


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
        space.check(Request(RIGHT, ("fedavg",), score=name))
