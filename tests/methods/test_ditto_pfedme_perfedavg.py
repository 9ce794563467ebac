"""Personal models near the shared one: Ditto, pFedMe, Per-FedAvg."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from raffed.config.training import Local
from raffed.core.ingredients import Gradient
from raffed.core.losses import smooth_pull
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Pass
from raffed.core.seeds import generator
from raffed.core.server import Mean
from raffed.core.training.sgd import batch_stream
from raffed.methods.ditto import PersonalModel, PulledModel, ditto, dittors
from raffed.methods.fedavg import fedavg
from raffed.methods.fedrs import fedrs
from raffed.methods.perfedavg import Meta, MetaSteps, perfedavg
from raffed.methods.pfedme import Envelope, MoreauSteps, pfedme
from raffed.methods.solo import solo
from tests.quadratics import quadratics, x_of
from tests.tiny import (
    PLAIN,
    Tiny,
    bare_context,
    forward,
    network,
    of_kind,
    same_bits,
    slopes,
    tiny_loss,
    tree_stack,
)

# Ditto and DittoRS (docs/papers/baselines-personal.md, Ditto).


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


# Local solvers of their own: pFedMe and Per-FedAvg (docs/papers/baselines-personal.md).

K = bare_context()
A = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
B = torch.tensor([1.0, -1.0], dtype=torch.float64)
W = torch.tensor([0.3, 0.7], dtype=torch.float64)


def at(w: Tensor) -> State:
    return State(Params({"w": w}), Params({}))


def gradient_of(slope: Callable[[Tensor], Tensor], seen: list[int] | None = None) -> Gradient:
    def gradient(state: State, which: int) -> tuple[Params, Params]:
        if seen is not None:
            seen.append(which)
        return Params({"w": slope(state.w["w"])}), state.b

    return gradient


def envelope(rule: MoreauSteps, w: float, a: float = 2.0, b: float = 3.0) -> tuple[float, float]:
    """(θ, w_k) after one mini-batch of f = a/2 (x − b)², both starting at w."""
    start = at(torch.tensor(w, dtype=torch.float64))
    done = rule.step(Envelope(start.w, start), gradient_of(lambda x: a * (x - b)), K)
    return float(done.theta.w["w"]), float(done.w["w"])


def test_inner_steps_approach_the_proximal_point_and_the_outer_step_moves_towards_it() -> None:
    """pFedMe (a): θ = (ab + λw)/(a + λ) = 0.794118; w ← w − ηλ(w − θ) = 0.522059. (b), five steps: θ_K = θ* +
    ρ^K (w − θ*), ρ = 1 − η_p(a + λ): 0.678264.
    """
    theta, w = envelope(MoreauSteps(15.0, 0.005, 0.01, 500), 0.5)
    assert (theta, w) == (pytest.approx(0.794118, abs=1e-6), pytest.approx(0.522059, abs=1e-6))
    assert envelope(MoreauSteps(15.0, 0.005, 0.01, 5), 0.5)[0] == pytest.approx(0.678264, abs=1e-6)


def test_without_lambda_the_copy_never_moves_and_one_step_moves_it_by_the_product_of_rates() -> None:
    """(c), (e): −η λ η_p ∇f(ω); the authors' form has no λ."""
    assert envelope(MoreauSteps(0.0, 0.005, 0.01, 5), 0.5)[1] == 0.5
    assert envelope(MoreauSteps(15.0, 0.005, 0.01, 1), 0.5)[1] == pytest.approx(
        0.5 + 0.005 * 15 * 0.01 * 5.0, abs=1e-12
    )
    assert envelope(MoreauSteps(15.0, 0.9, 0.01, 1, True), 0.5)[1] == pytest.approx(
        0.5 + 0.9 * 0.01 * 5.0, abs=1e-12
    )


