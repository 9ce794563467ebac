"""SOLO, FedPer, FedRep (docs/papers/baselines-personal.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.config.training import Local
from raffed.core.method import Method
from raffed.core.parts import ParameterSplit, Pass
from raffed.core.server import Mean
from raffed.errors import UsageError
from raffed.methods.fedavg import fedavg
from raffed.methods.fedrep import fedper, fedrep
from raffed.methods.solo import solo
from tests.tiny import PLAIN, Tiny, clients, network, same_bits, slopes, tiny_loss

STRONG = replace(PLAIN, momentum=0.9, weight_decay=0.1, epochs=2)


def test_solo_sends_and_receives_not_a_single_byte() -> None:
    tiny = Tiny(solo(), net=network(norm=True)).run(2, [0, 1])
    assert tiny.server.broadcast().nbytes() == 0
    assert tiny.last[0].upload.nbytes() == 0
    assert not tiny.method.has_global


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


def test_the_authors_preset_is_fedper_with_uniform_means_bit_for_bit() -> None:
    """FedRep, preset "authors": head and body jointly; docs/papers/map.md §7 no. 3."""
    uniform = replace(fedper(), mean=Mean(by="clients"))
    assert same_bits(Tiny(fedrep(preset="authors")).run(3).everything(), Tiny(uniform).run(3).everything())
    assert not same_bits(Tiny(uniform).run(3).server.w, Tiny(fedper()).run(3).server.w)


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
