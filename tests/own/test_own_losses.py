"""A loss of one's own in the place of the cross-entropy: its laws, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import raffed
from raffed import Head, Method, Numerics, RunConfig
from raffed.core.losses import Criterion
from raffed.core.training.own_loss import check_loss, criterion_of
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.own.resolve import load
from raffed.own.user_code import UserCodeError
from raffed.results import read_run
from raffed.runs.result import RunResult
from tests.cli.conftest import Cli
from tests.own.own_code import BASE, write


@pytest.fixture(autouse=True)
def mylab(lab: Path) -> Path:
    write(lab)
    return lab


def run(config: RunConfig = BASE, **changes: object) -> RunResult:
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
    plain, named = run(method=method), run(method=method, loss="./mylab.py:mean_ce")
    assert named.hashes == plain.hashes


def test_losses_of_samples_are_averaged() -> None:
    rows = run().to_pandas(), run(loss="./mylab.py:ce").to_pandas()
    one, other = (table[table["metric"] == "loss"]["value"].to_numpy() for table in rows)
    assert one == pytest.approx(other, rel=1e-5)


def test_a_focus_of_0_is_the_cross_entropy_and_another_is_not() -> None:
    zero = run(loss="./mylab.py:focal", loss_args={"gamma": 0.0})
    assert zero.hashes == run(loss="./mylab.py:ce").hashes
    assert run(loss="./mylab.py:focal").hashes["weights"] != zero.hashes["weights"]


def test_class_counts_are_the_clients_own() -> None:
    """Balanced softmax by reference is FedROD's head: log n_c is added to the logits in training."""
    criterion = criterion_of("./mylab.py:balanced", {})
    logits, y, counts = (
        torch.linspace(-1, 1, 12).view(4, 3).double(),
        torch.tensor([0, 1, 2, 0]),
        torch.tensor([5, 1, 2]),
    )
    wanted = torch.nn.functional.cross_entropy(logits + counts.double().log(), y)
    assert torch.allclose(criterion(logits, y, counts), wanted)
    assert run(loss="./mylab.py:balanced").hashes["weights"] != run().hashes["weights"]


@pytest.mark.parametrize("name", ["focal", "balanced"])
def test_a_stack_of_clients_trains_with_it_as_each_client_alone(name: str) -> None:
    alone, stacked = (
        run(loss=f"./mylab.py:{name}", method="map", numerics=Numerics(cohort=cohort)).to_pandas()
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
    assert run(loss="./kind.py:kind", numerics=Numerics(precision="bf16")).state == "finished"


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


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 3.0", "gave a float; it must give a tensor"),
        ("return logits", r"the shape \(4, 3\) for 4 samples"),
        ("return logits.detach().sum()", "without a gradient"),
        ("return logits.sum() / 0", "is not finite"),
        ("return logits.sum() * __import__('torch').rand(())", "global generator"),
        ("return nothing", "NameError"),
    ],
)
def test_a_loss_that_cannot_be_trained_is_refused_before_work_starts(
    mylab: Path, body: str, words: str
) -> None:
    (mylab / "bad.py").write_text(f"\ndef bad(logits, labels):\n    {body}\n", encoding="utf-8")
    state = torch.get_rng_state()
    with pytest.raises((UsageError, UserCodeError), match=words) as found:
        check_loss("./bad.py:bad", {}, 3, stacked=False)
    torch.set_rng_state(state)
    assert str(found.value).startswith(f"{mylab / 'bad.py'}:")


def test_a_branch_on_a_value_is_refused_where_clients_are_stacked(mylab: Path) -> None:
    (mylab / "bad.py").write_text(
        "def bad(logits, labels):\n    return logits.sum() if logits.sum() > 9 else logits.mean()\n", "utf-8"
    )
    check_loss("./bad.py:bad", {}, 3, stacked=False)
    with pytest.raises(UserCodeError, match=r"bad\.py:2"):
        check_loss("./bad.py:bad", {}, 3, stacked=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "./mylab.py:focal", "loss_args": {"gamma": -1.0}}, "gamma = -1.0 is outside"),
        ({"loss": "./mylab.py:focal", "loss_args": {"beta": 1.0}}, "argument of loss"),
        ({"loss": "./mylab.py:nowhere"}, "has no 'nowhere'"),
        ({"loss": "os:system"}, "must be a function of yours"),
        ({"loss": "focal"}, "loss"),
        ({"loss": "./mylab.py:mine"}, "a loss takes logits and labels first"),
    ],
)
def test_what_is_no_loss_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run(**changes)


def test_a_loss_decides_a_run_and_an_object_is_stored_as_its_reference() -> None:
    focal = replace(BASE, loss=load("./mylab.py:focal"))
    assert focal.loss == "./mylab.py:focal"
    assert len({one.identity() for one in (BASE, focal, replace(focal, loss_args={"gamma": 1.0}))}) == 3
    assert RunConfig.from_dict(focal.as_dict()) == focal


def test_a_run_names_it_in_a_file_and_records_its_code(mylab: Path, cli: Cli) -> None:
    (mylab / "run.toml").write_text(
        'loss = "./mylab.py:focal"\nloss_args = {gamma = 1}\n[local]\nepochs = 1\n[data]\nsplit = "p4c5"\n',
        "utf-8",
    )
    assert cli("run", "run.toml", "--rounds", 1, "--execution", "serial", "--quiet", "--out", "run").code == 0
    about = read_run(mylab / "run")
    assert [(one["role"], one["reference"]) for one in about["code"]] == [("loss", "./mylab.py:focal")]
    assert cli("verify", "run").code == 0