def test_the_server_mixes_by_beta() -> None:
    """(d): β = 1 is the mean of the w_k, β = 0 stands still."""
    one, none = Tiny(pfedme(beta=1.0)), Tiny(pfedme(beta=0.0))
    done = one.step([0, 2])
    mean = done[0].upload.w * (8 / 14) + done[2].upload.w * (6 / 14)
    torch.testing.assert_close(one.server.w.flat, mean.flat, rtol=1e-5, atol=1e-6)
    assert same_bits(none.run(2).server.w, none.net.initial.w)


def test_the_personal_model_is_theta_and_not_what_is_uploaded() -> None:
    tiny = Tiny(pfedme(), net=network(norm=True)).run(2, [0, 1])
    done = tiny.last[0]
    theta = done.personal_state(tiny.method)
    assert same_bits(done.trained.w, done.upload.w)
    assert float((theta.w - done.trained.w).sq_norm()) > 1e-6
    assert tiny.client_states == {}


def test_pfedme_in_whole_rounds_is_the_formula_on_quadratics() -> None:
    """Two clients, two mini-batch steps a round, written out."""
    tiny = quadratics(
        pfedme(2.0, 0.1, 0.05, 3), lr=9.0, steps=2, sizes=(1, 1), h=(1.0, 3.0), b=(1.0, -2.0)
    ).run(2, [0, 1])
    x = 0.0
    for _ in range(2):
        ends = []
        for h, b in ((1.0, 1.0), (3.0, -2.0)):
            w = theta = x
            for _ in range(2):
                for _ in range(3):
                    theta -= 0.05 * (h * (theta - b) + 2.0 * (theta - w))
                w -= 0.1 * 2.0 * (w - theta)
            ends.append(w)
        x = sum(ends) / 2
    assert x_of(tiny.server.w) == pytest.approx(x, abs=1e-6)


def meta(
    mode: str, alpha: float, beta: float, slope: Callable[[Tensor], Tensor], delta: float = 1e-3
) -> Tensor:
    """The direction −(w⁺ − w)/β of one meta-step at W."""
    rule = MetaSteps(alpha, beta, mode, delta)
    after = rule.step(Meta(at(W), at(W).w.zeros()), gradient_of(slope), K).model.w["w"]
    return (W - after) / beta


@pytest.mark.parametrize("delta", [1e-3, 0.1, 1.0])
def test_on_a_quadratic_the_directions_are_those_of_the_sheet(delta: float) -> None:
    """Per-FedAvg (b), (2): FO (−0.1325, 1.6675); HF = exact (I − αA)∇f(w − α∇f(w)) = (−0.1894, 1.5074)
    for any δ.
    """
    fo, hf = (meta(mode, 0.1, 0.5, lambda w: A @ w - B, delta) for mode in ("fo", "hf"))
    assert fo.tolist() == pytest.approx([-0.1325, 1.6675], abs=5e-5)
    assert hf.tolist() == pytest.approx([-0.1894, 1.5074], abs=5e-5)
    exact = (torch.eye(2, dtype=torch.float64) - 0.1 * A) @ (A @ (W - 0.1 * (A @ W - B)) - B)
    torch.testing.assert_close(hf, exact, rtol=1e-9, atol=1e-9)


