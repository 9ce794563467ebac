"""Contrasts with models and with centres: MOON, MpFedcon."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn

from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.context import Context, Forward, Received
from raffed.core.params import Params, State
from raffed.core.training.network import Network
from raffed.errors import BoundaryError
from raffed.methods.common import ClassSums, Prototypes, class_mean_sums
from raffed.methods.fedavg import fedavg
from raffed.methods.fedrep import fedrep
from raffed.methods.moon import ModelContrast, PreviousModel, model_contrast, moon
from raffed.methods.mpfedcon import CentreContrast, HeadContrast, PreviousContrast, centre_contrast, mpfedcon
from raffed.models.net import Net
from tests.tiny import CLASSES, FEATURES, PLAIN, Tiny, bare_context, forward, network, of_kind, same_bits

# MpFedcon (docs/papers/mpfedcon.md §2, §3, §6).

G = torch.Generator().manual_seed(0)
Z, CON = (torch.randn(8, 5, generator=G, dtype=torch.float64) for _ in range(2))
C = torch.randn(3, 5, generator=G, dtype=torch.float64)
Y, ALL = torch.tensor([0, 1, 2, 2, 1, 0, 0, 1]), torch.ones(3, dtype=torch.bool)
SLOT = "term-CentreContrast"


def projected() -> Network:
    """4 -> 6 (encoder) -> 5 (projection) -> 3."""
    with seeds.forked(0):
        encoder = nn.Sequential(OrderedDict(fc=nn.Linear(FEATURES, 6), act=nn.Tanh()))
        projection = nn.Sequential(OrderedDict(fc=nn.Linear(6, 5)))
        return Network(
            Net(nn.Sequential(OrderedDict(encoder=encoder, projection=projection)), nn.Linear(5, CLASSES))
        )


def seen(w: Params) -> Forward:
    """A forward pass under the weights w, of which nothing else is asked."""
    return replace(forward(Z, Y, torch.zeros(8, 3)), w=w)


def test_with_mu_0_it_is_fedrep_with_that_private_part_bit_for_bit() -> None:
    """1, and 2: the contrast draws no random number, and a first round without centres is FedRep's."""
    plain = Tiny(fedrep(2.0, 2.0, private="top"), net=projected())
    none = Tiny(mpfedcon(0.0, 0.5, 2.0, 2.0), net=projected())
    some = Tiny(mpfedcon(10.0, 0.5, 2.0, 2.0), net=projected())
    for tiny in (plain, none, some):
        tiny.step([0, 1, 2, 3])
    assert same_bits(plain.everything(), none.everything())
    assert same_bits(plain.server.w, some.server.w)
    assert all(same_bits(plain.client_states[c].v, some.client_states[c].v) for c in range(4))
    for tiny in (plain, none, some):
        tiny.step([0, 1, 2, 3])
    assert same_bits(plain.server.w, none.server.w)
    assert not same_bits(plain.server.w, some.server.w)


def test_the_stable_form_is_eq_5_and_lies_in_its_range() -> None:
    """3: = −log of the two-term fraction; for τ = 0.5 in [0.018150, 4.018150]."""
    s_glob, s_con = torch.cosine_similarity(Z, C[Y]), torch.cosine_similarity(Z, CON)
    fraction = (s_glob / 0.5).exp() / ((s_glob / 0.5).exp() + (s_con / 0.5).exp())
    assert float(centre_contrast(Z, Y, C, ALL, CON, 0.5)) == pytest.approx(
        float(-fraction.log().mean()), rel=1e-12
    )
    z, one = torch.ones(1, 5, dtype=torch.float64), torch.tensor([0])
    low, high = (float(centre_contrast(z, one, s * z, ALL[:1], -s * z, 0.5)) for s in (1.0, -1.0))
    assert (low, high) == (pytest.approx(0.018150, abs=5e-7), pytest.approx(4.018150, abs=5e-7))


def test_only_directions_count_and_the_gradient_is_orthogonal_to_z() -> None:
    """3."""
    z = Z.clone().requires_grad_()
    loss = centre_contrast(z, Y, 7.0 * C, ALL, 0.1 * CON, 0.5)
    assert float(loss.detach()) == pytest.approx(float(centre_contrast(Z, Y, C, ALL, CON, 0.5)), rel=1e-12)
    assert float((torch.autograd.grad(loss, z)[0] * Z).sum(1).abs().max()) < 1e-15


