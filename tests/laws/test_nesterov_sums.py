"""What FedNova and FedDC divide by is what the steps add up to, also with Nesterov's momentum."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.core.losses import momentum_sum
from raffed.core.method import Method
from raffed.methods.feddc import ClientDrift, feddc
from raffed.methods.fednova import fednova
from tests.quadratics import quadratics, x_of
from tests.tiny import Tiny, of_kind


@pytest.mark.parametrize("pull", [0.0, 0.05])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 2, 7, 40])
def test_the_sum_is_what_torchs_nesterov_moves_under_a_constant_gradient(
    steps: int, momentum: float, pull: float
) -> None:
    """At the rate 0.1 the pull is ημ, so μ = pull/0.1."""
    p = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([p], lr=0.1, momentum=momentum, nesterov=momentum > 0)
    for _ in range(steps):
        p.grad = 2.0 + pull / 0.1 * p.detach()
        optimiser.step()
    wanted = float(-p.detach()) / 0.2
    assert momentum_sum(steps, momentum, pull, nesterov=True) == pytest.approx(wanted, rel=1e-12)


def unequal(method: Method) -> Tiny:
    """Clients of 1, 2 and 5 samples make 2, 4 and 10 steps of rate 1e-6, so that ∇f_k stays h_k (0 − b_k)."""
    tiny = quadratics(method, lr=1e-6, steps=2, momentum=0.9, sizes=(1, 2, 5))
    tiny.local = replace(tiny.local, batch_size=1, optimizer_args={"nesterov": True})
    tiny.arrange()
    return tiny


def test_a_client_of_fednova_sends_its_gradient_however_many_steps_it_makes() -> None:
    tiny = unequal(fednova())
    done = tiny.step([0, 1, 2])
    assert [done[c].steps for c in range(3)] == [2, 4, 10]
    sent = [x_of(done[c].upload.w) / 1e-6 for c in range(3)]
    assert sent == pytest.approx([-1.0, 6.0, -2.0], rel=1e-3)


def test_the_correction_of_feddc_is_the_client_s_gradient() -> None:
    tiny = unequal(feddc(scaled=False))
    tiny.step([0, 1, 2])
    found = []
    for client in range(3):
        kept = of_kind(tiny.client_states[client].slots["term-DriftControl"], ClientDrift)
        found.append(x_of(kept.c))
    assert found == pytest.approx([-1.0, 6.0, -2.0], rel=1e-3)
