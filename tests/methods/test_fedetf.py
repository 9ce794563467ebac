"""FedETF (Li et al., ICCV 2023): unit features under a frozen simplex ETF, balanced softmax."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from raffed.core.losses import cross_entropy
from raffed.methods.common import BalancedSoftmax
from raffed.methods.fedetf import fedetf
from raffed.models.last_layers import UnitFeatures
from tests.tiny import Tiny, bare_context, network, same_bits

FRAME = math.sqrt(3 / 2) * (torch.eye(3) - 1 / 3)  # C = 3, U = I


def worked(missing: str) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, loss and dL/ds of z = (1, 2, 2), s = 10, n = (4, 0, 2), y = 2."""
    unit = UnitFeatures(10.0, learn=True)
    logits = unit(torch.tensor([[1.0, 2.0, 2.0]])) @ FRAME
    k = bare_context(class_counts=torch.tensor([4, 0, 2]))
    head = BalancedSoftmax(1.0, missing=missing)
    loss = cross_entropy(head.logits(logits, k), torch.tensor([2]))
    (slope,) = torch.autograd.grad(loss, list(unit.parameters()))
    return logits.detach()[0], loss.detach(), slope


def test_the_worked_example_has_the_sheet_s_logits_loss_and_slope_of_the_scale() -> None:
    logits, loss, slope = worked("one")
    torch.testing.assert_close(logits, torch.tensor([-2.7216553, 1.3608276, 1.3608276]), rtol=0, atol=1e-6)
    assert float(loss) == pytest.approx(0.4277034, abs=1e-6)
    assert float(slope) == pytest.approx(-0.0089785, abs=1e-6)


def test_masking_the_missing_class_gives_another_loss() -> None:
    assert float(worked("mask")[1]) == pytest.approx(0.0331747, abs=1e-6)


@pytest.mark.parametrize("factor", [7.0, 1e-3])
def test_a_scaled_feature_changes_no_logit(factor: float) -> None:
    z, unit = torch.tensor([[1.0, 2.0, 2.0], [0.5, -3.0, 0.1]]), UnitFeatures(10.0, learn=True)
    torch.testing.assert_close(unit(factor * z) @ FRAME, unit(z) @ FRAME, rtol=1e-6, atol=1e-6)


def test_the_frame_keeps_its_bits_and_the_scale_moves_and_is_averaged() -> None:
    tiny = Tiny(fedetf(), net=network(norm=True))
    start = tiny.server.w
    assert float(start["body.unit.scale"]) == 10.0
    tiny.run(1, [0, 1, 2, 3])
    assert same_bits(tiny.server.w["head.weight"], start["head.weight"])
    weights = tiny.method.mean.weights([tiny.data[c].n for c in range(4)])
    sent = [float(tiny.last[c].upload.w["body.unit.scale"]) for c in range(4)]
    assert len({*sent, 10.0}) == 5
    mean = sum(p * s for p, s in zip(weights, sent, strict=True))
    assert float(tiny.server.w["body.unit.scale"]) == pytest.approx(mean, rel=1e-6)


def test_a_scale_that_is_not_learned_is_no_parameter() -> None:
    assert "body.unit.scale" not in Tiny(fedetf(learn_scale=False)).server.w.names


@pytest.mark.parametrize("missing", ["one", "mask", "eps"])
def test_equally_many_samples_of_all_classes_make_the_loss_the_cross_entropy(missing: str) -> None:
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    y, k = torch.tensor([0, 1, 2, 0, 1]), bare_context(class_counts=torch.tensor([7, 7, 7]))
    loss = cross_entropy(BalancedSoftmax(1.0, missing=missing).logits(z, k), y)
    torch.testing.assert_close(loss, cross_entropy(z, y), rtol=1e-6, atol=1e-6)


def test_features_have_the_length_of_the_scale_and_may_be_negative() -> None:
    tiny = Tiny(fedetf()).run(2)
    scale = float(tiny.server.w["body.unit.scale"])
    _, z = tiny.net.apply(tiny.visit(3).start, tiny.data[3].x)
    torch.testing.assert_close(z.norm(dim=1), torch.full((11,), scale), rtol=1e-5, atol=1e-5)
    assert bool((z < 0).any())


def test_fine_tuning_moves_the_whole_network_and_not_the_server() -> None:
    tiny = Tiny(fedetf(every_round=True), net=network()).run(1)
    done = tiny.visit(1)
    own = done.personal_state(tiny.method).w
    assert not any(torch.equal(own[name], done.start.w[name]) for name in ("head.weight", "body.fc.weight"))
    none = Tiny(fedetf(epochs=0.0, every_round=True), net=network()).run(1)
    assert same_bits(none.everything(), tiny.everything())
