"""The attacks of docs/papers/mpfedcon.md: inferred labels and the likeness of pictures (§5.1), what an
attacker sees (§5), and the reconstruction (§5.3) of a small picture from which L-BFGS converges in a few
iterations.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import cache

import pytest
import torch
from raffed.reproductions.studies.leakage import FIGURE_10, Setting, attack, victim
from torch import Tensor

from raffed import Data, Model, RunConfig
from raffed.attacks.protocol import (
    AttackOutcome,
    Attempt,
    Effort,
    Observed,
    by_bias,
    by_inner_product,
    by_sign,
    dummies,
    feature_distance,
    gradient_distance,
    inferred,
    leakage,
    mse,
    observed,
    psnr,
    reconstruct,
    ssim,
    summary,
    told,
)
from raffed.core.params import Params
from raffed.core.training.network import Network
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.methods.common import ClassSums
from raffed.own.user_code import UserCodeError
from tests.tiny import same_bits

SAMPLES, CLASSES, WIDTH = 200, 10, 30


def gradients(activation: Callable[[Tensor], Tensor]) -> list[tuple[Tensor, Tensor, int]]:
    """(∂W, ∂b, y) of 200 single samples under random last layers, by autograd."""
    g, found = torch.Generator().manual_seed(3), []
    for i in range(SAMPLES):
        w = (torch.rand(CLASSES, WIDTH, generator=g) - 0.5).requires_grad_()
        b = (torch.rand(CLASSES, generator=g) - 0.5).requires_grad_()
        a, y = activation(torch.randn(1, WIDTH, generator=g)), i % CLASSES
        loss = torch.nn.functional.cross_entropy(a @ w.T + b, torch.tensor([y]))
        found.append((*torch.autograd.grad(loss, [w, b]), y))
    return found


@pytest.mark.parametrize(
    ("activation", "least", "most"),
    [(torch.sigmoid, 1.0, 1.0), (torch.tanh, 0.3, 0.7)],
    ids=["sigmoid", "tanh"],
)
def test_two_rules_are_always_right_and_the_sign_rule_where_what_lies_below_is_positive(
    activation: Callable[[Tensor], Tensor], least: float, most: float
) -> None:
    """10: below a tanh about a half of the sums Σ a are negative."""
    right = 0
    for weight, bias, y in gradients(activation):
        assert by_bias(bias) == by_inner_product(weight) == y
        right += by_sign(weight) == y
    assert least * SAMPLES <= right <= most * SAMPLES


def test_a_rule_is_asked_only_where_its_part_of_the_gradient_was_seen() -> None:
    g = Params({"body.a": torch.ones(2), "head.weight": torch.tensor([[1.0], [-2.0], [1.0]])})
    assert inferred(g) == {"sign": 1, "inner product": 1}
    assert inferred(Params({"body.a": torch.ones(2)})) == {}


@pytest.mark.parametrize(("count", "wanted"), [([0, 1, 0], 1), ([0, 1, 2], None), ([0, 0, 0], None)])
def test_counts_beside_the_weights_tell_the_label_of_one_image(count: list[int], wanted: int | None) -> None:
    assert told({"term": ClassSums(torch.zeros(3, 4), torch.tensor(count))}) == wanted
    assert told({}) is None


# MSE, PSNR, SSIM against their definitions

X = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_an_error_of_a_tenth_everywhere_is_0_01_and_20_decibels() -> None:
    assert mse(X + 0.1, X) == pytest.approx(0.01, rel=1e-4)
    assert psnr(X + 0.1, X) == pytest.approx(20.0, abs=1e-3)
    assert psnr(X, X) == math.inf


def test_of_two_flat_pictures_only_the_luminance_counts() -> None:
    """Without variance: (2 · 0.5 · 0.25 + c₁) / (0.25 + 0.0625 + c₁) with c₁ = 1e-4."""
    flat = torch.ones(1, 12, 12)
    assert ssim(0.5 * flat, 0.25 * flat) == pytest.approx(0.2501 / 0.3126, rel=1e-9)


def test_a_picture_turned_into_its_negative_about_the_mean_has_a_negative_likeness() -> None:
    """At one position (side 11): structure (c₂ − 2 v)/(2 v + c₂) with v the window's variance, luminance
    1 at equal means.
    """
    x = X[:1, :11, :11].double()
    at = torch.arange(11).double() - 5
    bell = torch.exp(-(at**2) / 4.5)
    window = torch.outer(bell, bell) / bell.sum() ** 2
    mean = (window * x[0]).sum()
    v = float((window * (x[0] - mean) ** 2).sum())
    assert ssim((2 * mean - x).float(), x.float()) == pytest.approx((9e-4 - 2 * v) / (9e-4 + 2 * v), abs=1e-5)


SHAPE = (3, 12, 12)
IMAGE = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0))
ENCODER = {f"body.encoder.conv{i}.{part}" for i in (1, 2, 3) for part in ("weight", "bias")}
HEAD = {"head.weight", "head.bias"}
ONE_STEP = {
    "fedavg": {},
    "fedper": {},
    "fedrep": {"body_epochs": 1.0, "head_epochs": 0.0},
    "mpfedcon": {"head_epochs": 0.0},
}


def seen(method: str, layers: int = 1, lr: float = 0.1, **args: float) -> tuple[Observed, Network]:
    net = Network(victim(SHAPE, 10, 0, layers))
    return observed(build_method(method, {**ONE_STEP.get(method, {}), **args}), net, IMAGE, 4, lr=lr), net


def true_gradient(layers: int = 1) -> dict[str, torch.Tensor]:
    net = victim(SHAPE, 10, 0, layers)
    loss = torch.nn.functional.cross_entropy(net(IMAGE[None])[0], torch.tensor([4]))
    return dict(
        zip(dict(net.named_parameters()), torch.autograd.grad(loss, list(net.parameters())), strict=True)
    )


@pytest.mark.parametrize("method", ONE_STEP)
@pytest.mark.parametrize("layers", [1, 3])
def test_download_minus_upload_is_the_gradient_of_what_is_sent_alone(method: str, layers: int) -> None:
    found, truth = seen(method, layers)[0].gradient(), true_gradient(layers)
    chain = {name for name in truth if name.startswith("body.projection.")}
    hidden = {"fedavg": set(), "mpfedcon": HEAD | chain}.get(method, HEAD)
    assert set(found.names) == set(truth) - hidden
    assert len(found.names) >= len(ENCODER)
    for name in found.names:
        torch.testing.assert_close(found[name], truth[name], rtol=1e-3, atol=2e-6)


def test_nothing_of_the_client_is_in_what_was_observed() -> None:
    """What was not sent stands nowhere in the two records, not even behind a view of another tensor."""
    found, net = seen("mpfedcon")
    raw = pickle.dumps((found.broadcast, found.upload))
    assert found.broadcast.w["body.encoder.conv1.weight"].numpy().tobytes() in raw, "it is looked for rightly"
    kept = [net.initial.w[name] for name in net.initial.w.names if name not in ENCODER]
    for secret in (IMAGE, *kept, *(net.leaves("all")[name].detach() for name in HEAD)):
        assert secret.numpy().tobytes() not in raw
    assert set(found.upload.w.names) == set(found.broadcast.w.names) == ENCODER
    assert len(raw) < 3 * 4 * found.upload.w.layout.size


def test_mpfedcon_sends_the_representation_of_a_single_image_under_its_label() -> None:
    """A leak beside the gradient: with one layer of head the centre is the uploaded encoder's output."""
    found, net = seen("mpfedcon")
    sums = next(iter(found.upload.slots.values()))
    assert isinstance(sums, ClassSums)
    assert sums.count.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    trained = net.initial.replace(w=net.initial.w.joined(found.upload.w, net.initial.w.names))
    torch.testing.assert_close(sums.total[4], net.apply(trained, IMAGE[None])[1][0], rtol=1e-5, atol=1e-6)


