"""Layers that stay: SOLO, FedPer, FedRep, FedAS."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from raffed.config.training import Local
from raffed.core.context import ClientData, Received
from raffed.core.messages import Upload
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import ParameterSplit, Pass
from raffed.core.training.network import batch_gradients
from raffed.errors import UsageError
from raffed.methods.fedas import Alignment, Fisher, FisherMean, OwnMeans, alignment_loss, fedas, fisher_shares
from raffed.methods.fedavg import fedavg
from raffed.methods.fedrep import fedper, fedrep
from raffed.methods.solo import solo
from tests.tiny import (
    PLAIN,
    Tiny,
    bare_context,
    clients,
    network,
    of_kind,
    same_bits,
    server_context,
    slopes,
    tiny_loss,
)

# SOLO, FedPer, FedRep (docs/papers/baselines-personal.md).

STRONG = replace(PLAIN, momentum=0.9, weight_decay=0.1, epochs=2)


def test_a_solo_clients_model_does_not_depend_on_anybody_elses_data() -> None:
    """(2)."""
    others = [clients()[0], *clients(((2,), (0,), (1, 2)), (10, 7, 10))]
    one, two = Tiny(solo(), net=network(True)), Tiny(solo(), net=network(True), data=others)
    one.run(3, [0, 1])
    two.run(3, [0, 1])
    assert same_bits(one.client_states[0], two.client_states[0])
    assert not same_bits(one.client_states[1], two.client_states[1])


def test_one_solo_client_with_everything_is_fedavg_with_one_client() -> None:
    """(4)."""
    data = [clients()[3]]
    alone, plain = Tiny(solo(), data=data).run(3, [0]), Tiny(fedavg(), data=data).run(3, [0])
    torch.testing.assert_close(alone.client_states[0].v.flat, plain.server.w.flat, rtol=1e-6, atol=1e-7)


def test_solo_epochs_replace_the_runs() -> None:
    assert same_bits(
        Tiny(solo(3.0)).run(2).everything(), Tiny(solo(), local=replace(PLAIN, epochs=3)).run(2).everything()
    )


def test_fedper_with_nothing_private_is_fedavg_and_with_everything_private_solo() -> None:
    """FedPer (1): the split alone makes the difference."""
    nothing = Method("x", split=ParameterSplit(personal="none"))
    assert same_bits(Tiny(nothing).run(3).server, Tiny(fedavg()).run(3).server)
    everything = replace(fedper(), split=ParameterSplit(personal="all", buffers="local"))
    assert same_bits(Tiny(everything).run(3).client_states[1], Tiny(solo()).run(3).client_states[1])


def test_fedper_moves_body_and_head_in_every_step_by_one_joint_backward_pass() -> None:
    """FedPer (2): one step from the same point moves both exactly as FedAvg's step does."""
    local = Local(lr=0.1, batch_size=64, epochs=1, weight_decay=0.0)
    mine, plain = Tiny(fedper(), local=local).visit(1), Tiny(fedavg(), local=local).visit(1)
    assert same_bits(mine.trained, plain.trained)
    assert all(not torch.equal(mine.trained.w[n], mine.start.w[n]) for n in mine.trained.w.names)


@pytest.mark.parametrize("method", [fedper(), fedrep()])
def test_no_head_leaves_a_client_and_all_heads_are_equal_at_round_0(method: Method) -> None:
    """FedPer (3), (5); FedRep (b): the server holds the body alone."""
    tiny = Tiny(method, net=network(norm=True))
    starts = [tiny.visit(c).start for c in range(4)]
    assert all(same_bits(s, starts[0]) for s in starts)
    done = tiny.step([0, 1])[0]
    body = {"body.fc.weight", "body.fc.bias", "body.norm.weight", "body.norm.bias"}
    assert set(done.upload.w.names) == set(tiny.server.w.names) == body
    assert set(tiny.client_states[0].v.names) == {"head.weight", "head.bias"}
    assert not same_bits(tiny.client_states[0].v, tiny.client_states[1].v)


def test_swapping_two_heads_changes_what_both_clients_predict() -> None:
    """FedPer (4): heads are objects of their own."""
    tiny = Tiny(fedper()).run(3, [0, 1])
    x = tiny.data[3].x
    own = [tiny.net.apply(tiny.visit(c).start, x)[0] for c in (0, 1)]
    swapped = [
        tiny.net.apply(tiny.visit(a, client_state=tiny.client_states[b]).start, x)[0]
        for a, b in ((0, 1), (1, 0))
    ]
    assert all(not torch.equal(o, s) for o, s in zip(own, swapped, strict=True))


@pytest.mark.parametrize("norm", [False, True])
def test_the_head_phase_leaves_the_body_and_its_statistics_bit_for_bit_and_the_body_phase_the_head(
    norm: bool,
) -> None:
    """FedRep (3), momentum 0.9 and weight decay 0.1: nothing leaks into what is frozen."""
    for part, moves in (("head", "head."), ("body", "body.")):
        method = replace(fedrep(), passes=(Pass(part),))  # type: ignore[arg-type]
        done = Tiny(method, net=network(norm), local=STRONG).visit(1)
        for n in done.start.w.names:
            assert torch.equal(done.start.w[n], done.trained.w[n]) != n.startswith(moves), n
        assert same_bits(done.start.b, done.trained.b) == (part == "head" or not norm)


def test_the_head_comes_first() -> None:
    """FedRep (4): the head trained by FedRep is the one trained on the *downloaded* body."""
    both, head_only = Tiny(fedrep(2.0, 3.0)).visit(1), Tiny(fedrep(2.0, 0.0)).visit(1)
    assert same_bits(both.client_state.v, head_only.client_state.v)
    assert not same_bits(both.upload.w, head_only.upload.w)


def test_without_body_epochs_the_server_stands_still() -> None:
    """FedRep (1), (c): θ^T = θ^0."""
    tiny = Tiny(fedrep(2.0, 0.0)).run(3)
    assert same_bits(tiny.server.w, tiny.method.split.shared(tiny.net.initial.w))


def test_without_head_epochs_heads_never_move_and_it_is_not_fedper() -> None:
    """FedRep (2): FedAvg on the body under one fixed head."""
    tiny, per = Tiny(fedrep(0.0, 1.0)).run(3), Tiny(fedper()).run(3)
    initial = tiny.method.split.own(tiny.net.initial.w)
    assert all(same_bits(v.v, initial) for v in tiny.client_states.values())
    assert not same_bits(tiny.server.w, per.server.w)


def test_a_second_selection_starts_with_the_stored_head() -> None:
    """FedRep (d)."""
    tiny = Tiny(fedrep()).run(1, [0, 1])
    assert same_bits(tiny.method.split.own(tiny.visit(0).start.w), tiny.client_states[0].v)


def test_training_nothing_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing would be trained"):
        fedrep(0.0, 0.0)


def test_head_training_reaches_the_optimum_of_the_head_on_fixed_features() -> None:
    """FedRep (e) for the convex softmax head: the gradient in W and bias vanishes, the body's does not."""
    local = Local(lr=0.5, momentum=0.9, weight_decay=0.05, batch_size=64, epochs=1)
    tiny = Tiny(fedrep(300.0, 0.0), local=local)
    w, data = tiny.visit(3).trained.w, tiny.data[3]
    grads = slopes(lambda w: tiny_loss(w, data.x, data.y), w.tensors)
    for n in ("head.weight", "head.bias"):
        assert float((grads[n] + 0.05 * w[n]).abs().max()) < 1e-4


# FedAS: the alignment of the downloaded body, and the mean by Fisher information.


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
