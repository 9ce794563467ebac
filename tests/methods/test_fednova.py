"""FedNova, and sums of steps with Nesterov's momentum (docs/papers/baselines.md, FedNova)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.losses import momentum_sum
from raffed.core.messages import ServerState, Upload
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.training.task import Solver
from raffed.methods.fedavg import fedavg
from raffed.methods.feddc import ClientDrift, feddc
from raffed.methods.fednova import NormalisedStep, NormalisedUpdate, counted_sum, fednova
from raffed.methods.fedopt import fedavgm
from raffed.methods.fedprox import fedprox
from tests.quadratics import quadratics, x_of
from tests.tiny import PLAIN, Tiny, bare_context, client_data, network, of_kind, server_context, sgd

# In batches of 4 these clients make two steps each
TWO_STEPS = [
    client_data(n, own, n) for n, own in zip((5, 6, 7, 8), ((0, 1), (1, 2), (0,), (0, 1, 2)), strict=True)
]


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 2, 7, 40])
def test_the_norm_is_what_torchs_sgd_moves_under_a_constant_gradient(steps: int, momentum: float) -> None:
    """(1): θ₀ − θ_τ = η ‖a‖₁ g, and the running form c ← ρc + 1, a ← a + c."""
    p = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser, c, a = torch.optim.SGD([p], lr=0.1, momentum=momentum), 0.0, 0.0
    for _ in range(steps):
        p.grad = torch.tensor([2.0], dtype=torch.float64)
        optimiser.step()
        c = momentum * c + 1
        a += c
    assert momentum_sum(steps, momentum) == pytest.approx(float(-p.detach()) / 0.2, rel=1e-12)
    assert momentum_sum(steps, momentum) == pytest.approx(a, rel=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("steps", [1, 2, 40])
def test_the_norm_counts_a_proximal_pull(steps: int, momentum: float) -> None:
    """Under a constant gradient and the pull μ(w − w⁰), by torch's SGD; without momentum Σ (1 − ημ)^j, as
    in the paper.
    """
    p = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([p], lr=0.1, momentum=momentum)
    for _ in range(steps):
        p.grad = 2.0 + 0.5 * p.detach()
        optimiser.step()
    assert momentum_sum(steps, momentum, 0.05) == pytest.approx(float(-p.detach()) / 0.2, rel=1e-12)
    if not momentum:
        assert momentum_sum(steps, 0.0, 0.05) == pytest.approx(sum(0.95**j for j in range(steps)), rel=1e-12)


def test_the_authors_count_is_the_norm_unless_momentum_and_pull_meet() -> None:
    for steps in (1, 2, 40):
        assert counted_sum(steps, 0.9, 0.0) == pytest.approx(momentum_sum(steps, 0.9), rel=1e-12)
        assert counted_sum(steps, 0.0, 0.1) == pytest.approx(momentum_sum(steps, 0.0, 0.1), rel=1e-12)
        assert counted_sum(steps, 0.0, 0.0) == steps
    assert counted_sum(2, 0.9, 0.1) == pytest.approx(4.42)  # 0.9 · 1 + 1 = 1.9; 0.9 · (1.9 + 1.9) + 1
    assert momentum_sum(2, 0.9, 0.1) == pytest.approx(2.8)  # v = 1; v = 0.9 + 1 − 0.1


def test_the_norms_of_39_and_390_steps_at_momentum_0_9() -> None:
    assert momentum_sum(39, 0.9) == pytest.approx(301.478, abs=5e-4)
    assert momentum_sum(390, 0.9) == pytest.approx(3810.0, abs=0.05)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_equal_steps_everywhere_it_is_fedavg_to_float_accuracy(momentum: float) -> None:
    """(2): sizes 5, 6, 7, 8 at batches of 4 are two steps each, but other weights p_k."""
    local = replace(PLAIN, momentum=momentum)
    mine, plain = (Tiny(m, data=TWO_STEPS, local=local) for m in (fednova(), fedavg()))
    for _ in range(3):
        mine.step()
        plain.step()
        torch.testing.assert_close(mine.server.w.flat, plain.server.w.flat, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (fednova(gmf=0.7), fedavgm(beta=0.7, weighting="samples")),
        (fednova(mu=0.5), fedprox(0.5)),
        (fednova(preset="authors"), fedavgm(beta=0.0, weighting="clients")),
        (fednova(gmf=0.7, preset="authors"), fedavgm(beta=0.7, weighting="clients")),
    ],
)
def test_with_equal_steps_it_is_the_method_whose_part_it_takes(mine: Method, theirs: Method) -> None:
    """To float accuracy: server momentum is FedAvgM's, the pull is FedProx's, the authors' means are
    uniform.
    """
    local = replace(PLAIN, momentum=0.9)
    one, other = (Tiny(m, data=TWO_STEPS, local=local) for m in (mine, theirs))
    for _ in range(4):
        one.step()
        other.step()
        torch.testing.assert_close(one.server.w.flat, other.server.w.flat, rtol=1e-4, atol=1e-5)


def test_the_authors_with_a_pull_go_the_mean_number_of_steps_along_the_mean_of_normalised_updates() -> None:
    """w − τ̄ · mean_k Δ_k/a_k, a_k as they count it, clients of unequal steps."""
    data = [client_data(n, (0, 1, 2), n) for n in (4, 40, 4, 80)]
    tiny = Tiny(fednova(mu=0.5, preset="authors"), data=data, local=replace(PLAIN, momentum=0.9, epochs=2))
    start = tiny.server.w
    done = tiny.step([0, 1, 2, 3])
    norms = [counted_sum(done[c].steps, 0.9, PLAIN.lr * 0.5) for c in range(4)]
    moves = [(start - done[c].trained.w) / norms[c] for c in range(4)]
    steps = sum(done[c].steps for c in range(4)) / 4
    wanted = start - (moves[0] + moves[1] + moves[2] + moves[3]) * (steps / 4)
    torch.testing.assert_close(tiny.server.w.flat, wanted.flat, rtol=1e-4, atol=1e-5)
    assert len({done[c].steps for c in range(4)}) > 1


def moved(lr: float, momentum: float, nova: bool, start: float = 0.0) -> float:
    """(3): two clients ½(x ∓ 1)² of equal size, τ = (2, 20); where a round takes the server's x."""
    tiny = quadratics(fednova(), lr=lr, steps=1, momentum=momentum, sizes=(1, 1), h=(1.0, 1.0), b=(1.0, -1.0))
    update, quadratic, fold = NormalisedUpdate(), tiny.method.terms[-1], UploadAccumulator()
    w = tiny.net.initial.w + Params({"head.weight": torch.tensor([[start, 0.0]])})
    begun = State(w, Params({}))
    for client, tau in enumerate((2, 20)):
        end = sgd(
            tiny.net,
            begun,
            lambda f, _: quadratic.loss(f, bare_context()),
            tiny.data[client],
            [torch.tensor([0])] * tau,
            Solver(lr, momentum, 0.0),
        ).state
        k = bare_context(
            start=begun,
            state=end,
            steps=tau,
            lr_sum=tau * lr,
            momentum=momentum,
            class_counts=torch.tensor([1]),
        )
        sent = update.outgoing(end.w, k) if nova else end.w
        fold.add(client, 0.5, Upload(1, sent, Params({}), {"message": update.finish(k)[1]}), "test")
    mean, _, received = fold.finish(ServerState(0, w, Params({}), {}))
    told = server_context(count=2, samples=2, received=received)
    after = NormalisedStep().step(None, w, mean, told)[1] if nova else mean
    return float(after["head.weight"][0, 0])


