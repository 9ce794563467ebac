"""The learning rate of every step: torch's schedulers, closed forms, warm-ups, and what is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from raffed.config.training import Local
from raffed.core.context import Context
from raffed.core.ingredients import Gradient, LocalSolver
from raffed.core.method import Method
from raffed.core.params import State
from raffed.core.parts import Pass
from raffed.core.training.rates import RoundRates, schedule_of
from raffed.core.training.session import ClientClock, Participant
from raffed.errors import UnknownNameError, UsageError
from raffed.methods import build_method
from tests.tiny import PLAIN, Tiny, network

T, ETA = 12, 0.3
Theirs = Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]
TORCH: dict[str, tuple[str, dict[str, Any], Theirs]] = {
    "constant": ("constant", {}, lambda o: lr_scheduler.LambdaLR(o, lambda _: 1.0)),
    "step": ("step", {"every": 3, "gamma": 0.5}, lambda o: lr_scheduler.StepLR(o, 3, 0.5)),
    "multistep": (
        "multistep",
        {"milestones": [2, 7], "gamma": 0.2},
        lambda o: lr_scheduler.MultiStepLR(o, [2, 7], 0.2),
    ),
    "exponential": ("exponential", {"gamma": 0.9}, lambda o: lr_scheduler.ExponentialLR(o, 0.9)),
    "cosine": ("cosine", {"lowest": 0.1}, lambda o: lr_scheduler.CosineAnnealingLR(o, T, 0.1 * ETA)),
    "polynomial": ("polynomial", {"power": 2.0}, lambda o: lr_scheduler.PolynomialLR(o, T, 2.0)),
}


def torchs(schedule: Callable[[torch.optim.Optimizer], Any], count: int = T) -> Iterator[float]:
    """The rates that a scheduler of torch gives to `count` steps."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=ETA)
    made = schedule(optimiser)
    for _ in range(count):
        yield optimiser.param_groups[0]["lr"]
        optimiser.step()
        made.step()


def by_round(local: Local, rounds: int = T) -> list[float]:
    return [RoundRates(local, round, rounds).first() for round in range(rounds)]


@pytest.mark.parametrize("case", TORCH)
@pytest.mark.parametrize("warmup", [0, 3])
def test_a_schedule_by_rounds_is_torchs_scheduler_stepped_once_a_round(case: str, warmup: int) -> None:
    """After r = 3 rounds of warm-up, η/3, 2η/3 and η, it begins anew over the 12 rounds that are left."""
    name, args, theirs = TORCH[case]
    found = by_round(Local(lr=ETA, warmup_rounds=warmup, schedule=name, schedule_args=args), T + warmup)
    assert found == pytest.approx([*(ETA / 3, 2 * ETA / 3, ETA)[:warmup], *torchs(theirs)], rel=1e-9)


@pytest.mark.parametrize("case", TORCH)
@pytest.mark.parametrize("by", ["step", "epoch"])
@pytest.mark.parametrize("warmup", [0, 2])
def test_a_schedule_by_steps_or_epochs_is_torchs_stepped_at_each_and_stands_still_during_the_warm_up(
    case: str, by: str, warmup: int
) -> None:
    """4 rounds of 3 steps, each an epoch, after 2 rounds of 3 at η/2 and η, as in torch's `SequentialLR`."""
    name, args, theirs = TORCH[case]
    by = by if name != "constant" else "round"
    local = Local(lr=ETA, warmup_rounds=warmup, schedule=name, schedule_args=args, schedule_by=by)  # type: ignore[arg-type]
    rounds = [RoundRates(local, round, 4 + warmup).of_steps(0, 3, 3, 1) for round in range(4 + warmup)]
    found = [rate for one in rounds for rate in one]
    assert found == pytest.approx(
        [ETA / 2] * 3 * (warmup > 0) + [ETA] * 3 * (warmup > 0) + list(torchs(theirs))
    )


def test_a_schedule_by_epochs_counts_a_client_s_epochs_over_the_run() -> None:
    """2 epochs of 3 steps a round: rounds 0 and 1 hold epochs 0, 1 and 2, 3."""
    local = Local(lr=1.0, schedule="exponential", schedule_args={"gamma": 0.5}, schedule_by="epoch")
    assert RoundRates(local, 0, T).of_steps(0, 6, 6, 3) == [1.0] * 3 + [0.5] * 3
    assert RoundRates(local, 1, T).of_steps(0, 6, 6, 3) == [0.25] * 3 + [0.125] * 3


def test_the_passes_of_a_round_share_one_clock() -> None:
    """8 samples in batches of 4: two epochs of the head are steps 0 to 3, one of the body steps 4 and 5."""
    method = Method("Passes", passes=(Pass("head", 2), Pass("body", 1)))
    local = replace(PLAIN, lr=1.0, schedule="polynomial", schedule_by="local_step")
    tiny = Tiny(method, local=local)
    clock = ClientClock.of(method, tiny.session, 0, Participant(0, None, tiny.data[0]))
    assert clock.rates(0, 4) == pytest.approx([1, 5 / 6, 4 / 6, 3 / 6])
    assert clock.rates(1, 2) == pytest.approx([2 / 6, 1 / 6])


