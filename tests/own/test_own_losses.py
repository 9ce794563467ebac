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
from raffed.own.user_code import UserCodeError
from raffed.runs.result import RunResult
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
    logits, y = torch.linspace(-1, 1, 12).view(4, 3).double(), torch.tensor([0, 1, 2, 0])
    counts = torch.tensor([5, 1, 2])
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


def test_a_branch_on_a_value_is_refused_where_clients_are_stacked(mylab: Path) -> None:
    (mylab / "bad.py").write_text(
        "def bad(logits, labels):\n    return logits.sum() if logits.sum() > 9 else logits.mean()\n", "utf-8"
    )
    check_loss("./bad.py:bad", {}, 3, stacked=False)
    with pytest.raises(UserCodeError, match=r"bad\.py:2"):
        check_loss("./bad.py:bad", {}, 3, stacked=True)
