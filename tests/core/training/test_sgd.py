"""The training loop and raffed's own optimisers, beside torch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.config.training import Local
from raffed.core.context import Forward
from raffed.core.seeds import generator
from raffed.core.training.optimizers import make_optimizer
from raffed.core.training.sgd import batch_stream
from raffed.core.training.task import Solver
from tests.tiny import clients, module, network, same_bits, sgd

# The one training loop: torch.optim.SGD's steps, batches that cover the data, a clip, a correction,
# parts.

DATA = clients()[3]
BATCHES = [torch.tensor(b) for b in ([0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10], [0, 2, 4], [1, 3, 5, 7])]


def ce(f: Forward, step: int) -> Tensor:
    return F.cross_entropy(f.logits, f.y)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.1)])
def test_the_loop_is_that_of_torch_optim_sgd(momentum: float, decay: float, norm: bool) -> None:
    """v ← ρv + (g + wd·w), w ← w − ηv; no dampening, no Nesterov; BatchNorm's statistics move alike."""
    net, reference = network(norm), module(norm)
    done = sgd(net, net.initial, ce, DATA, BATCHES, Solver(0.2, momentum, decay))
    optimiser = torch.optim.SGD(reference.parameters(), lr=0.2, momentum=momentum, weight_decay=decay)
    for index in BATCHES:
        optimiser.zero_grad()
        F.cross_entropy(reference(DATA.x[index])[0], DATA.y[index]).backward()
        optimiser.step()
    for name, p in [*reference.named_parameters(), *reference.named_buffers()]:
        if p.is_floating_point():
            got = done.state.w[name] if name in done.state.w.names else done.state.b[name]
            torch.testing.assert_close(got, p.detach(), rtol=1e-5, atol=1e-6)
    assert done.steps == 5


def test_the_first_step_moves_by_the_rate_times_the_gradient_with_momentum_too() -> None:
    """v = g at the first step (buffer empty): w₁ − w₀ = −η g, bit for bit what ρ = 0 gives."""
    net = network()
    with_momentum = sgd(net, net.initial, ce, DATA, BATCHES[:1], Solver(0.2, 0.9, 0.0)).state
    without = sgd(net, net.initial, ce, DATA, BATCHES[:1], Solver(0.2, 0.0, 0.0)).state
    assert same_bits(with_momentum, without)
    assert not same_bits(with_momentum.w, net.initial.w)


def test_the_reported_loss_is_the_mean_over_samples_not_over_batches() -> None:
    """η = 0: batches of 4 and 3 samples with losses a, b report (4a + 3b)/7."""
    net = network()
    done = sgd(net, net.initial, ce, DATA, BATCHES[:2], Solver(0.0, 0.0, 0.0))
    seen = torch.cat(BATCHES[:2])
    logits, _ = net.apply(net.initial, DATA.x[seen])
    assert done.loss == pytest.approx(float(F.cross_entropy(logits, DATA.y[seen])), rel=1e-6)


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("limit", [0.05, 1e6])
def test_clipping_bounds_the_global_norm_and_leaves_small_gradients_alone(limit: float) -> None:
    net = network()
    step = sgd(net, net.initial, ce, DATA, BATCHES[:1], Solver(1.0, 0.0, 0.0, limit)).state.w - net.initial.w
    free = sgd(net, net.initial, ce, DATA, BATCHES[:1], Solver(1.0, 0.0, 0.0)).state.w - net.initial.w
    norm = float(free.sq_norm().sqrt())
    torch.testing.assert_close(step.flat, free.flat * min(1.0, limit / norm), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("part", "moves", "stands"), [("head", "head.", "body."), ("body", "body.", "head.")]
)
def test_a_part_trains_alone_and_the_rest_stands_still_bit_for_bit(
    part: str, moves: str, stands: str
) -> None:
    """With momentum and decay; in a head pass BatchNorm's statistics stand still as well."""
    net = network(norm=True)
    done = sgd(net, net.initial, ce, DATA, BATCHES, Solver(0.2, 0.9, 0.1), part=part).state  # type: ignore[arg-type]
    changed = {n for n in done.w.names if not torch.equal(done.w[n], net.initial.w[n])}
    assert changed == {n for n in done.w.names if n.startswith(moves)}
    assert same_bits(done.b, net.initial.b) == (part == "head")
    assert all(torch.equal(done.w[n], net.initial.w[n]) for n in done.w.names if n.startswith(stands))


def test_augmentation_sees_every_batch_and_only_its_inputs() -> None:
    net, seen = network(), []

    def bend(x: Tensor) -> Tensor:
        seen.append(x.shape[0])
        return torch.zeros_like(x)

    blank = sgd(net, net.initial, ce, DATA, BATCHES, Solver(0.1, 0.0, 0.0), augment=bend).state
    assert seen == [4, 3, 4, 3, 4]
    # X = 0: no gradient to the first layer
    assert torch.equal(blank.w["body.fc.weight"], net.initial.w["body.fc.weight"])


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 4))
def test_every_epoch_covers_every_sample_once(n: int, size: int, epochs: int) -> None:
    local = Local(batch_size=size, epochs=epochs)
    steps = local.steps(n)
    assert steps == epochs * -(-n // size)
    stream = batch_stream(n, steps, local, generator(0, "batches"))
    per_epoch = steps // epochs
    for e in range(epochs):
        seen = torch.cat(stream[e * per_epoch : (e + 1) * per_epoch])
        assert sorted(seen.tolist()) == list(range(n))


@given(st.integers(1, 40), st.integers(1, 12))
def test_drop_last_leaves_out_the_short_batch_unless_it_is_the_only_one(n: int, size: int) -> None:
    """⌊n/B⌋ full batches; a client with n < B has one batch of n."""
    local = Local(batch_size=size, epochs=2, drop_last=True)
    stream = batch_stream(n, local.steps(n), local, generator(0, "batches"))
    assert {len(b) for b in stream} == {size if n >= size else n}
    assert len(stream) == 2 * max(n // size, 1)


@pytest.mark.parametrize(
    ("n", "epochs", "least", "steps"),
    [
        (100, 1, 1, 4),
        (100, 0.5, 1, 2),
        (100, 0.3, 1, 1),
        (100, 0.1, 1, 1),
        (20, 2, 5, 5),
        (32, 5, 5, 5),
        (33, 5, 5, 10),
    ],
)
def test_the_number_of_steps_is_max_of_int_of_epochs_times_batches_and_the_least(
    n: int, epochs: float, least: int, steps: int
) -> None:
    """MAP's code: n₁ = max(int(E·⌈n/B⌉), 5); B = 32."""
    assert Local(batch_size=32, epochs=epochs, min_steps=least).steps(n) == steps


# raffed's own optimisers are torch's, number by number; torch.optim is driven beside them here and nowhere
# in raffed.
#
# Without fused and foreach forms, on the CPU in float32, they agree bit for bit. The one exception is SGD
# with momentum, which is torch's fused kernel: it rounds once where the other form rounds twice.

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