def halving_by_epochs(
    method: Method, n: int, rounds: Sequence[int], norm: bool = False, **more: Any
) -> list[float]:
    """The rates of the first pass of a client with n samples in these rounds, halved after every epoch."""
    halved = {"schedule": "exponential", "schedule_args": {"gamma": 0.5}, "schedule_by": "epoch"}
    local = replace(PLAIN, **{"lr": 1.0, "batch_size": 4, "epochs": 1, **halved, **more})
    tiny = Tiny(method, local=local, net=network(norm))
    who = Participant(0, None, replace(tiny.data[0], x=tiny.data[0].x[:1].repeat(n, 1), y=torch.zeros(n)))
    found = []
    for round in rounds:
        clock = ClientClock.of(method, tiny.session, round, who)
        found += clock.rates(0, clock.steps[0]) or []
    return found


def test_the_epochs_of_a_solver_are_those_of_its_mini_batches() -> None:
    """A step of 2 batches: 16 samples in batches of 4 are 2 steps an epoch, so each round is one epoch."""

    class Pairs(LocalSolver[State]):
        follows = ("lr", "schedule")

        def batches(self) -> int:
            return 2

        def step(self, carried: State, gradient: Gradient, k: Context) -> State:
            return carried

    assert halving_by_epochs(Method("Pairs", solver=Pairs()), 16, (0, 1, 2)) == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_a_straggler_has_the_first_rates_of_its_whole_round() -> None:
    method = build_method("fedavg")
    local = replace(PLAIN, lr=1.0, schedule="polynomial", schedule_by="local_step")
    tiny = Tiny(method, local=local)
    late = Participant(0, None, tiny.data[0], completed_fraction=0.5)
    assert ClientClock.of(method, tiny.session, 0, late).rates(0, 1) == [1.0]
    assert ClientClock.of(method, tiny.session, 0, late).rates(0, 2) == [1.0, 0.5]


def test_scaffold_divides_by_the_sum_of_the_rates_as_they_were_used() -> None:
    """2 steps at η and η/2: c_i = (w^t − w_i) / (1.5 η), by hand."""
    local = replace(PLAIN, schedule="polynomial", schedule_by="local_step")
    tiny = Tiny(build_method("scaffold"), local=local)
    tiny.step([0])
    moved = tiny.last[0].start.w - tiny.last[0].trained.w
    c = tiny.client_states[0].slots["correction"].c  # type: ignore[attr-defined]
    for name in c.names:
        torch.testing.assert_close(c[name], moved[name] / (1.5 * PLAIN.lr))


OWN = """
def halves(done: int, total: int, every: int = 2) -> float:
    return 0.5 ** (done // every)

def wrong(done: int, total: int) -> float:
    return -1.0

def short(done: int) -> float:
    return 1.0
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab_rates.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])


@pytest.mark.usefixtures("own")
def test_a_schedule_of_one_s_own_is_a_function_by_reference() -> None:
    local = Local(lr=1.0, schedule="./lab_rates.py:halves", schedule_args={"every": 3})
    assert by_round(local, 7) == [1.0] * 3 + [0.5] * 3 + [0.25]
    with pytest.raises(UsageError, match="'evry'; nearest: every"):
        schedule_of(replace(local, schedule_args={"evry": 3}))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./lab_rates.py:wrong", "it must return a number of 0 or more"),
        ("./lab_rates.py:short", "it must take done and total"),
        ("./lab_rates.py:gone", "has no 'gone'"),
        ("os:getcwd", "is not a function of your own"),
    ],
)
def test_a_schedule_that_cannot_be_used_is_refused_in_one_line(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        RoundRates(Local(schedule=name), 0, T).first()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schedule": "cosin"}, "nearest: cosine"),
        ({"schedule": "cosine", "schedule_args": {"lowst": 0.1}}, "nearest: lowest"),
        ({"schedule": "constant", "schedule_args": {"gamma": 0.1}}, "gamma"),
        ({"schedule": "step", "schedule_args": {"every": 0}}, "every = 0"),
        ({"schedule_by": "step"}, "has no effect without a schedule"),
        ({"optimizer": "adam", "optimizer_args": {"beta1": 1.5}}, "beta1 = 1.5"),
        ({"optimizer": "adam", "momentum": 0.5}, "has no effect with local.optimizer = 'adam'"),
        ({"optimizer_args": {"nesterov": True}, "momentum": 0.0}, "nesterov needs local.momentum above 0"),
        ({"keep_optimizer": True, "momentum": 0.0}, "has no effect with local.momentum = 0"),
    ],
)
def test_settings_that_are_wrong_or_would_have_no_effect_are_refused(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises((UsageError, UnknownNameError), match=said):
        Local(**given)


def test_label_smoothing_is_torchs() -> None:
    from raffed.core.losses import cross_entropy

    g = torch.Generator().manual_seed(0)
    logits, y = torch.randn(6, 4, generator=g, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    for epsilon in (0.0, 0.1, 1.0):
        wanted = torch.nn.functional.cross_entropy(logits, y, label_smoothing=epsilon)
        torch.testing.assert_close(cross_entropy(logits, y, epsilon), wanted, rtol=1e-12, atol=1e-12)
    assert math.isclose(
        float(cross_entropy(torch.zeros(1, 4), torch.tensor([2]), 0.3)), math.log(4), rel_tol=1e-6
    )
