"""FedLC: logits minus τ n^{−1/4} (Zhang et al. 2022)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raffed.core.losses import cross_entropy
from raffed.methods import build_method
from raffed.methods.fedlc import CalibratedLogits, OtherClasses, calibrated, fedlc
from tests.tiny import Tiny, forward
from tests.worked import CROSS_ENTROPY, ONE_MISSING, Y, Z, holder


def loss(
    z: Tensor,
    tau: float,
    denominator: str = "all",
    missing: str = "mask",
    counts: tuple[int, ...] = ONE_MISSING,
) -> Tensor:
    head = fedlc(tau, denominator, missing).head
    assert head is not None
    return head.loss(forward(z, Y), holder(counts))


def slope(tau: float, denominator: str = "all", missing: str = "mask") -> Tensor:
    z = Z.clone().requires_grad_()
    return torch.autograd.grad(loss(z, tau, denominator, missing), z)[0]


def test_the_margins_of_the_worked_example() -> None:
    """80, 15 and 5 samples: n^{−1/4} = 0.3343702, 0.5081328 and 0.6687403; the third class has none."""
    a = calibrated(torch.zeros(1, 4, dtype=torch.float64), torch.tensor(ONE_MISSING), 1.0)[0]
    assert (-a[[0, 1, 3]]).tolist() == pytest.approx([0.3343702, 0.5081328, 0.6687403], abs=1e-7)
    assert float(a[2]) < -1e29
    soft = calibrated(torch.zeros(1, 4), torch.tensor(ONE_MISSING), 0.5, "soft")[0]
    assert float(soft[2]) == pytest.approx(-50.0, rel=1e-5)


@pytest.mark.parametrize(
    ("tau", "denominator", "missing", "wanted"),
    [
        (1.0, "all", "mask", 0.4525126),
        (0.1, "all", "mask", 0.4874307),
        (0.1, "all", "soft", 0.4874387),
        (1.0, "others", "mask", -0.5941698),
        (0.1, "others", "mask", -0.5381574),
    ],
)
def test_the_loss_of_the_worked_example(tau: float, denominator: str, missing: str, wanted: float) -> None:
    assert float(loss(Z, tau, denominator, missing)) == pytest.approx(wanted, abs=1e-7)


def test_with_the_mask_a_small_strength_tends_to_the_cross_entropy_over_the_classes_held() -> None:
    """And not to FedAvg's: 0.4918941 in place of 0.6458148."""
    held = float(cross_entropy(Z[:, [0, 1, 3]], Y))
    assert held == pytest.approx(0.4918941, abs=1e-7)
    assert float(loss(Z, 1e-6)) == pytest.approx(held, abs=1e-6)


def test_the_gradient_is_0_at_a_missing_class_and_sums_to_0_over_classes() -> None:
    """τ = 1, all classes in the denominator, first sample."""
    g = slope(1.0)
    assert g[0].tolist() == pytest.approx([-0.2180097, 0.1437549, 0.0, 0.0742548], abs=1e-7)
    assert g[:, 2].tolist() == [0.0, 0.0]
    torch.testing.assert_close(g.sum(-1), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("missing", ["mask", "soft"])
def test_without_the_true_class_in_the_denominator_its_gradient_is_minus_one_over_the_batch(
    missing: str,
) -> None:
    g = slope(1.0, "others", missing)
    assert [float(g[i, Y[i]]) for i in range(2)] == [-0.5, -0.5]
    torch.testing.assert_close(g.sum(-1), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("tau", [0.1, 0.5, 1.0, 10.0])
def test_equal_counts_give_the_cross_entropy_for_every_strength(tau: float) -> None:
    assert float(loss(Z, tau, counts=(9, 9, 9, 9))) == pytest.approx(CROSS_ENTROPY, abs=1e-7)


def test_the_loss_without_the_true_class_has_no_lower_bound() -> None:
    """Twice as far is twice as low, where the usual cross-entropy stays above 0."""
    far = torch.tensor([[100.0, 0.0, 0.0, 0.0], [0.0, 100.0, 0.0, 0.0]], dtype=torch.float64)
    near, further = (float(loss(z, 0.1, "others")) for z in (far, 2 * far))
    assert further < near - 99 < -198
    assert float(loss(2 * far, 0.1)) >= 0


@pytest.mark.parametrize("denominator", ["all", "others"])
def test_without_strength_there_is_no_head(denominator: str) -> None:
    """0 · ∞ is not a number, and a mask alone is not FedAvg."""
    assert fedlc(0.0, denominator).head is None


def test_the_switches_choose_the_ingredient() -> None:
    assert fedlc().head == CalibratedLogits(0.5, "mask")
    assert fedlc(1.0, "others", "soft").head == OtherClasses(1.0, "soft")


@pytest.mark.parametrize("denominator", ["all", "others"])
@pytest.mark.parametrize("missing", ["mask", "soft"])
def test_every_variant_trains_and_stays_finite(denominator: str, missing: str) -> None:
    """Client 2 of the federation holds one class. So with the mask there is no other for its denominator."""
    method = build_method("fedlc", {"denominator": denominator, "missing": missing})
    tiny = Tiny(method).run(3, [0, 1, 2, 3])
    assert bool(torch.isfinite(tiny.server.w.flat).all())
    assert all(abs(done.loss) < 200 for done in tiny.last.values())
