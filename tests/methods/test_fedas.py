"""FedAS: the alignment of the downloaded body, and the mean by Fisher information."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from raffed.config.training import Local
from raffed.core.context import ClientData, Received
from raffed.core.messages import Upload
from raffed.core.params import Params, State
from raffed.core.server import Mean
from raffed.core.training.network import batch_gradients
from raffed.methods.fedas import Alignment, Fisher, FisherMean, OwnMeans, alignment_loss, fedas, fisher_shares
from raffed.methods.fedrep import fedper
from tests.tiny import PLAIN, Tiny, bare_context, clients, network, of_kind, same_bits, server_context


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("off", [{"align_epochs": 0.0}, {"align_lr": 0.0}])
def test_without_alignment_and_with_equal_weights_it_is_fedper(norm: bool, off: dict[str, float]) -> None:
    """(1), bit for bit, with uniform means."""
    plain = replace(fedper(), mean=Mean("clients"))
    mine = fedas(**off, weights="clients")
    left, right = (Tiny(one, net=network(norm)).run(3, [0, 1, 2, 3]) for one in (mine, plain))
    assert same_bits(left.everything(), right.everything())


def test_at_its_defaults_it_is_not_fedper() -> None:
    plain = replace(fedper(), mean=Mean("clients"))
    for method in (fedas(), fedas(weights="clients"), fedas(align_lr=0.0)):
        assert not same_bits(Tiny(method).run(2).server, Tiny(plain).run(2).server)


def test_weights_are_shares_of_the_traces() -> None:
    """(2): (2, 6) give (1/4, 3/4). (4): one client has weight 1. Traces of 0 say nothing."""
    assert fisher_shares([2.0, 6.0]) == [0.25, 0.75]
    assert fisher_shares([0.3]) == [1.0]
    assert fisher_shares([0.0, 0.0]) == [0.5, 0.5]


def test_the_server_s_mean_has_these_weights() -> None:
    """1/4 · 1 + 3/4 · 5 = 4; the mean that comes in is not used."""
    uploads = tuple(
        Upload(
            None, Params({"w": torch.tensor([value])}), Params({}), {"message": Fisher(torch.tensor(trace))}
        )
        for value, trace in ((1.0, 2.0), (5.0, 6.0))
    )
    k = server_context(received={"server": Received(2, None, uploads)})
    old = Params({"w": torch.tensor([9.0])})
    _, w = FisherMean().step(None, old, Params({"w": torch.tensor([3.0])}), k)
    assert w["w"].tolist() == [4.0]


def test_one_client_s_body_is_taken_over_as_it_is() -> None:
    """(4)."""
    tiny = Tiny(fedas(), data=[clients()[3]]).run(2, [0])
    torch.testing.assert_close(tiny.server.w.flat, tiny.last[0].upload.w.flat, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("batch", "trace"), [(2, 1.25), (1, 3.0)])
def test_the_trace_of_the_worked_example_depends_on_the_batches(batch: int, trace: float) -> None:
    """(3): x (1, 2) and (0, 1), both of class 0; a softmax of two classes without weights and bias."""
    x, y = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.zeros(2, dtype=torch.int64)

    class Linear:
        def differentiable(self, state: State, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x @ state.w["w"].T, x

    state = State(Params({"w": torch.zeros(2, 2)}), Params({}))
    data = ClientData(x, y, torch.tensor([2, 0]))
    found = batch_gradients(Linear(), state, data, batch, F.cross_entropy)  # type: ignore[arg-type]
    assert float(sum(one.sq_norm() for one in found)) == trace


@pytest.mark.parametrize("norm", [False, True])
def test_the_trace_is_that_of_the_trained_model_in_evaluation_mode_over_body_and_head(norm: bool) -> None:
    """Every batch of 4 by itself, with statistics of the model and not of the batch."""
    tiny = Tiny(fedas(), net=network(norm))
    done, data = tiny.visit(1), tiny.data[1]
    module, total = tiny.net.module, 0.0
    tiny.net.load(done.trained)
    module.eval()
    for x, y in zip(data.x.split(4), data.y.split(4), strict=True):
        nll = F.cross_entropy(module(x)[0], y)
        total += sum(float(g.square().sum()) for g in torch.autograd.grad(nll, list(module.parameters())))
    tiny.net.train()
    told = of_kind(done.upload.slots["message"], Fisher)
    assert float(told.trace) == pytest.approx(total, rel=1e-5)


def test_the_alignment_s_loss_adds_up_the_classes_of_a_batch() -> None:
    """Class 0: ((1 − 0)² + (3 − 0)²)/2 = 5. Class 1: (2 − 4)² = 4. Class 2 is not held."""
    z, y = torch.tensor([[1.0], [3.0], [2.0], [7.0]]), torch.tensor([0, 0, 1, 2])
    mean, held = torch.tensor([[0.0], [4.0], [0.0]]), torch.tensor([True, True, False])
    assert float(alignment_loss(z, y, mean, held)) == 9.0


def test_the_loss_is_torch_s_mse_class_by_class() -> None:
    g = torch.Generator().manual_seed(0)
    z, mean, y = torch.randn(9, 5, generator=g), torch.randn(3, 5, generator=g), torch.arange(9) % 3
    wanted = sum(F.mse_loss(z[y == c], mean[c].expand(3, 5)) for c in range(3))
    torch.testing.assert_close(alignment_loss(z, y, mean, torch.ones(3, dtype=torch.bool)), wanted)


def test_the_alignment_moves_the_body_and_not_the_head() -> None:
    tiny = Tiny(fedas(), local=replace(PLAIN, lr=0.0)).run(1, [0, 1, 2, 3])
    done = tiny.visit(1)
    for n in done.start.w.names:
        assert torch.equal(done.trained.w[n], done.start.w[n]) == n.startswith("head."), n


def test_the_alignment_brings_features_nearer_to_the_client_s_last_ones() -> None:
    local = Local(lr=0.0, batch_size=64, epochs=1)
    tiny = Tiny(fedas(align_epochs=20.0, align_lr=0.1)).run(2, [0, 1, 2, 3])
    tiny.local = local
    tiny.arrange()
    done, data = tiny.visit(1), tiny.data[1]
    kept = of_kind(tiny.client_states[1].slots["opening"], OwnMeans)
    before, after = (
        float(alignment_loss(tiny.net.apply(one, data.x)[1], data.y, kept.mean, kept.held))
        for one in (done.start, done.trained)
    )
    assert after < 0.5 * before


def test_a_client_keeps_the_class_means_of_its_trained_model() -> None:
    tiny = Tiny(fedas(), net=network(norm=True))
    done, data = tiny.visit(2), tiny.data[2]
    kept = of_kind(done.client_state.slots["opening"], OwnMeans)
    z = tiny.net.apply(done.trained, data.x)[1]
    torch.testing.assert_close(kept.mean[0], z.mean(0))
    assert kept.held.tolist() == [True, False, False]


def test_a_first_participation_aligns_with_the_initial_model() -> None:
    """Every client can derive it from the seed. The downloaded body has been trained by others."""
    tiny = Tiny(fedas()).run(2, [0, 1])
    k = tiny.visit(3).views["opening"]
    fresh = Alignment(1.0, 0.01).client_init(k)
    z = tiny.net.apply(tiny.net.initial, tiny.data[3].x)[1]
    torch.testing.assert_close(fresh.mean[2], z[tiny.data[3].y == 2].mean(0))


def test_a_step_is_plain_gradient_descent_on_the_body() -> None:
    state = State(Params({"body.w": torch.tensor([1.0]), "head.w": torch.tensor([1.0])}), Params({}))
    slope = Params({"body.w": torch.tensor([2.0]), "head.w": torch.tensor([2.0])})
    after = Alignment(1.0, 0.25).step(state, lambda s, which: (slope, s.b), bare_context())
    assert (after.w["body.w"].item(), after.w["head.w"].item()) == (0.5, 1.0)
