"""Statistics of features: FedDBE, pFedFDA."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Forward, Received
from raffed.core.params import Params, State
from raffed.errors import UsageError
from raffed.methods.common import Companion
from raffed.methods.fedavg import fedavg
from raffed.methods.feddbe import (
    ConsensusMean,
    DomainBias,
    RunningDomainBias,
    TranslatedFeatures,
    feddbe,
    mean_gap,
)
from raffed.methods.pfedfda import (
    Fit,
    Gaussians,
    GaussianSums,
    GlobalDiscriminant,
    cross_validated,
    discriminant,
    fitted,
    interpolated,
    log_prior,
    packed,
    pfedfda,
    unpacked,
)
from tests.tiny import (
    CLASSES,
    EVERYBODY,
    PLAIN,
    WIDTH,
    Tiny,
    bare_context,
    leaves,
    network,
    of_kind,
    same_bits,
    server_context,
)

# FedDBE (Zhang et al. 2023).

W = torch.tensor([[1.0, -1.0], [0.5, 2.0], [0.0, 1.0]])
BIAS = torch.tensor([0.1, 0.0, -0.1])
Z = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
Y = torch.tensor([0, 2])
V = torch.tensor([0.5, -0.5])
CONSENSUS = ConsensusMean(torch.tensor([0.2, 0.1]), torch.tensor(True))


def worked(v: Tensor = V, **own: Tensor) -> Forward:
    """The forward pass of the sheet's example, under the translation v."""
    w = Params({"head.weight": W, "head.bias": BIAS})
    return Forward(Z, Y, Z, Z @ W.T + BIAS, w, Params({"v": v, **own}))


def test_translated_features_have_the_loss_and_gradient_worked_out_by_hand() -> None:
    """Logits (0.1, 3.75, 1.4) and (2.1, −2.75, −1.6); the gradient in v is the mean of (p − e_y) W."""
    v = V.clone().requires_grad_()
    loss = TranslatedFeatures().loss(worked(v), bare_context(round=1))
    assert float(loss.detach()) == pytest.approx(3.7482879, abs=1e-6)
    (slope,) = torch.autograd.grad(loss, [v])
    torch.testing.assert_close(slope, torch.tensor([0.2206652, 0.4580253]))
    logits = torch.tensor([[0.1, 3.75, 1.4], [2.1, -2.75, -1.6]])
    error = logits.softmax(-1) - torch.eye(3)[Y]
    torch.testing.assert_close(slope, (error @ W).mean(0))


def test_a_client_s_model_has_its_translation_in_the_bias() -> None:
    state = State(Params({"head.weight": W, "head.bias": BIAS}), Params({}))
    model = DomainBias(1.0).model(bare_context(state=state, mine=Companion(Params({"v": V}))))
    torch.testing.assert_close(model.w["head.bias"], torch.tensor([1.1, -0.75, -0.6]))
    torch.testing.assert_close(Z @ W.T + model.w["head.bias"], (Z + V) @ W.T + BIAS)
    assert same_bits(model.w["head.weight"], W)


def test_the_pull_of_the_mean_feature_is_that_of_the_example() -> None:
    """z̄ = (0.5, 0.5), ḡ = (0.2, 0.1): ½ (0.09 + 0.16)/2 = 0.0625, and 50 of it beside the cross-entropy."""
    k = bare_context(round=1, server=CONSENSUS)
    assert float(mean_gap(Z.mean(0), CONSENSUS)) == pytest.approx(0.0625)
    whole = TranslatedFeatures().loss(worked(), k) + DomainBias(50.0).loss(worked(), k)
    assert float(whole) == pytest.approx(6.8732879, abs=1e-6)


