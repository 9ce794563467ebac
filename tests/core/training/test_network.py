"""The network in training and evaluation, layers that rest, and the opening of a round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.config.training import Local
from raffed.core.context import Context, Forward
from raffed.core.ingredients import Gradient, Opening
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Part
from raffed.core.round import between_rounds
from raffed.core.seeds import generator
from raffed.core.stacked.executor import stacked
from raffed.core.stacked.solver_executor import StackedForward
from raffed.core.training.network import Network, reestimated
from raffed.core.training.session import Participant, one_by_one
from raffed.core.training.sgd import batch_stream
from raffed.core.training.task import ClientTask, Solver, TrainingPhase
from raffed.methods.fedavg import fedavg
from raffed.models import build
from raffed.models.net import Net
from tests.contract.test_cohort import agree_in_all, pair
from tests.tiny import PLAIN, Tiny, clients, network, same_bits, sgd

# Network: one scratch copy to train in, one frozen copy for everything else; looking changes nothing.

X = torch.cat([c.x for c in clients()])  # 35 samples


def random_state(net: Network, seed: int) -> State:
    g = torch.Generator().manual_seed(seed)
    w = {n: torch.randn(t.shape, generator=g) for n, t in net.initial.w.tensors.items()}
    b = {n: torch.rand(t.shape, generator=g) + 0.5 for n, t in net.initial.b.tensors.items()}
    return State(Params(w).clone(), Params(b).clone())


@pytest.mark.parametrize("norm", [False, True])
def test_what_is_loaded_comes_back_as_an_own_copy(norm: bool) -> None:
    net = network(norm)
    state = random_state(net, 1)
    net.load(state)
    taken = net.snapshot()
    assert same_bits(taken, state)
    net.load(random_state(net, 2))
    assert same_bits(taken, state)


def test_a_training_pass_uses_the_loaded_weights_and_moves_batchnorms_statistics() -> None:
    net = network(norm=True)
    state = random_state(net, 1)
    net.load(state)
    f = net.forward(X, torch.zeros(len(X), dtype=torch.int64))
    inner = X @ state.w["body.fc.weight"].T + state.w["body.fc.bias"]
    unit = (inner - inner.mean(0)) / (inner.var(0, unbiased=False) + 1e-5).sqrt()
    z = torch.tanh(unit * state.w["body.norm.weight"] + state.w["body.norm.bias"])
    torch.testing.assert_close(f.z, z, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        f.logits, z @ state.w["head.weight"].T + state.w["head.bias"], rtol=1e-4, atol=1e-5
    )
    moved = net.snapshot().b["body.norm.running_mean"]
    torch.testing.assert_close(
        moved, 0.9 * state.b["body.norm.running_mean"] + 0.1 * inner.mean(0), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("norm", [False, True])
def test_applying_a_state_changes_no_weight_no_statistic_no_mode_and_no_generator(norm: bool) -> None:
    net = network(norm, dropout=0.5)
    net.load(random_state(net, 1))
    state, held, before = random_state(net, 2), net.snapshot(), torch.get_rng_state()
    kept = state.clone()
    logits, z = net.apply(state, X)
    assert same_bits(net.snapshot(), held)
    assert same_bits(state, kept)
    assert net.module.training
    assert torch.equal(torch.get_rng_state(), before)
    assert not logits.requires_grad
    assert not z.requires_grad
    assert torch.equal(net.apply(state, X)[0], logits)


def test_applying_uses_the_running_statistics_of_that_state() -> None:
    net = network(norm=True)
    state = random_state(net, 1)
    _, z = net.apply(state, X)
    inner = X @ state.w["body.fc.weight"].T + state.w["body.fc.bias"]
    unit = (inner - state.b["body.norm.running_mean"]) / (state.b["body.norm.running_var"] + 1e-5).sqrt()
    torch.testing.assert_close(z, torch.tanh(unit * state.w["body.norm.weight"] + state.w["body.norm.bias"]))


@pytest.mark.parametrize("batch", [4, 7, 35, 100])
def test_reestimated_statistics_are_the_exact_mean_and_the_size_weighted_mean_of_batch_variances(
    batch: int,
) -> None:
    """docs/papers/map.md §3.3: per-batch momentum B_j / Σ_{i≤j} B_i; not the pooled variance."""
    net = network(norm=True)
    state = random_state(net, 1)
    found = reestimated(net, state, X, batch).b
    inner = (X @ state.w["body.fc.weight"].T + state.w["body.fc.bias"]).double()
    parts = torch.split(inner, batch)
    variance = sum(len(p) * p.var(0) for p in parts) / len(inner)
    torch.testing.assert_close(found["body.norm.running_mean"].double(), inner.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["body.norm.running_var"].double(), variance, rtol=1e-4, atol=1e-5)


def test_chunks_cover_a_set_in_order_whatever_their_size() -> None:
    net, y = network(), torch.arange(len(X))
    for size in (1, 10, 35, 500):
        logits, _, labels = map(torch.cat, zip(*net.chunks(net.initial, X, y, size), strict=True))
        assert torch.equal(labels, y)
        torch.testing.assert_close(logits, net.apply(net.initial, X)[0])


def test_the_feature_is_the_input_of_the_last_layer() -> None:
    class Body(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    net = Network(Net(Body(), nn.Linear(4, 3, bias=False)))
    logits, z = net.apply(net.initial, X)
    assert net.feature_dim == 4
    assert torch.equal(z, X * 2)
    torch.testing.assert_close(logits, z @ net.initial.w["head.weight"].T)


def test_layers_that_share_a_weight_share_it_under_any_state() -> None:
    """Alone, in evaluation and stacked: the module's own weight must not show where the state's is meant."""
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    net = Network(Net(nn.Sequential(first, second), nn.Linear(4, 3)))
    state, x = random_state(net, 1), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    z = x @ state.w["body.0.weight"].T @ state.w["body.0.weight"].T
    torch.testing.assert_close(net.apply(state, x)[1], z)
    torch.testing.assert_close(
        StackedForward(net).of_one(state.w.tensors, {}, x, torch.zeros(5, dtype=torch.int64), []).z, z
    )
    net.load(state)
    torch.testing.assert_close(net.forward(x, torch.zeros(5, dtype=torch.int64)).z, z)


# Layers below the part that is trained: applied once a stretch, with the results of applying them in
# every step.

SOLVER = Solver(0.1, 0.9, 1e-3)


def ce(f: Forward, step: int) -> Tensor:
    """Cross-entropy with a pull on the features, which has a gradient under the projection alone."""
    return F.cross_entropy(f.logits, f.y) + 0.1 * f.z.square().mean()


def batches(n: int, epochs: int) -> list[Tensor]:
    steps = epochs * -(-n // 4)
    return batch_stream(n, steps, Local(batch_size=4), generator(0, "batches", 0, 0))


def projected() -> Network:
    return Network(build("mlp5", (1, 4, 1), 3, 0, hidden=[6, 5], projection=7))


@pytest.mark.parametrize(
    ("part", "net"),
    [("head", network(norm=True)), ("head", projected()), ("top", projected()), ("top", network())],
)
def test_a_resting_layer_applied_once_gives_what_it_gives_applied_in_every_step(
    part: Part, net: Network
) -> None:
    """An augmentation that changes nothing makes the loop apply all layers in every step."""
    own = clients()[3]
    x = own.x.view(-1, 1, 4, 1) if net.w_layout.names[0].startswith("body.encoder") else own.x
    data = own.__class__(x, own.y, own.class_counts)
    once = sgd(net, net.initial, ce, data, batches(data.n, 3), SOLVER, part=part)
    every = sgd(net, net.initial, ce, data, batches(data.n, 3), SOLVER, part=part, augment=lambda x: x)
    torch.testing.assert_close(once.state.w.flat, every.state.w.flat, rtol=1e-6, atol=1e-7)
    assert once.loss == pytest.approx(every.loss, rel=1e-6)
    assert not torch.equal(once.state.w.flat, net.initial.w.flat)


@pytest.mark.parametrize("part", ["head", "top"])
def test_a_stack_enters_above_the_resting_layers_of_each_of_its_clients(part: Part) -> None:
    net = network(norm=True)
    starts = [net.initial, State(net.initial.w * 1.5, net.initial.b)]
    task = ClientTask(lambda f, views: ce(f, 0), SOLVER, part)
    stretches = [
        TrainingPhase(start, batches(data.n, 3), data, {})
        for start, data in zip(starts, clients(), strict=False)
    ]
    for a, b in zip(stacked(net, task, stretches, None), one_by_one(net, task, stretches, None), strict=True):
        torch.testing.assert_close(a.state.w.flat, b.state.w.flat, rtol=1e-5, atol=1e-6)


# The opening of a round: what a client makes of the downloaded model before its passes.


class Doubled(Opening):
    """The passes begin with twice the downloaded weights."""

    def begin(self, k: Context) -> State:
        return State(k.w0 * 2.0, k.start.b)


class Steps(Opening):
    """Plain gradient descent on the features' distance to a point, before the passes."""

    rate: float = 0.05
    share: float = 1.0

    def epochs(self, k: Context) -> float:
        return float(k.client % 3)  # client 0 and 3 have none

    def samples(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.randperm(n, generator=generator)[: max(round(self.share * n), 1)]

    def loss(self, f: Forward, k: Context) -> Tensor:
        return (f.z - 1.0).square().mean()

    def step(self, carried: State, gradient: Gradient, k: Context) -> State:
        slope, b = gradient(carried, 0)
        return State(carried.w - slope * self.rate, b)


def method(opening: Opening, **more: Any) -> Method:
    return Method("Opened", opening=opening, **more)


def test_training_begins_with_what_the_opening_returns() -> None:
    """Also without epochs. The round still reports the downloaded model as its start."""
    tiny = Tiny(method(Doubled()), local=replace(PLAIN, lr=0.0)).run(1, [0, 1])
    sent = tiny.server.w
    assert same_bits(tiny.visit(0).trained.w, sent * 2.0)
    assert same_bits(tiny.visit(0).start.w, sent)
    assert all(same_bits(view.start.w, sent * 2.0) for view in tiny.visit(0).views.values())


def test_between_rounds_a_client_s_model_is_the_one_after_the_opening() -> None:
    tiny = Tiny(method(Doubled())).run(2, [0, 1])
    held = between_rounds(
        tiny.method, tiny.server.broadcast(), Participant(0, None, tiny.data[0]), tiny.session
    )
    assert same_bits(held.trained.w, tiny.server.w * 2.0)


def test_one_epoch_of_the_opening_is_gradient_descent_from_the_download() -> None:
    """Client 1 has 10 samples, which are one batch: w − η ∇L(w), computed by hand."""
    local = replace(PLAIN, lr=0.0, batch_size=64)
    tiny = Tiny(method(Steps()), local=local)
    x, w = tiny.data[1].x, tiny.server.w.tensors["body.fc.weight"].clone().requires_grad_()
    z = torch.tanh(x @ w.T + tiny.server.w["body.fc.bias"])
    (slope,) = torch.autograd.grad((z - 1.0).square().mean(), [w])
    done = tiny.visit(1)
    torch.testing.assert_close(done.trained.w["body.fc.weight"], (w - 0.05 * slope).detach())
    assert same_bits(done.trained.w["head.weight"], tiny.server.w["head.weight"])


def test_clients_with_and_without_epochs_train_together_as_each_alone() -> None:
    """Clients 0 and 3 open without epochs, client 2 with two."""
    for share in (1.0, 0.6):
        for norm in (False, True):
            agree_in_all(*pair(Tiny(method(Steps(share=share)), net=network(norm)).run(2, [0, 1, 2, 3])))


def test_its_steps_are_not_those_of_the_passes_and_its_samples_are_a_stream_of_its_own() -> None:
    """Whatever the opening draws, the batches of the passes stay: with rate 0 the result is FedAvg's."""
    mine, plain = Tiny(method(Steps(0.0, 0.5))).run(3), Tiny(fedavg()).run(3)
    assert same_bits(mine.server, plain.server)
    assert [one.steps for one in mine.last.values()] == [one.steps for one in plain.last.values()]
    assert not same_bits(Tiny(method(Steps())).run(3).server, plain.server)
