"""raffed's own optimisers are torch's, number by number; torch.optim is driven beside them here and nowhere
in raffed.

Without fused and foreach forms, on the CPU in float32, they agree bit for bit. The one exception is SGD with
momentum, which is torch's fused kernel: it rounds once where the other form rounds twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core.training.optimizers import make_optimizer
from raffed.core.training.task import Solver
from tests.core.training.test_sgd import ce
from tests.tiny import clients, module, network, same_bits, sgd

SHAPES = ((17, 31), (13,), (3, 2, 5, 5))
STEPS = 25
Torchs = Callable[..., torch.optim.Optimizer]
CASES: dict[str, tuple[str, dict[str, Any], Torchs, dict[str, Any]]] = {
    "sgd": ("sgd", {}, torch.optim.SGD, {"momentum": 0.9, "fused": True}),
    "nesterov": (
        "sgd",
        {"nesterov": True},
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "fused": True},
    ),
    "plain": ("sgd", {}, torch.optim.SGD, {"momentum": 0.0, "fused": False}),
    "adam": (
        "adam",
        {"beta1": 0.8, "beta2": 0.95, "eps": 1e-6},
        torch.optim.Adam,
        {"betas": (0.8, 0.95), "eps": 1e-6},
    ),
    "amsgrad": ("adam", {"amsgrad": True}, torch.optim.Adam, {"amsgrad": True}),
    "adamw": ("adamw", {}, torch.optim.AdamW, {}),
    "rmsprop": ("rmsprop", {"alpha": 0.9}, torch.optim.RMSprop, {"alpha": 0.9}),
    "centred": (
        "rmsprop",
        {"centered": True, "momentum": 0.5},
        torch.optim.RMSprop,
        {"centered": True, "momentum": 0.5},
    ),
    "adagrad": (
        "adagrad",
        {"lr_decay": 0.1, "initial": 0.2},
        torch.optim.Adagrad,
        {"lr_decay": 0.1, "initial_accumulator_value": 0.2},
    ),
}
over_cases = pytest.mark.parametrize("case", CASES)
over_decays = pytest.mark.parametrize("decay", [0.0, 0.01])


def both(case: str, decay: float, **theirs: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The weights after some steps along random gradients, raffed's and torch's."""
    name, args, kind, given = CASES[case]
    g = torch.Generator().manual_seed(0)
    ours = [torch.randn(shape, generator=g) for shape in SHAPES]
    params = [torch.nn.Parameter(w.clone()) for w in ours]
    reference = kind(params, lr=0.01, weight_decay=decay, foreach=False, **{**given, **theirs})
    own = make_optimizer(name, args, given.get("momentum", 0.0) if name == "sgd" else 0.0)
    moments = own.begin(ours)
    for step in range(1, STEPS + 1):
        grads = [torch.randn(shape, generator=g) for shape in SHAPES]
        for p, grad in zip(params, grads, strict=True):
            p.grad = grad.clone()
        reference.step()
        own.step(ours, grads, moments, 0.01, decay, step, fresh=step == 1)
    return ours, [p.detach() for p in params]


@over_cases
@over_decays
def test_every_optimiser_has_the_bits_of_torchs(case: str, decay: float) -> None:
    ours, theirs = both(case, decay)
    assert same_bits(ours, theirs)


@over_cases
@over_decays
def test_stacked_clients_with_rates_and_steps_of_their_own_step_as_each_alone(
    case: str, decay: float
) -> None:
    """Client 1 has twice the rate and made three steps before; float64, so that only rounding may differ."""
    name, args, _, given = CASES[case]
    own = make_optimizer(name, args, given.get("momentum", 0.0) if name == "sgd" else 0.0)
    g = torch.Generator().manual_seed(0)
    alone = [[torch.randn(s, generator=g, dtype=torch.float64) for s in SHAPES] for _ in range(2)]
    moments = [own.begin(weights) for weights in alone]
    rates = (0.01, 0.02)

    def grads() -> list[Tensor]:
        return [torch.randn(s, generator=g, dtype=torch.float64) for s in SHAPES]

    for step in range(1, 4):
        own.step(alone[1], grads(), moments[1], rates[1], decay, step)
    stack = [torch.stack(pair) for pair in zip(*alone, strict=True)]
    memory = {
        one: [torch.stack(pair) for pair in zip(moments[0][one], moments[1][one], strict=True)]
        for one in moments[0]
    }
    for step in range(1, 6):
        each = [grads(), grads()]
        for i in range(2):
            own.step(alone[i], each[i], moments[i], rates[i], decay, step + 3 * i)
        counts = torch.tensor([step, step + 3], dtype=torch.float64)
        together = [torch.stack(pair) for pair in zip(*each, strict=True)]
        own.step(stack, together, memory, torch.tensor(rates, dtype=torch.float64), decay, counts)
    for i in range(2):
        for a, b in zip(alone[i], stack, strict=True):
            torch.testing.assert_close(a, b[i], rtol=1e-12, atol=1e-12)


DATA = clients()[3]
BATCHES = [torch.tensor(b) for b in ([0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10], [0, 2, 4])]


@over_cases
def test_two_phases_with_a_kept_state_are_one_long_phase(case: str) -> None:
    """Bit for bit: nothing but the moments and the number of steps is remembered."""
    name, args, _, given = CASES[case]
    momentum = given.get("momentum", 0.0) if name == "sgd" else 0.0
    net = network()
    solver = Solver(0.02, momentum, 0.01, optimizer=make_optimizer(name, args, momentum), kept=True)
    whole = sgd(net, net.initial, ce, DATA, BATCHES, solver)
    first = sgd(net, net.initial, ce, DATA, BATCHES[:2], solver)
    second = sgd(net, first.state, ce, DATA, BATCHES[2:], solver, begun=first.optimizer)
    assert same_bits([whole.state, whole.optimizer], [second.state, second.optimizer])
    if solver.rule.moments:
        anew = sgd(net, first.state, ce, DATA, BATCHES[2:], solver)
        assert not same_bits(whole.state, anew.state)


def test_a_value_clip_is_torchs_and_comes_before_the_norm() -> None:
    net, reference = network(), module()
    free = sgd(
        net, net.initial, ce, DATA, BATCHES[:1], Solver(1.0, 0.0, 0.0, clip_norm=0.05, clip_value=0.02)
    )
    F.cross_entropy(reference(DATA.x[BATCHES[0]])[0], DATA.y[BATCHES[0]]).backward()
    torch.nn.utils.clip_grad_value_(reference.parameters(), 0.02)
    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.05)
    for key, p in reference.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(free.state.w[key], p.detach() - p.grad, rtol=1e-6, atol=1e-7)