def test_in_the_first_round_there_is_neither_a_translation_nor_a_pull() -> None:
    """It is FedAvg's round bit for bit, and v stays 0."""
    one, two = (Tiny(m, net=network(True), local=PLAIN) for m in (feddbe(), fedavg()))
    one.step(EVERYBODY)
    two.step(EVERYBODY)
    assert same_bits([one.server.w, one.server.b], [two.server.w, two.server.b])
    for kept in one.client_states.values():
        assert not any(bool(t.any()) for t in leaves(kept))


def test_a_translation_that_stays_0_is_fedavg() -> None:
    """a + W·0 has the logits' bits, so only what moves v makes a difference: frozen at 0 it makes none."""

    class FrozenAtZero(DomainBias):
        gates = ("v",)  # the default rule of gates leaves them as they are

    frozen = replace(feddbe(kappa=0.0), personal=FrozenAtZero(0.0))
    one, two = Tiny(frozen).run(3), Tiny(fedavg()).run(3)
    assert same_bits(one.server.w, two.server.w)


def test_the_common_mean_is_that_of_the_participants_features_and_stays() -> None:
    """Σ z / Σ n under the models that they have trained, in evaluation mode; it is sent up once."""
    tiny = Tiny(feddbe(), net=network(True))
    done = tiny.step([0, 1, 3])
    features = [tiny.net.apply(done[c].trained, tiny.data[c].x)[1] for c in (0, 1, 3)]
    first = of_kind(tiny.server.slots["personal"], ConsensusMean)
    torch.testing.assert_close(first.mean, torch.cat(features).mean(0), rtol=1e-5, atol=1e-6)
    assert all(sum(one.upload.slots["personal"].numbers().values()) == WIDTH + 1 for one in done.values())
    later = tiny.step(EVERYBODY)
    assert not any(one.upload.slots for one in later.values())
    assert same_bits(tiny.server.slots["personal"], first)


def running(batches: list[Tensor], mu: float) -> tuple[Tensor, list[float]]:
    """m after the batches, and the pull at each, by the rule of the gate."""
    rule, m, values = RunningDomainBias(1.0, True, mu), torch.zeros(3), []
    for z in batches:
        live = m.clone().requires_grad_()
        f = Forward(z, Y, z, z, Params({}), Params({"v": V, "m": live}))
        value = rule.loss(f, bare_context(server=CONSENSUS))
        (slope,) = torch.autograd.grad(value, [live])
        m = rule.update_gates(Params({"m": m}), Params({"m": 0.3 * slope}), 0.1, torch.tensor(0))["m"]
        values.append(float(value.detach()))
    return m[:-1], values


def test_the_running_mean_moves_by_its_share_whatever_gradients_are_clipped_to() -> None:
    """μ = 0.1 from 0: 0.1 z̄₁, then 0.09 z̄₁ + 0.1 z̄₂. The gate's gradient comes clipped to 0.3 of it."""
    one, two = Z.mean(0), torch.tensor([2.0, -1.0])
    m, values = running([Z, two.expand(2, 2)], 0.1)
    torch.testing.assert_close(m, 0.09 * one + 0.1 * two)
    for value, mean in zip(values, (0.1 * one, 0.09 * one + 0.1 * two), strict=True):
        assert value == pytest.approx(float(mean_gap(mean, CONSENSUS)))


def test_only_the_batch_s_share_of_the_running_mean_has_a_gradient() -> None:
    """∂/∂z_i = κ μ (m − ḡ)/(D B)."""
    z = Z.clone().requires_grad_()
    m = torch.tensor([0.4, -0.2, 0.0])
    f = Forward(z, Y, z, z, Params({}), Params({"v": V, "m": m.clone().requires_grad_()}))
    value = RunningDomainBias(2.0, True, 0.5).loss(f, bare_context(server=CONSENSUS))
    (slope,) = torch.autograd.grad(value, [z])
    gap = 0.5 * m[:-1] + 0.5 * Z.mean(0) - CONSENSUS.mean
    torch.testing.assert_close(slope, (2.0 * 0.5 * gap / 4).expand(2, 2))