def test_where_z_is_still_z_con_the_negative_contributes_no_gradient() -> None:
    """4: l = softplus((1 − cos)/τ), ∂l/∂z = −(σ((1 − cos)/τ)/τ)(ĉ − cos ẑ)/‖z‖."""
    z, c, tau = Z[:1].clone().requires_grad_(), C[:1], 0.5
    loss = centre_contrast(z, torch.tensor([0]), c, ALL[:1], Z[:1], tau)
    cos = float(torch.cosine_similarity(Z[:1], c))
    assert float(loss.detach()) == pytest.approx(math.log1p(math.exp((1 - cos) / tau)), rel=1e-12)
    unit, sigma = Z[:1] / Z[:1].norm(), 1 / (1 + math.exp(-(1 - cos) / tau))
    wanted = -(sigma / tau) * (c / c.norm() - cos * unit) / Z[:1].norm()
    torch.testing.assert_close(torch.autograd.grad(loss, z)[0], wanted)


def test_the_negative_is_the_model_before_the_head_epochs() -> None:
    """4: with head epochs, z ≠ z_con before any encoder step: d keeps the old projection."""
    tiny = Tiny(mpfedcon(10.0, 0.5, 3.0, 0.0), net=projected()).run(1, [0, 1, 2, 3])
    done, x = tiny.visit(1), tiny.data[1].x
    view: Context = done.views[SLOT]
    assert same_bits(CentreContrast(1.0, 0.5).negative(seen(done.trained.w), view), done.start)
    assert not torch.equal(tiny.net.apply(done.trained, x)[1], tiny.net.apply(done.start, x)[1])


def test_the_head_phase_rests_the_encoder_and_the_encoder_phase_rests_the_heads() -> None:
    """5, with momentum 0.9 and weight decay 0.1, in a round with centres."""
    strong = replace(PLAIN, momentum=0.9, weight_decay=0.1)
    for head, encoder, moves in ((2.0, 0.0, False), (0.0, 2.0, True)):
        tiny = Tiny(mpfedcon(10.0, 0.5, head, encoder), net=projected(), local=strong).run(1, [0, 1, 2, 3])
        done = tiny.visit(1)
        for n in done.start.w.names:
            assert torch.equal(done.start.w[n], done.trained.w[n]) == (
                n.startswith("body.encoder.") != moves
            ), n