@pytest.mark.parametrize(
    ("lr", "momentum", "nova", "value"),
    [
        (0.01, 0.0, True, 0.0444),
        (0.01, 0.9, True, 0.1548),
        (0.01, 0.0, False, -0.8030),
        (0.001, 0.0, True, 0.0045),  # a tenth of the rate leaves a tenth of the bias
        (0.001, 0.9, True, 0.0153),
        (0.001, 0.0, False, -0.8167),
        (0.001, 0.9, False, -0.9518),
    ],
)
def test_on_two_quadratics_the_objective_stays_consistent_where_fedavgs_does_not(
    lr: float, momentum: float, nova: bool, value: float
) -> None:
    """(3). FedAvg: Σ r_i b_i/Σ r_i, r_i = 1 − (1 − η)^τ_i, = −0.8030 at η = 0.01. τ for ‖a‖₁ at ρ = 0.9 fails
    here. On quadratics a round is x ↦ a x + b, so two rounds give where thousands end: b/(1 − a).
    """
    b = moved(lr, momentum, nova)
    a = moved(lr, momentum, nova, start=1.0) - b
    assert 0 < a < 1
    assert b / (1 - a) == pytest.approx(value, abs=6e-5)


def test_running_variances_stay_non_negative_when_steps_differ_widely() -> None:
    """(4): sizes 4 and 40; buffers are averaged by p_k, not extrapolated."""
    data = [client_data(n, (0, 1, 2), n) for n in (4, 40, 4, 80)]
    tiny = Tiny(fednova(), net=network(norm=True), data=data, local=replace(PLAIN, epochs=4))
    for _ in range(5):
        done = tiny.step([0, 1, 2, 3])
        wanted = sum((done[c].upload.b * (data[c].n / 128) for c in (1, 2, 3)), done[0].upload.b * (4 / 128))
        torch.testing.assert_close(tiny.server.b.flat, wanted.flat, rtol=1e-5, atol=1e-6)
        assert float(tiny.server.b["body.norm.running_var"].min()) >= 0


# What FedNova and FedDC divide by is what the steps add up to, also with Nesterov's momentum.


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