def test_a_network_without_a_bias_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(UsageError, match="bias of the output layer, which this network does not have"):
        Tiny(feddbe(), net=network(bias=False))
    Tiny(feddbe(translate=False), net=network(bias=False)).run(2, EVERYBODY)


def test_the_default_pull_is_no_smaller_than_a_hundredth_of_the_cross_entropy_s_gradient() -> None:
    tiny = Tiny(feddbe()).run(2, EVERYBODY)
    k = tiny.context(0, "personal")
    live = list(tiny.net.leaves("body").values())
    tiny.net.load(State(tiny.server.w, tiny.server.b))
    f = tiny.net.forward(tiny.data[0].x, tiny.data[0].y)
    pull = DomainBias(50.0).loss(f, k)
    assert pull is not None
    own = []
    for value in (pull, k.ce(f)):
        grads = torch.autograd.grad(value, live, retain_graph=True)
        own.append(float(torch.cat([g.flatten() for g in grads]).norm()))
    assert own[0] > 0.01 * own[1]


# pFedFDA: Gaussian features, their discriminant, and how local and global ones are mixed.

RIDGE = 1.0  # the default
ALL = torch.ones(3, dtype=torch.bool)
MEAN = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0]]).double()
COVARIANCE = torch.tensor([[1.0, 0.5], [0.5, 2.0]]).double()
LOG_PRIOR = torch.tensor([0.5, 0.3, 0.2]).double().log()
EXAMPLE = Fit(MEAN, COVARIANCE, ALL)


def test_without_shrinkage_the_softmax_is_the_exact_posterior() -> None:
    """(1): at (1, 1), both by the discriminant and by Bayes' rule with the three densities."""
    head, x = discriminant(EXAMPLE, LOG_PRIOR, epsilon=0.0), torch.tensor([1.0, 1.0]).double()
    found = (head.weight @ x + head.bias).softmax(0)
    wanted = torch.tensor([0.7825923, 0.0845633, 0.1328444]).double()
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-7)
    densities = [torch.distributions.MultivariateNormal(m, COVARIANCE).log_prob(x) for m in MEAN]
    torch.testing.assert_close(found, (torch.stack(densities) + LOG_PRIOR).softmax(0))


