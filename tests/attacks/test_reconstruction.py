"""The attacks themselves (docs/papers/mpfedcon.md §5.3, §6 item 11), on a small picture from which L-BFGS
converges in a few iterations.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from raffed.reproductions.studies.leakage import FIGURE_10, Setting, attack, victim
from torch import Tensor

from raffed.attacks.protocol import (
    AttackOutcome,
    Attempt,
    Effort,
    dummies,
    feature_distance,
    gradient_distance,
    reconstruct,
    summary,
)
from raffed.core.params import Params

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