def test_neither_the_centres_nor_the_negative_get_a_gradient() -> None:
    """5: by the term itself, in a round with centres; a centre with a gradient could not even be sent."""
    tiny = Tiny(mpfedcon(10.0, 0.5, 1.0, 1.0), net=projected()).run(1, [0, 1, 2, 3])
    done, data = tiny.visit(1), tiny.data[1]
    d = State(Params({n: t.clone().requires_grad_() for n, t in done.start.w.tensors.items()}), done.start.b)
    z = torch.randn(len(data.y), 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    loss = CentreContrast(1.0, 0.5).loss(
        replace(forward(z, data.y), x=data.x), done.views[SLOT].replace(start=d)
    )
    grads = torch.autograd.grad(loss, [z, *d.w.tensors.values()], allow_unused=True)
    assert grads[0].abs().max() > 0
    assert all(g is None for g in grads[1:])
    with pytest.raises(BoundaryError, match="carries gradient history"):
        Prototypes(torch.zeros(3, 5, requires_grad=True), ALL)


def test_the_defaults_are_the_papers() -> None:
    """§4: μ = 10, τ = 0.5, τ_h = 10, τ_θ = 1; §2: uniform centres, the negative is the round's start."""
    assert mpfedcon() == mpfedcon(10.0, 0.5, 10.0, 1.0, "uniform", "round_start")


def test_all_heads_are_equal_bit_for_bit_at_round_0_and_apart_once_they_were_trained() -> None:
    """8: projection and output, also of a party that comes later."""
    tiny = Tiny(mpfedcon(10.0, 0.5, 1.0, 1.0), net=projected())
    heads = [tiny.method.split.own(tiny.visit(client).start.w) for client in range(4)]
    assert set(heads[0].names) == {
        "body.projection.fc.weight",
        "body.projection.fc.bias",
        "head.weight",
        "head.bias",
    }
    assert all(same_bits(one, tiny.method.split.own(tiny.net.initial.w)) for one in heads)
    tiny.run(1, [0, 1])
    later = [tiny.method.split.own(tiny.visit(client).start.w) for client in range(4)]
    assert [same_bits(one, heads[0]) for one in later] == [False, False, True, True]
    assert not same_bits(later[0], later[1])


def test_a_party_that_takes_no_part_keeps_its_heads_bit_for_bit() -> None:
    """docs/papers/mpfedcon.md §6 no. 8; docs/papers/baselines-personal.md, FedPer (3): also when the
    others move the encoder.
    """
    tiny = Tiny(mpfedcon(10.0, 0.5, 1.0, 1.0), net=projected()).run(1, [0, 1, 2, 3])
    shared, heads = tiny.server.w, tiny.client_states[3].v
    tiny.step([0, 1])
    assert not same_bits(tiny.server.w, shared)
    assert same_bits(tiny.client_states[3].v, heads)
    assert not same_bits(
        tiny.client_states[1].v,
        Tiny(mpfedcon(10.0, 0.5, 1.0, 1.0), net=projected()).run(1, [0, 1, 2, 3]).client_states[1].v,
    )


def test_the_contrast_is_never_evaluated_in_the_head_phase() -> None:
    """5: centres full of NaN do not matter where only the heads train."""
    tiny = Tiny(mpfedcon(10.0, 0.5, 2.0, 0.0), net=projected()).run(1, [0, 1, 2, 3])
    sent = tiny.server.broadcast()
    poison = Prototypes(torch.full((3, 5), math.nan), ALL)
    done = tiny.visit(1, broadcast=sent.replace(slots={SLOT: poison}))
    assert same_bits(done.trained, tiny.visit(1).trained)


def test_encoders_are_weighted_by_samples_and_equal_ones_stay() -> None:
    """6: no further 1/n; sizes 8 and 6."""
    tiny = Tiny(mpfedcon(10.0, 0.5, 1.0, 1.0), net=projected(), local=Local(lr=0.0, batch_size=4, epochs=1))
    before = tiny.server.w
    tiny.step([0, 2])
    torch.testing.assert_close(tiny.server.w.flat, before.flat)
    assert tiny.method.mean.weights([1, 3]) == [0.25, 0.75]


@pytest.mark.parametrize(
    ("weighting", "value"), [("uniform", 0.5), ("party_size", 0.8), ("class_count", 0.99)]
)
def test_a_centre_is_the_mean_over_the_clients_that_hold_the_class(weighting: str, value: float) -> None:
    """7: client A has 1 sample of class 0 at 0 among 25 in all, B 99 of 99 at 1... weighted 1:1, 25:100,
    1:99.
    """
    told = []
    for counts, centre in (([1, 24, 0], 0.0), ([99, 0, 1], 1.0)):
        y = torch.tensor([c for c, n in enumerate(counts) for _ in range(n)])
        z = torch.full((len(y), 5), centre)
        k = bare_context(class_counts=torch.tensor(counts), features=lambda _, z=z, y=y: iter([(z, y)]))
        told.append(class_mean_sums(k, weighting))
    total = ClassSums(told[0].total + told[1].total, told[0].count + told[1].count)
    term, spec = CentreContrast(1.0, 0.5), bare_context().spec
    before = Prototypes(torch.full((3, 5), 9.0), torch.tensor([False, False, True]))
    after = term.server_step(before, Received(2, sum=total), spec)
    torch.testing.assert_close(after.mean[0], torch.full((5,), value))
    torch.testing.assert_close(after.mean[1], torch.zeros(5))  # held by A alone: not divided by two


def test_a_class_that_no_participant_holds_keeps_its_centre_bit_for_bit() -> None:
    """7."""
    tiny = Tiny(mpfedcon(10.0, 0.5, 1.0, 1.0), net=projected()).run(1, [0, 1, 2, 3])
    before = tiny.server.slots[SLOT]
    tiny.step([0, 2])  # classes 0 and 1
    after = tiny.server.slots[SLOT]
    assert torch.equal(before.mean[2], after.mean[2])  # type: ignore[union-attr]
    assert not torch.equal(before.mean[0], after.mean[0])  # type: ignore[union-attr]


def test_no_key_of_the_private_part_travels_and_uniform_centres_tell_no_counts() -> None:
    """8."""
    tiny = Tiny(mpfedcon(10.0, 0.5, 1.0, 1.0), net=projected()).run(2, [0, 1, 2, 3])
    assert set(tiny.server.broadcast().w.names) == {"body.encoder.fc.weight", "body.encoder.fc.bias"}
    assert tiny.last[1].upload.w.names == tiny.server.w.names
    told = of_kind(tiny.last[1].upload.slots[SLOT], ClassSums)
    assert told.count.tolist() == [0, 1, 1]
    assert set(tiny.client_states[1].v.names) == {
        n for n in tiny.net.initial.w.names if not n.startswith("body.encoder.")
    }


def test_centres_are_indexed_by_label_and_unknown_classes_are_left_out() -> None:
    """§6 no. 12 and §3: permuted centres change the loss; samples without a centre do not enter, whatever
    it holds.
    """
    usual, permuted = (float(centre_contrast(Z, Y, c, ALL, CON, 0.5)) for c in (C, C[[1, 2, 0]]))
    assert usual != pytest.approx(permuted)
    known, poisoned = torch.tensor([True, True, False]), C.clone()
    poisoned[2] = math.nan
    z = Z.clone().requires_grad_()
    loss = centre_contrast(z, Y, poisoned, known, CON, 0.5)
    rows = Y != 2
    assert float(loss.detach()) == pytest.approx(
        float(centre_contrast(Z[rows], Y[rows], C, ALL, CON[rows], 0.5)), rel=1e-12
    )
    assert torch.equal(torch.autograd.grad(loss, z)[0][~rows], torch.zeros(2, 5, dtype=torch.float64))
    assert float(centre_contrast(Z, Y, C, ~ALL, CON, 0.5)) == 0.0


def test_the_other_negative_is_the_previous_local_model_and_at_first_the_downloaded_one() -> None:
    one, two = (
        Tiny(mpfedcon(10.0, 0.5, 1.0, 1.0, negative=n), net=projected())
        for n in ("round_start", "previous_local")
    )
    one.step([0, 1, 2, 3])
    two.step([0, 1, 2, 3])
    assert same_bits(one.server.w, two.server.w)
    view = (
        two.visit(1)
        .views["term-PreviousContrast"]
        .replace(mine=two.client_states[1].slots["term-PreviousContrast"])
    )
    negative = PreviousContrast(1.0, 0.5).negative(seen(two.last[1].trained.w), view)
    assert all(
        torch.equal(negative.w[n], two.last[1].trained.w[n])
        for n in negative.w.names
        if n.startswith("body.")
    )
    one.step([0, 1, 2, 3])
    two.step([0, 1, 2, 3])
    assert not same_bits(one.server.w, two.server.w)


def test_a_negative_between_the_phases_has_the_new_heads_over_the_downloaded_encoder() -> None:
    """Switch of §2; without head epochs it is the default, bit for bit."""
    for head, equal in ((1.0, False), (0.0, True)):
        one, two = (
            Tiny(mpfedcon(10.0, 0.5, head, 1.0, negative=name), net=projected()).run(2, [0, 1, 2, 3]).server.w
            for name in ("round_start", "after_head")
        )
        assert same_bits(one, two) == equal
    done = Tiny(mpfedcon(10.0, 0.5, 1.0, 1.0), net=projected()).visit(1)
    made = HeadContrast(1.0, 0.5).negative(seen(done.trained.w), done.views[SLOT]).w
    for name in made.names:
        from_start = name.startswith("body.encoder.")
        assert torch.equal(made[name], (done.start.w if from_start else done.trained.w)[name])


# MOON (docs/papers/baselines.md, MOON).


def unit(angle: float) -> torch.Tensor:
    return torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)