def test_the_output_layer_of_the_worked_example() -> None:
    """(2): ε = 1e-4."""
    head = discriminant(EXAMPLE, LOG_PRIOR)
    weight = [[1.1427633, -0.2856694], [-1.1427633, 0.2856694], [-0.5713388, 1.142849]]
    bias = [-1.2645288, -1.7753544, -2.7522869]
    torch.testing.assert_close(head.weight, torch.tensor(weight).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(head.bias, torch.tensor(bias).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("ridge", [1e-4, 1.0])
def test_a_covariance_has_the_ridge_on_its_diagonal_and_nowhere_else(ridge: float) -> None:
    """(4): the released code makes [[2.0001, .5001], [.5001, 3.0001]] of [[1, .5], [.5, 2]]."""
    root = torch.linalg.cholesky(COVARIANCE)
    z = torch.cat([root.T, -root.T]) * 1.5**0.5  # four points of one class, Σ z zᵀ/3 is the covariance
    found = fitted(z, torch.zeros(4, dtype=torch.int64), 3, ridge)
    torch.testing.assert_close(found.covariance, COVARIANCE + ridge * torch.eye(2).double())
    assert float(found.covariance[0, 1]) == pytest.approx(0.5, abs=1e-12)
    assert found.known.tolist() == [True, False, False]


def test_the_covariance_is_taken_around_each_class_s_own_mean() -> None:
    z, y = torch.tensor([[0.0], [2.0], [10.0], [14.0]]).double(), torch.tensor([0, 0, 1, 1])
    found = fitted(z, y, 3, RIDGE)
    assert found.mean[:2].flatten().tolist() == [1.0, 12.0]
    assert float(found.covariance) == pytest.approx((1 + 1 + 4 + 4) / 3 + RIDGE)


def test_a_class_that_one_side_does_not_know_has_the_other_side_s_mean() -> None:
    known = torch.tensor
    local = Fit(
        torch.tensor([[2.0], [4.0], [0.0]]).double(), torch.eye(1).double(), known([True, True, False])
    )
    other = Fit(
        torch.tensor([[6.0], [0.0], [8.0]]).double(), 5 * torch.eye(1).double(), known([True, False, True])
    )
    mixed = interpolated(local, other, 0.25, 0.5)
    assert mixed.mean.flatten().tolist() == [5.0, 4.0, 8.0]
    assert float(mixed.covariance) == 3.0
    assert mixed.known.all()


def test_a_class_that_nobody_knows_counts_as_the_mean_of_the_others() -> None:
    fit = Fit(MEAN, COVARIANCE, torch.tensor([True, False, True]))
    whole = Fit(torch.stack([MEAN[0], (MEAN[0] + MEAN[2]) / 2, MEAN[2]]), COVARIANCE, ALL)
    torch.testing.assert_close(discriminant(fit, LOG_PRIOR).weight, discriminant(whole, LOG_PRIOR).weight)


def test_the_prior_is_smoothed() -> None:
    """(8, 2, 0) of 10: (.8001, .2001, .0001)/1.0003."""
    found = log_prior(torch.tensor([8, 2, 0])).exp()
    torch.testing.assert_close(found, torch.tensor([0.8001, 0.2001, 0.0001]).double() / 1.0003)


def test_a_triangle_is_the_whole_matrix() -> None:
    assert packed(COVARIANCE).tolist() == [1.0, 0.5, 2.0]
    assert torch.equal(unpacked(packed(COVARIANCE), 2), COVARIANCE)


def samples(shift: float, count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes at (±1 + shift, 0) with little noise."""
    y = torch.arange(count) % 2
    noise = 0.3 * torch.randn(count, 2, generator=torch.Generator().manual_seed(0)).double()
    return torch.stack([1.0 - 2.0 * y + shift, torch.zeros(count)], 1).double() + noise, y


@pytest.mark.parametrize("separate", [True, False])
def test_cross_validation_takes_the_statistics_that_fit(separate: bool) -> None:
    """Global classes that are exchanged are not used; global ones like the client's own, of many more
    samples, are.
    """
    z, y = samples(0.0)
    prior = log_prior(torch.bincount(y, minlength=2))
    swapped = fitted(z, 1 - y, 2, RIDGE)
    assert cross_validated(z, y, swapped, prior, separate=separate, ridge=RIDGE)[0] == 1.0
    few = torch.arange(4)
    many = fitted(*samples(0.0, 4000), 2, RIDGE)
    assert cross_validated(z[few], y[few], many, prior, separate=separate, ridge=RIDGE)[0] < 1.0


def test_without_two_samples_of_a_class_the_global_statistics_are_used() -> None:
    z, y = samples(0.0, 2)
    assert cross_validated(
        z, y, fitted(*samples(3.0), 2, RIDGE), log_prior(torch.tensor([1, 1])), separate=True, ridge=RIDGE
    ) == (0.0, 0.0)


def sums(tiny: Tiny) -> Gaussians:
    return of_kind(tiny.server.slots["personal"], Gaussians)


@pytest.mark.parametrize("norm", [False, True])
def test_with_global_statistics_alone_the_uploads_average_to_the_old_ones(norm: bool) -> None:
    """(3): once every class has a mean, β = 0 sends n times the download."""
    tiny = Tiny(pfedfda("global"), net=network(norm)).run(1, [0, 1, 2, 3])
    before = sums(tiny)
    tiny.step([0, 2])
    torch.testing.assert_close(sums(tiny).mean, before.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sums(tiny).upper, before.upper, rtol=1e-6, atol=1e-6)


def test_global_statistics_are_the_sample_weighted_mean_of_the_clients_that_know_a_class() -> None:
    """First round: client 2 (6 samples) holds class 0 alone, client 1 (10 samples) classes 1 and 2."""
    tiny = Tiny(pfedfda())
    done = tiny.step([1, 2])
    z = [tiny.net.apply(done[c].trained, tiny.data[c].x)[1].double() for c in (1, 2)]
    fits = [fitted(one, tiny.data[c].y, CLASSES, RIDGE) for one, c in zip(z, (1, 2), strict=True)]
    wanted = torch.stack([fits[1].mean[0], fits[0].mean[1], fits[0].mean[2]])
    torch.testing.assert_close(sums(tiny).mean.double(), wanted, rtol=1e-5, atol=1e-6)
    covariance = (10 * fits[0].covariance + 6 * fits[1].covariance) / 16
    torch.testing.assert_close(unpacked(sums(tiny).upper, WIDTH).double(), covariance, rtol=1e-5, atol=1e-6)
    assert sums(tiny).known.all()


def test_the_server_s_output_layer_is_the_discriminant_with_equal_priors_and_training_leaves_it() -> None:
    tiny = Tiny(pfedfda()).run(1, [0, 1, 2, 3])
    equal = torch.full((CLASSES,), 1.0 / CLASSES).double().log()
    head = discriminant(sums(tiny).fit(), equal)
    torch.testing.assert_close(tiny.server.w["head.weight"].double(), head.weight, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tiny.server.w["head.bias"].double(), head.bias, rtol=1e-5, atol=1e-5)
    done = tiny.visit(1)
    for n in done.start.w.names:
        assert torch.equal(done.trained.w[n], done.start.w[n]) == n.startswith("head."), n


def test_a_client_is_scored_with_its_own_discriminant_on_its_trained_body() -> None:
    tiny = Tiny(pfedfda("local")).run(2, [0, 1, 2, 3])
    done, data = tiny.visit(1), tiny.data[1]
    own = done.personal_state(tiny.method)
    z = tiny.net.apply(done.trained, data.x)[1].double()
    shared = sums(tiny).fit()
    head = discriminant(
        interpolated(fitted(z, data.y, CLASSES, RIDGE), shared, 1.0, 1.0), log_prior(data.class_counts)
    )
    torch.testing.assert_close(own.w["head.weight"].double(), head.weight, rtol=1e-5, atol=1e-5)
    assert torch.equal(own.w["body.fc.weight"], done.trained.w["body.fc.weight"])


def test_the_first_round_trains_under_the_network_s_own_output_layer() -> None:
    tiny = Tiny(pfedfda())
    assert same_bits(tiny.server.w, tiny.net.initial.w)
    assert not sums(tiny).known.any()


def test_without_a_message_the_server_keeps_the_mean() -> None:
    mean = Params({"head.weight": torch.ones(1, 1), "head.bias": torch.ones(1)})
    k = server_context(received={"personal": Received(0)})
    assert GlobalDiscriminant().step(None, mean, mean, k)[1] is mean


def test_a_message_of_no_client_has_no_means() -> None:
    nothing = GaussianSums(
        torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), torch.zeros(3), torch.tensor(0)
    )
    assert not nothing.averaged().known.any()


def test_an_output_layer_without_bias_is_refused_before_training() -> None:
    with pytest.raises(UsageError, match="writes a bias into the output layer"):
        Tiny(pfedfda(), net=network(bias=False))


def test_features_that_do_not_vary_give_a_finite_output_layer() -> None:
    """A client with one sample in all: its covariance is the ridge."""
    tiny = Tiny(pfedfda(), local=replace(PLAIN, lr=0.0))
    fit = fitted(torch.ones(1, WIDTH).double(), torch.tensor([0]), CLASSES, RIDGE)
    head = discriminant(fit, log_prior(tiny.data[0].class_counts))
    assert bool(head.weight.isfinite().all())
    assert bool(head.bias.isfinite().all())