def test_a_method_whose_difference_is_no_gradient_is_refused() -> None:
    with pytest.raises(UsageError, match="needs exactly one step"):
        seen("fedrep", body_epochs=2.0)
    with pytest.raises(UsageError, match="needs exactly one step"):
        seen("pfedme")


@pytest.mark.parametrize("method", ["solo", "fedproto"])
def test_clients_that_upload_no_weights_cannot_be_attacked(method: str) -> None:
    config = RunConfig(method=method, data=Data("digits"), model=Model("mlp", {"hidden": [8]}))
    with pytest.raises(UsageError, match=": its clients upload no weights"):
        leakage(config, images=1, iterations=1, restarts=1)


def test_an_error_of_one_s_own_network_names_the_network() -> None:
    config = RunConfig(data=Data("digits"), model=Model("tests.models.own_nets:flat_norm"))
    with pytest.raises(UserCodeError, match="own_nets:flat_norm: ValueError: Expected more than 1 value"):
        leakage(config, images=1, iterations=1, restarts=1)


def test_noise_of_size_0_is_fedavgs_upload_bit_for_bit_and_other_noise_is_in_the_gradient() -> None:
    """11: the noise defence with v = 0 reproduces DLG bitwise, from the same starts."""
    assert same_bits(seen("noisygrad", size=0.0)[0].upload, seen("fedavg")[0].upload)
    gap = seen("noisygrad", size=0.01)[0].gradient() - seen("fedavg")[0].gradient()
    flat = torch.cat([t.flatten() for t in gap.tensors.values()]).double()
    assert float(flat.var()) == pytest.approx(0.01, rel=0.1)