def test_the_stable_form_is_the_papers_fraction() -> None:
    g = torch.Generator().manual_seed(0)
    z, a, b = (torch.randn(7, 5, generator=g, dtype=torch.float64) for _ in range(3))
    s_g, s_p = torch.cosine_similarity(z, a), torch.cosine_similarity(z, b)
    top, other = (s_g / 0.5).exp(), (s_p / 0.5).exp()
    assert float(model_contrast(z, a, b, 0.5)) == pytest.approx(
        float(-(top / (top + other)).log().mean()), rel=1e-12
    )


@pytest.mark.parametrize("tau", [0.1, 0.5, 1.0])
def test_its_slope_in_the_similarity_to_the_previous_model_is_sigma_over_tau(tau: float) -> None:
    """(3): dℓ/ds_p = −dℓ/ds_g = σ((s_p − s_g)/τ)/τ; turning z_p by dφ changes s_p = cos φ by −sin φ dφ."""
    z, glob = unit(0.0), unit(0.4)
    phi = torch.tensor(1.1, dtype=torch.float64, requires_grad=True)
    previous = torch.stack([phi.cos(), phi.sin()])[None]
    (slope,) = torch.autograd.grad(model_contrast(z, glob, previous, tau), phi)
    sigma = 1 / (1 + math.exp(-(math.cos(1.1) - math.cos(0.4)) / tau))
    assert float(slope) == pytest.approx(-math.sin(1.1) * sigma / tau, rel=1e-9)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("mu", [1.0, 5.0])