def test_for_a_linear_function_and_for_alpha_0_both_modes_are_sgd() -> None:
    """(e), (a)."""
    for alpha, slope in ((0.1, lambda w: B + 0 * w), (0.0, lambda w: A @ w - B)):
        fo, hf = (meta(mode, alpha, 0.5, slope) for mode in ("fo", "hf"))
        torch.testing.assert_close(fo, hf, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(fo, slope(W), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", ["fo", "hf"])
def test_beta_0_leaves_the_meta_model_bit_for_bit(mode: str) -> None:
    """(c): restored before the outer step."""
    done = Tiny(perfedavg(0.1, 0.0, mode)).visit(1)
    assert same_bits(done.trained.w, done.start.w)


@pytest.mark.parametrize(("mode", "order"), [("fo", [0, 1]), ("hf", [0, 1, 2, 2])])
def test_every_gradient_of_a_step_uses_another_of_the_step_s_batches(mode: str, order: list[int]) -> None:
    """(d), (4): D, D', D''; both of hf's differences are on D''."""
    seen: list[int] = []
    rule = MetaSteps(0.1, 0.1, mode, 1e-3)
    rule.step(Meta(at(W), at(W).w.zeros()), gradient_of(lambda w: w, seen), K)
    assert seen == order
    tiny = Tiny(perfedavg(mode=mode))
    count = tiny.visit(3).steps
    assert count == (4 if mode == "fo" else 3)  # 11 samples are 3 batches
    batches = batch_stream(11, count, PLAIN, generator(0, "batches", 0, 3, 0))[: rule.batches()]
    assert len(set(torch.cat(batches).tolist())) == sum(len(b) for b in batches)


def test_with_alpha_0_it_is_fedavg_with_plain_sgd_at_rate_beta_on_every_second_batch() -> None:
    """(1), to float accuracy: 8 samples, batches of 4, so D is the first half and D' the second."""
    tiny = Tiny(perfedavg(0.0, 0.1, adapt_steps=0)).run(1, [0, 1])
    start, data = tiny.visit(0).start, tiny.data[0]
    index = batch_stream(8, 2, PLAIN, generator(0, "batches", 1, 0, 0))[1]
    grads = slopes(lambda w: tiny_loss(w, data.x[index], data.y[index]), start.w.tensors)
    after = tiny.visit(0).trained.w
    for n, g in grads.items():
        torch.testing.assert_close(after[n], start.w[n] - 0.1 * g, rtol=1e-5, atol=1e-6)


def test_the_score_follows_one_step_of_rate_alpha_and_leaves_the_meta_model_untouched() -> None:
    """(5): whole data in one batch: θ = w_k − α∇f(w_k), whatever momentum and decay the run has."""
    local = Local(lr=9.0, momentum=0.9, weight_decay=0.5, batch_size=64, epochs=2)
    tiny = Tiny(perfedavg(0.2, 0.1), local=local)
    done, data = tiny.visit(1), tiny.data[1]
    adapted = done.personal_state(tiny.method).w
    for n, g in slopes(lambda w: tiny_loss(w, data.x, data.y), done.trained.w.tensors).items():
        torch.testing.assert_close(adapted[n], done.trained.w[n] - 0.2 * g, rtol=1e-5, atol=1e-6)
    assert same_bits(done.upload.w, done.trained.w)
    unadapted = Tiny(perfedavg(0.2, 0.1, adapt_steps=0), local=local).visit(1)
    assert same_bits(unadapted.views["personal"].private, unadapted.trained)
    epoch = Tiny(perfedavg(0.2, 0.1, adapt_epochs=1.0), local=local).visit(1)  # here one batch
    assert same_bits(epoch.personal_state(tiny.method), done.personal_state(tiny.method))
    twice = Tiny(perfedavg(0.2, 0.1, adapt_epochs=2.0), local=local).visit(1)
    two = Tiny(perfedavg(0.2, 0.1, adapt_steps=2), local=local).visit(1)
    assert same_bits(twice.personal_state(tiny.method), two.personal_state(tiny.method))


def test_the_authors_preset_leaks_the_inner_gradient_into_the_outer_step() -> None:
    """[C]: v ← 0.9 v + g, w̃ = w − αv, v ← 0.9 v + q, w ← w − βv; scored without adaptation."""
    rule = MetaSteps(0.1, 0.5, "fo", 1e-3, leak=True)
    v = torch.tensor([1.0, -2.0], dtype=torch.float64)
    after = rule.step(Meta(at(W), Params({"w": v})), gradient_of(lambda w: A @ w - B), K)
    inner = 0.9 * v + A @ W - B
    outer = 0.9 * inner + A @ (W - 0.1 * inner) - B
    torch.testing.assert_close(after.model.w["w"], W - 0.5 * outer)
    torch.testing.assert_close(after.velocity["w"], outer)
    assert perfedavg(preset="authors").personal.steps == 0  # type: ignore[union-attr]


def test_the_authors_preset_makes_as_many_steps_as_fedavg_on_twice_the_batches() -> None:
    """[C]: "every iteration consumes two batches but counts once": 11 samples are 3 batches, so 3 steps
    on 6, against 2 on 4.
    """
    assert Tiny(perfedavg(preset="authors")).visit(3).steps == 6
    assert Tiny(perfedavg()).visit(3).steps == 4
    assert perfedavg(mode="hf").solver.iterations(7) == 3  # type: ignore[union-attr]


def test_the_score_after_one_step_and_that_after_an_epoch_are_of_one_training() -> None:
    """Per-FedAvg, scored after one step or one epoch: two runs, of the same bits but for the personalised
    model.
    """
    step, epoch = Tiny(perfedavg()).run(2, [0, 1]), Tiny(perfedavg(adapt_epochs=1.0)).run(2, [0, 1])
    assert same_bits(step.everything(), epoch.everything())
    models = [tiny.last[1].personal_state(tiny.method) for tiny in (step, epoch)]
    assert not same_bits(*models)


@pytest.mark.parametrize(("n", "shared"), [(12, 0), (8, 4)])
def test_a_step_s_batches_are_disjoint_while_one_shuffle_lasts(n: int, shared: int) -> None:
    """(4): three batches of 4 are all 12 samples; of 8 samples the third batch is of a new shuffle and
    repeats four.
    """
    drawn = torch.cat(batch_stream(n, 3, Local(batch_size=4), generator(0, "batches", 0, 0)))
    assert len(drawn) - len(drawn.unique()) == shared


@pytest.mark.parametrize("method", [pfedme(), perfedavg(), perfedavg(mode="hf")], ids=repr)
def test_momentum_and_decay_of_the_run_do_not_apply(method: Method) -> None:
    one, two = (
        Tiny(method, local=Local(0.1, rho, wd, 4, 1)).visit(1).trained for rho, wd in ((0.9, 0.1), (0.0, 0.0))
    )
    assert same_bits(one, two)


@pytest.mark.parametrize(
    "rule", [MoreauSteps(2.0, 0.1, 0.05, 3), MetaSteps(0.1, 0.1, "fo", 1e-2), MetaSteps(0.1, 0.1, "hf", 1e-2)]
)
def test_a_step_of_many_clients_at_once_is_the_loops(rule: MoreauSteps | MetaSteps) -> None:
    """The rule is a dense function: vmap over stacked carried records and stacked data equals one at a
    time.
    """
    g = torch.Generator().manual_seed(0)
    points, targets = torch.randn(4, 3, generator=g), torch.randn(4, 3, generator=g)
    carried = [rule.begin(bare_context(start=at(p))) for p in points]

    def one(record: object, target: Tensor) -> object:
        return rule.step(record, gradient_of(lambda w: (w - target).tanh()), K)  # type: ignore[arg-type]

    together = vmap(one)(tree_stack(carried), targets)
    for client in range(4):
        alone = one(carried[client], targets[client])
        a, b = rule.end(alone), rule.end(together)  # type: ignore[arg-type]
        torch.testing.assert_close(b.w["w"][client], a.w["w"])


def test_uniform_means_and_batchnorm_statistics_of_the_trained_model_are_sent() -> None:
    tiny = Tiny(perfedavg(), net=network(norm=True))
    done = tiny.step([0, 3])
    torch.testing.assert_close(
        tiny.server.w.flat, ((done[0].upload.w + done[3].upload.w) / 2).flat, rtol=1e-5, atol=1e-6
    )
    assert not same_bits(done[0].upload.b, done[0].start.b)
    assert Method("x", passes=(Pass(),), mean=Mean(by="clients")).solver is None