SEED, LABEL = 3, 3
BY_NAME = {one.name: one for one in FIGURE_10}
QUICK = Effort(iterations=30, restarts=1)


def picture(side: int, channels: int) -> Tensor:
    at = torch.linspace(0, 1, side)
    return torch.stack([0.5 + 0.4 * torch.sin(3 * at[:, None] + 2 * at[None] + k) for k in range(channels)])


SMALL = picture(8, 1)


@cache
def done(name: str) -> AttackOutcome:
    return attack(BY_NAME[name], SMALL, LABEL, 10, 0, SEED, QUICK)


@pytest.mark.parametrize("name", ["DLG", "iDLG", "known_head"])
def test_who_knows_the_weights_of_the_head_gets_the_image_also_without_its_gradient(name: str) -> None:
    """11. Masking the gradient of the head alone protects nothing."""
    one = done(name)
    assert one.attempt.trace[-1] < 0.001
    assert one.attempt.distance < QUICK.done
    assert one.said["attack"] == LABEL
    assert one.attempt.at(300) == one.attempt.trace[-1]


def test_a_head_drawn_at_random_does_not_give_the_image() -> None:
    """11."""
    one = done("MpFedcon 1/1")
    assert min(one.attempt.trace) > 0.5
    assert set(one.said) == {"message", "attack"}
    assert one.said["message"] == LABEL  # the class centres beside the gradient tell it all the same


def test_no_noise_is_dlg_bit_for_bit() -> None:
    """11."""
    none = Setting("none", "noisygrad", {"size": 0.0})
    one, plain = attack(none, SMALL, LABEL, 10, 0, SEED, QUICK), done("DLG")
    assert one.attempt.trace == plain.attempt.trace
    assert torch.equal(one.attempt.image, plain.attempt.image)


def test_idlg_infers_the_label_and_does_not_optimise_it() -> None:
    g = Params({n: torch.zeros_like(p) for n, p in victim((1, 8, 8), 10, SEED, 1).named_parameters()})
    net = victim((1, 8, 8), 10, SEED, 1)
    weights = Params({n: p.detach() for n, p in net.named_parameters()})
    x, u = (t.requires_grad_() for t in (SMALL[None].clone(), torch.zeros(10)))
    _, free = torch.autograd.grad(gradient_distance(net, weights, g)(x, u), [x, u])
    of_u = torch.autograd.grad(gradient_distance(net, weights, g, LABEL)(x, u), [x, u], allow_unused=True)[1]
    assert float(free.abs().max()) > 0
    assert of_u is None or float(of_u.abs().max()) == 0


def test_idlg_s_label_is_the_one_that_the_sign_rule_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """§5.3: also where it is wrong; the attacker does not know the true one, and DLG asks no rule."""
    monkeypatch.setattr(
        "raffed.attacks.protocol.inferred", lambda g: {"sign": 7, "bias": 6, "inner product": 5}
    )
    once = Effort(iterations=1, restarts=1)
    assert attack(BY_NAME["iDLG"], SMALL, LABEL, 10, 0, SEED, once).said["attack"] == 7
    told = attack(BY_NAME["DLG"], SMALL, LABEL, 10, 0, SEED, once)
    assert told.said["attack"] == told.attempt.label


def test_the_distance_is_the_squared_difference_of_the_gradients_and_0_at_the_truth() -> None:
    net = victim((1, 8, 8), 10, SEED, 2)
    loss = torch.nn.functional.cross_entropy(net(SMALL[None])[0], torch.tensor([LABEL]))
    names = dict(net.named_parameters())
    g = Params(dict(zip(names, torch.autograd.grad(loss, list(names.values())), strict=True)))
    weights, u = Params({n: p.detach() for n, p in names.items()}), torch.zeros(10)
    certain = 100.0 * (torch.arange(10) == LABEL)
    at_the_truth = gradient_distance(net, weights, g, LABEL)(SMALL[None], u)
    with_its_label = gradient_distance(net, weights, g)(SMALL[None], certain)
    doubled = gradient_distance(net, weights, g * 2.0, LABEL)(SMALL[None], u)
    assert float(at_the_truth.detach()) == pytest.approx(0.0, abs=1e-10)
    assert float(with_its_label.detach()) == pytest.approx(0.0, abs=1e-10)
    assert float(doubled.detach()) == pytest.approx(float(g.sq_norm()), rel=1e-4)