def test_a_first_visit_adds_log_2_and_trains_fedavgs_model_bit_for_bit(mu: float, norm: bool) -> None:
    """(2): previous = global, the gradient is exactly 0."""
    mine, plain = Tiny(moon(mu), net=network(norm)).visit(1), Tiny(fedavg(), net=network(norm)).visit(1)
    assert same_bits(mine.trained, plain.trained)
    assert mine.loss - plain.loss == pytest.approx(mu * math.log(2), abs=1e-5)


def test_a_first_visit_in_a_later_round_takes_both_frozen_models_from_what_was_downloaded() -> None:
    """The same after two rounds without the client: neither of them is the run's initial model."""
    tiny, plain = Tiny(moon()).run(2, [1, 2, 3]), Tiny(fedavg())
    plain.server = tiny.server
    mine, theirs = tiny.visit(0), plain.visit(0)
    assert same_bits(mine.trained, theirs.trained)
    assert mine.loss - theirs.loss == pytest.approx(math.log(2), abs=1e-5)


def test_the_previous_model_is_the_one_that_was_uploaded_not_the_aggregate() -> None:
    """(5) and the trap: saved after local training."""
    tiny = Tiny(moon(), net=network(norm=True)).run(1, [0, 1, 2, 3])
    kept, sent = tiny.client_states[1].slots["term-ModelContrast"], tiny.last[1].upload
    assert isinstance(kept, PreviousModel)
    assert set(kept.body.names) == {n for n in sent.w.names if n.startswith("body.")}
    assert all(torch.equal(kept.body[n], sent.w[n]) for n in kept.body.names)
    assert same_bits(kept.b, sent.b)
    assert not all(torch.equal(kept.body[n], tiny.server.w[n]) for n in kept.body.names)


def test_only_the_live_features_get_a_gradient() -> None:
    """The two other passes run without gradient: z enters alone."""
    tiny = Tiny(moon(), net=network(norm=True)).run(2, [0, 1, 2, 3])
    k = tiny.context(1, "term-ModelContrast")
    z = torch.randn(10, 5, generator=torch.Generator().manual_seed(3), requires_grad=True)
    x, y = tiny.data[1].x, tiny.data[1].y
    (slope,) = torch.autograd.grad(ModelContrast(1.0, 0.5).loss(Forward(x, y, z, z, k.w0), k), z)
    assert float((slope * z.detach()).sum(-1).abs().max()) < 1e-6  # cosine: orthogonal to z
    assert float(slope.abs().max()) > 0


def test_a_visit_leaves_the_running_statistics_of_both_frozen_models_as_they_were() -> None:
    """(4): they run in evaluation mode; the model in training moves its own."""
    tiny = Tiny(moon(), net=network(norm=True)).run(2, [0, 1, 2, 3])
    previous = of_kind(tiny.client_states[1].slots["term-ModelContrast"], PreviousModel)
    sent = tiny.server.broadcast()
    before = [sent.b.flat.clone(), previous.b.flat.clone(), tiny.net.initial.b.flat.clone()]
    done = tiny.visit(1, broadcast=sent)
    assert same_bits([sent.b.flat, previous.b.flat, tiny.net.initial.b.flat], before)
    assert same_bits(done.start.b, sent.b)
    assert not same_bits(done.trained.b.flat, sent.b.flat)
