"""MOON (docs/papers/baselines.md, MOON)."""

from __future__ import annotations

import math

import pytest
import torch

from raffed.core.context import Forward
from raffed.methods.fedavg import fedavg
from raffed.methods.moon import ModelContrast, PreviousModel, model_contrast, moon
from tests.tiny import Tiny, network, of_kind, same_bits


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


def test_the_gradient_of_the_term_with_equal_models_is_0_and_its_value_log_2() -> None:
    z = torch.randn(6, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
    other = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    loss = model_contrast(z, other, other, 0.5)
    assert float(loss.detach()) == pytest.approx(0.693147, abs=1e-6)
    assert torch.equal(torch.autograd.grad(loss, z)[0], torch.zeros_like(z))


def test_the_previous_model_is_the_one_that_was_uploaded_not_the_aggregate() -> None:
    """(5) and the trap: saved after local training."""
    tiny = Tiny(moon(), net=network(norm=True)).run(1, [0, 1, 2, 3])
    kept, sent = tiny.client_states[1].slots["term-ModelContrast"], tiny.last[1].upload
    assert isinstance(kept, PreviousModel)
    assert set(kept.body.names) == {n for n in sent.w.names if n.startswith("body.")}
    assert all(torch.equal(kept.body[n], sent.w[n]) for n in kept.body.names)
    assert same_bits(kept.b, sent.b)
    assert not all(torch.equal(kept.body[n], tiny.server.w[n]) for n in kept.body.names)


def test_a_second_visit_differs_from_fedavg_and_reads_the_previous_features() -> None:
    tiny, plain = Tiny(moon()).run(1, [0, 1, 2, 3]), Tiny(fedavg()).run(1, [0, 1, 2, 3])
    assert same_bits(tiny.server.w, plain.server.w)
    assert float((tiny.visit(1).trained.w - plain.visit(1).trained.w).sq_norm()) > 1e-8


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