def test_a_representation_is_matched_by_its_squared_distance() -> None:
    net = victim((1, 8, 8), 10, SEED, 1)
    weights, z = Params({n: p.detach() for n, p in net.named_parameters()}), net.body(SMALL[None])[0].detach()
    distance = feature_distance(net.body, weights, z - 0.5)
    assert float(distance(SMALL[None], torch.zeros(10)).detach()) == pytest.approx(0.25 * len(z), rel=1e-4)


def scripted(ends: list[float]) -> Attempt:
    """`reconstruct` on a distance that keeps every start where it is: D = the start's own first number."""
    start = [(torch.full((1, 2, 2), end), torch.zeros(3)) for end in ends]
    frozen = lambda x, u: x.detach().mean() + 0 * x.sum()  # noqa: E731
    return reconstruct(
        frozen, start, Effort(iterations=2, restarts=len(ends)), lambda x: 9.0 - float(x.mean())
    )


def test_the_restart_with_the_smallest_distance_is_kept_and_not_that_with_the_smallest_error() -> None:
    """Errors are 9 − D: the record is of the restart that the attacker would choose."""
    kept = scripted([3.0, 1.0, 2.0])
    assert kept.distance == pytest.approx(1.0)
    assert kept.trace == (8.0, 8.0)


def test_a_restart_far_away_or_not_a_number_is_given_up_and_never_preferred() -> None:
    assert scripted([6.0, 3.0]).distance == pytest.approx(3.0)  # 6² > 30
    assert scripted([math.nan, 3.0]).distance == pytest.approx(3.0)
    gone = scripted([6.0])
    assert gone.diverged
    assert len(gone.trace) == 1


def test_every_attack_starts_from_the_same_numbers_and_every_restart_and_image_from_others() -> None:
    one, again, other = (dummies((1, 4, 4), 3, 2, 0, image) for image in (5, 5, 6))
    assert all(torch.equal(a, b) for x, y in zip(one, again, strict=True) for a, b in zip(x, y, strict=True))
    assert not torch.equal(one[0][0], one[1][0])
    assert not torch.equal(one[0][0], other[0][0])


def test_the_victims_convolutions_are_the_same_for_every_number_of_layers_above() -> None:
    states = [
        victim((1, 8, 8), 10, 0, layers).body.get_submodule("encoder").state_dict() for layers in (1, 2, 3)
    ]
    for name, t in states[0].items():
        assert torch.equal(t, states[1][name])
        assert torch.equal(t, states[2][name])
    assert [len(list(victim((1, 8, 8), 10, 0, n).parameters())) for n in (1, 2, 3)] == [8, 10, 12]


def outcome(errors: list[float], diverged: bool = False, said: int = 0) -> AttackOutcome:
    x = torch.zeros(1, 12, 12)
    attempt = Attempt(x + errors[-1] ** 0.5, 0, math.inf if diverged else 1.0, tuple(errors))
    return AttackOutcome(attempt, x, 0, {"attack": said})


def test_the_summary_has_medians_at_the_marks_and_shares_over_images() -> None:
    """Three images: final errors 0.01, 0.04, 5 (given up after 2 iterations): median 0.04, a third
    recognised, a third gone.
    """
    found = summary(
        [outcome([1.0, 0.5, 0.01]), outcome([2.0, 0.04, 0.04], said=1), outcome([3.0, 5.0], True)],
        marks=(1, 2, 300),
    )
    assert found["mse@1"] == 2.0
    assert found["mse@2"] == 0.5
    assert found["mse@300"] == found["mse"] == 0.04
    assert found["recognised"] == found["diverged"] == pytest.approx(1 / 3)
    assert found["label attack"] == pytest.approx(2 / 3)
    assert found["psnr"] == pytest.approx(-10 * math.log10(0.04), rel=1e-5)
    assert found["defended"] == 0.0
    assert summary([outcome([0.07])], (1,))["defended"] == 1.0
