"""FedAvg with noise on the gradient (docs/papers/mpfedcon.md §5.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch

from raffed.config.training import Local
from raffed.core import seeds
from raffed.methods.fedavg import fedavg
from raffed.methods.noisygrad import NoiseKind, noise, noisygrad
from tests.contract.test_cohort import agree_in_all, pair
from tests.tiny import PLAIN, Tiny, same_bits


def draw(kind: str, size: float, meaning: str, count: int = 200_000) -> torch.Tensor:
    return noise(count, kind, size, meaning, torch.Generator().manual_seed(1))


def test_no_noise_is_fedavg_bit_for_bit() -> None:
    assert same_bits(Tiny(noisygrad(size=0.0)).run(3).everything(), Tiny(fedavg()).run(3).everything())


@pytest.mark.parametrize("kind", get_args(NoiseKind))
def test_a_variance_is_the_variance_whatever_the_kind(kind: str) -> None:
    """200,000 draws: the standard error of the variance is below 0.5 % (Gaussian √(2/n), Laplace √(5/n))."""
    some = draw(kind, 0.01, "variance").double()
    assert float(some.mean()) == pytest.approx(0.0, abs=0.001)
    assert float(some.var()) == pytest.approx(0.01, rel=0.02)


def test_a_scale_is_sigma_of_a_gaussian_and_b_of_a_laplace_distribution() -> None:
    """Mean absolute values: σ √(2/π) = 0.7979 σ and b; the variance of Laplace is 2 b²."""
    gauss, laplace = draw("gaussian", 0.01, "scale").double(), draw("laplace", 0.01, "scale").double()
    assert float(gauss.abs().mean()) == pytest.approx(0.007979, rel=0.01)
    assert float(laplace.abs().mean()) == pytest.approx(0.01, rel=0.01)
    assert float(laplace.var()) == pytest.approx(2e-4, rel=0.03)
    assert bool(draw("laplace", 1.0, "scale").isfinite().all())


@pytest.mark.parametrize("kind", get_args(NoiseKind))
def test_one_step_is_fedavgs_step_minus_the_rate_times_the_noise(kind: str) -> None:
    """w' = w − η (g + ε), ε from the client's stream of the purpose "noise"."""
    local = Local(lr=0.5, momentum=0.0, weight_decay=0.0, batch_size=99, epochs=1)
    mine, plain = Tiny(noisygrad(kind, 0.04), local=local), Tiny(fedavg(), local=local)
    moved = plain.visit(1).trained.w - mine.visit(1).trained.w
    wanted = noise(mine.net.initial.w.numel(), kind, 0.04, "variance", seeds.generator(0, "noise", 0, 1))
    torch.testing.assert_close(
        torch.cat([t.flatten() for t in moved.tensors.values()]), 0.5 * wanted, rtol=1e-4, atol=1e-6
    )


def test_every_step_and_every_client_has_noise_of_its_own_and_stacked_clients_have_the_same() -> None:
    agree_in_all(*pair(Tiny(noisygrad(size=0.04)).run(2, [0, 1, 2, 3])))
    still = replace(PLAIN, lr=0.1, momentum=0.0, weight_decay=0.0, epochs=2)
    pushes = [Tiny(noisygrad(size=1e4), local=still).visit(c).trained.w.flat for c in (0, 1)]
    assert float(torch.corrcoef(torch.stack(pushes))[0, 1].abs()) < 0.5
