"""Ditto and DittoRS (docs/papers/baselines-personal.md, Ditto)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.core.losses import smooth_pull
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.methods.ditto import PersonalModel, PulledModel, ditto, dittors
from raffed.methods.fedavg import fedavg
from raffed.methods.fedrs import fedrs
from raffed.methods.solo import solo
from tests.tiny import PLAIN, Tiny, bare_context, forward, network, of_kind, same_bits


def own(tiny: Tiny, client: int) -> State:
    return of_kind(tiny.client_states[client].slots["personal"], PersonalModel).model


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("lam", [0.0, 1.0, 100.0])
def test_the_server_is_fedavgs_bit_for_bit_for_every_pull(lam: float, norm: bool) -> None:
    """(a). At λ = 100 and η = 0.1 the personal models diverge; the server must not notice."""
    local = replace(PLAIN, clip_norm=1.0)
    mine = Tiny(ditto(lam), net=network(norm), local=local)
    plain = Tiny(fedavg(), net=network(norm), local=local)
    restricted = Tiny(dittors(lam), net=network(norm), local=local)
    rs = Tiny(fedrs(), net=network(norm), local=local)
    for _ in range(3):
        for tiny in (mine, plain, restricted, rs):
            tiny.step()
        assert same_bits(mine.server, plain.server)
        assert same_bits(restricted.server, rs.server)
        assert [d.loss for d in mine.last.values()] == [d.loss for d in plain.last.values()]


@pytest.mark.parametrize("norm", [False, True])
def test_without_pull_the_personal_model_is_solos_bit_for_bit(norm: bool) -> None:
    """(b): standalone training over the client's selections, on the same batches."""
    mine, alone = Tiny(ditto(0.0), net=network(norm)).run(4), Tiny(solo(), net=network(norm)).run(4)
    assert set(mine.client_states) == set(alone.client_states)
    for client in mine.client_states:
        assert same_bits(own(mine, client).w, alone.client_states[client].v)
        assert same_bits(own(mine, client).b, alone.client_states[client].b)


@pytest.mark.parametrize(("lam", "steps"), [(1.0, 200), (10.0, 200)])
def test_on_a_quadratic_it_ends_between_optimum_and_global_model(lam: float, steps: int) -> None:
    """(c), (5): ½‖v − a‖² with w fixed: v → (a + λw)/(1 + λ); λ = 10: ‖v − w‖ = ‖a − w‖/11."""
    a, w = torch.tensor([3.0, -1.0, 0.5]), torch.tensor([-1.0, 2.0, 0.0])
    k = bare_context(start=State(Params({"v": w}), Params({})))
    term, v = PulledModel(lam), torch.zeros(3)
    for _ in range(steps):
        live = v.clone().requires_grad_()
        f = forward(torch.zeros(1, 3), torch.tensor([0]), w=Params({"v": live}))
        loss = (live - a).square().sum() / 2 + term.private_loss(f, k) - k.ce(f)
        v = v - 0.05 * torch.autograd.grad(loss, live)[0]
    torch.testing.assert_close(v, (a + lam * w) / (1 + lam), rtol=1e-4, atol=1e-5)


def test_the_gradient_of_the_pull_is_exactly_lambda_times_the_difference() -> None:
    """(f): no mean over elements or tensors."""
    k = bare_context(start=State(Params({"a": torch.ones(4), "b": torch.ones(2, 3)}), Params({})))
    live = {"a": torch.full((4,), 3.0, requires_grad=True), "b": torch.full((2, 3), -1.0, requires_grad=True)}
    f = forward(torch.zeros(1, 3), torch.tensor([0]), w=Params(live))
    grads = torch.autograd.grad(PulledModel(0.7).private_loss(f, k), list(live.values()))
    torch.testing.assert_close(grads[0], torch.full((4,), 1.4))
    torch.testing.assert_close(grads[1], torch.full((2, 3), -1.4))


def test_the_authors_pull_is_that_difference_over_the_elements_and_the_tensors() -> None:
    """[C]: inside the quadratic zone of smooth-L1, (v − w)/(numel · #tensors)."""
    live = {"a": torch.full((4,), 0.5, requires_grad=True), "b": torch.full((2, 3), -0.5, requires_grad=True)}
    zero = Params({"a": torch.zeros(4), "b": torch.zeros(2, 3)})
    grads = torch.autograd.grad(smooth_pull(Params(live), zero), list(live.values()))
    torch.testing.assert_close(grads[0], torch.full((4,), 0.5 / 8))
    torch.testing.assert_close(grads[1], torch.full((2, 3), -0.5 / 12))


def test_under_the_authors_pull_the_personal_model_is_much_nearer_to_standalone_training() -> None:
    """Why MAP's printed row is weak: same λ, the distance to the λ = 0 model shrinks more than tenfold."""
    runs = {
        name: Tiny(m).run(3, [0, 1])
        for name, m in (
            ("alone", ditto(0.0)),
            ("original", ditto(1.0)),
            ("authors", ditto(1.0, preset="authors")),
        )
    }
    far, near = (
        float((own(runs[n], 0).w - own(runs["alone"], 0).w).sq_norm()) ** 0.5 for n in ("original", "authors")
    )
    assert 0 < near < far / 10


def test_a_strong_stable_pull_holds_the_personal_model_at_the_downloaded_one() -> None:
    """(d): ηλ = 1, without momentum: v − w stays one gradient step wide."""
    local = replace(PLAIN, momentum=0.0, weight_decay=0.0, epochs=3)
    tiny, loose = Tiny(ditto(10.0), local=local).run(2, [0, 1]), Tiny(ditto(0.0), local=local).run(2, [0, 1])
    tight, free = (float((own(t, 0).w - t.last[0].start.w).sq_norm()) for t in (tiny, loose))
    assert tight < free / 4


def test_the_second_selection_starts_at_the_previous_personal_model() -> None:
    """(e): with a rate of 0 in the second round v stays what it was, and is not the downloaded model."""
    tiny = Tiny(ditto(1.0)).run(1, [0, 1])
    before, still = own(tiny, 0), Tiny(ditto(1.0), local=replace(PLAIN, lr=0.0))
    still.server, still.client_states = tiny.server, tiny.client_states
    assert same_bits(own(still.run(1, [0, 1]), 0), before)
    assert not same_bits(before.w, still.last[0].start.w)


def test_the_personal_model_depends_on_its_own_epochs_alone() -> None:
    """(4): the same v after a round whose global part is longer, where `epochs` is given."""
    long, short = (
        Tiny(ditto(1.0, epochs=2.0), local=replace(PLAIN, epochs=e)).run(1, [0, 1]) for e in (1, 3)
    )
    assert same_bits(own(long, 0), own(short, 0))
    assert not same_bits(
        own(Tiny(ditto(1.0), local=replace(PLAIN, epochs=3)).run(1, [0, 1]), 0), own(short, 0)
    )


def test_dittors_restricts_the_shared_training_only() -> None:
    """docs/design.md §9: personal passes use the plain softmax, so v_i in round 1 is Ditto's."""
    mine, plain = Tiny(dittors(1.0, alpha=0.1)).run(1, [0, 1]), Tiny(ditto(1.0)).run(1, [0, 1])
    assert same_bits(own(mine, 0), own(plain, 0))
    assert not same_bits(mine.server.w, plain.server.w)
    assert isinstance(mine.method, Method)
