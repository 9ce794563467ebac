"""The one training loop: torch.optim.SGD's steps, batches that cover the data, a clip, a correction,
parts.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.config.training import Local
from raffed.core.context import Forward
from raffed.core.seeds import generator
from raffed.core.training.sgd import batch_stream
from raffed.core.training.task import Solver
from tests.tiny import clients, module, network, same_bits, sgd

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
