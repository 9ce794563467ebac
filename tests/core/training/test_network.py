"""Network: one scratch copy to train in, one frozen copy for everything else; looking changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from raffed.core.params import Params, State
from raffed.core.stacked.solver_executor import StackedForward
from raffed.core.training.network import Network, reestimated
from raffed.models.net import Net
from tests.tiny import clients, network, same_bits

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
