"""FedAvg, and what is FedAvg but for one part: FedProx, FedDisco, noise on the gradient, fine-tuning."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.context import ClientData, Forward
from raffed.core.params import Params, State
from raffed.core.seeds import generator
from raffed.core.server import Mean
from raffed.core.training.network import Network
from raffed.core.training.sgd import batch_stream
from raffed.core.training.task import Solver
from raffed.errors import UsageError
from raffed.methods.fedavg import fedavg
from raffed.methods.feddisco import DiscrepancyWeights, Measure, discrepancy, feddisco
from raffed.methods.fedprox import Proximal, fedprox
from raffed.methods.finetune import finetune
from raffed.methods.noisygrad import NoiseKind, noise, noisygrad
from raffed.models.net import Net
from tests.contract.test_cohort import agree_in_all, pair
from tests.tiny import EVERYBODY, PLAIN, Tiny, bare_context, clients, forward, module, network, same_bits, sgd

# FedAvg (docs/papers/baselines.md, FedAvg (1)-(5), and G5, G6, G7).

FULL_BATCH = Local(lr=0.3, momentum=0.0, weight_decay=0.0, batch_size=64, epochs=1)


@pytest.mark.parametrize("norm", [False, True])
def test_one_client_holding_everything_is_centralised_sgd_with_momentum_reset_every_round(norm: bool) -> None:
    """(1), G5: torch.optim.SGD made anew every E epochs, on the batches of the derived stream."""
    data = clients(owned=((0, 1, 2),), sizes=(18,))
    local = replace(PLAIN, epochs=2, batch_size=5)
    tiny = Tiny(fedavg(), net=network(norm), data=data, local=local).run(3)
    net = module(norm)
    for round in range(3):
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        for index in batch_stream(18, 8, local, generator(0, "batches", round, 0, 0)):
            optimiser.zero_grad()
            F.cross_entropy(net(data[0].x[index])[0], data[0].y[index]).backward()
            optimiser.step()
    for name, p in net.named_parameters():
        torch.testing.assert_close(tiny.server.w[name], p.detach(), rtol=1e-4, atol=1e-5)
    for name, buffer in net.named_buffers():
        if buffer.is_floating_point():
            torch.testing.assert_close(tiny.server.b[name], buffer, rtol=1e-4, atol=1e-5)


def test_the_average_of_a_single_client_is_its_model_bit_for_bit() -> None:
    """p = 1: nothing but a rounding to 2^-44, below the last bit of every weight above 2^-20 in size."""
    tiny = Tiny(fedavg())
    done = tiny.step([3])
    w = done[3].upload.w
    big = w.flat.abs() > 2.0**-20
    assert torch.equal(tiny.server.w.flat[big], w.flat[big])


def test_one_full_batch_step_is_one_gradient_step_on_the_pooled_loss() -> None:
    """(2): Σ p_k (w − η∇f_k) = w − η∇f with f the mean over all samples."""
    tiny = Tiny(fedavg(), local=FULL_BATCH)
    start, net = tiny.net.initial, module()
    tiny.step([0, 1, 2, 3])
    x, y = torch.cat([c.x for c in tiny.data]), torch.cat([c.y for c in tiny.data])
    grads = torch.autograd.grad(F.cross_entropy(net(x)[0], y), list(net.parameters()))
    for (name, _), g in zip(net.named_parameters(), grads, strict=True):
        torch.testing.assert_close(tiny.server.w[name], start.w[name] - 0.3 * g, rtol=1e-5, atol=1e-6)


def test_only_participants_are_averaged_by_their_share_of_the_participants_samples() -> None:
    """(3): clients 0 and 2 hold 8 and 6 samples: 8/14 and 6/14."""
    tiny = Tiny(fedavg())
    done = tiny.step([0, 2])
    wanted = done[0].upload.w * (8 / 14) + done[2].upload.w * (6 / 14)
    torch.testing.assert_close(tiny.server.w.flat, wanted.flat, rtol=1e-6, atol=1e-7)


def test_batchnorms_statistics_are_averaged_like_the_weights() -> None:
    """G7."""
    tiny = Tiny(fedavg(), net=network(norm=True))
    done = tiny.step([0, 2])
    wanted = done[0].upload.b * (8 / 14) + done[2].upload.b * (6 / 14)
    torch.testing.assert_close(tiny.server.b.flat, wanted.flat, rtol=1e-6, atol=1e-7)
    assert not same_bits(done[0].upload.b, done[2].upload.b)


def test_two_rounds_of_one_epoch_are_not_one_round_of_two_with_momentum() -> None:
    """(5): the velocity is forgotten between rounds. Full batches, one client, so the order plays no part."""
    data = clients(owned=((0, 1, 2),), sizes=(12,))

    def ends(momentum: float, rounds: int, epochs: int) -> State:
        local = replace(FULL_BATCH, momentum=momentum, epochs=epochs)
        server = Tiny(fedavg(), data=data, local=local).run(rounds).server
        return State(server.w, server.b)

    torch.testing.assert_close(ends(0.0, 2, 1).w.flat, ends(0.0, 1, 2).w.flat, rtol=1e-5, atol=1e-6)
    assert (ends(0.9, 2, 1).w.flat - ends(0.9, 1, 2).w.flat).abs().max() > 1e-3


# FedProx (docs/papers/baselines.md, FedProx (1)-(5)).

ONE = ClientData(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), torch.tensor([1]))


def test_the_gradient_of_the_term_is_mu_times_the_displacement_in_both_directions() -> None:
    """(5): w − w⁰ = (2, −3, 0), μ = 0.4 ⇒ loss 0.2·13 = 2.6, gradient (0.8, −1.2, 0)."""
    w0 = Params({"w": torch.tensor([1.0, 1.0, 5.0])}).clone()
    w = Params({"w": torch.tensor([3.0, -2.0, 5.0], requires_grad=True)})
    k = bare_context(start=State(w0, Params({})))
    loss = Proximal(0.4).loss(forward(torch.zeros(1, 1), torch.zeros(1), w=w), k)
    (g,) = torch.autograd.grad(loss, [w["w"]])
    assert loss.item() == pytest.approx(2.6, rel=1e-6)
    torch.testing.assert_close(g, torch.tensor([0.8, -1.2, 0.0]))


@pytest.mark.parametrize(("g", "moved"), [(2.0, -3.3856260), (-2.0, 3.3856260)])
def test_a_constant_gradient_gives_the_closed_form_displacement(g: float, moved: float) -> None:
    """(3): θ_τ − θ_0 = −(g/μ)(1 − (1 − ημ)^τ); g = ±2, μ = 0.1, η = 0.05, τ = 37 (checked independently)."""
    done = pulled(g, momentum=0.0, rate=0.05, steps=37)
    assert done == pytest.approx(moved, rel=1e-5)


def test_the_terms_gradient_passes_through_the_momentum_buffer() -> None:
    """docs/papers/baselines.md §0: g = 1, μ = 0.1, η = 0.01, ρ = 0.9, 100 steps: −6.3137 inside the
    buffer, −8.6983 outside (verified there).
    """
    assert pulled(1.0, momentum=0.9, rate=0.01, steps=100) == pytest.approx(-6.3137, abs=2e-4)


def pulled(g: float, momentum: float, rate: float, steps: int) -> float:
    """Displacement of every weight under loss g·Σw + (μ/2)‖w − w⁰‖², μ = 0.1."""
    net = Network(Net(nn.Identity(), nn.Linear(2, 1, bias=False)))
    k = bare_context(start=net.initial)

    def objective(f: Forward, step: int) -> Tensor:
        return g * f.w["head.weight"].sum() + Proximal(0.1).loss(f, k)

    batches = [torch.tensor([0])] * steps
    end = sgd(net, net.initial, objective, ONE, batches, Solver(rate, momentum, 0.0)).state
    moves = (end.w - net.initial.w)["head.weight"]
    assert float(moves.max() - moves.min()) < 1e-5
    return float(moves.mean())


def test_the_first_local_step_does_not_depend_on_mu_and_the_second_does() -> None:
    """(2): the pull is zero at w = w⁰."""
    local = Local(lr=0.2, momentum=0.0, weight_decay=0.0, batch_size=64)

    def after(mu: float, epochs: int) -> Params:
        from dataclasses import replace

        return Tiny(fedprox(mu), local=replace(local, epochs=epochs)).visit(0).trained.w

    torch.testing.assert_close(after(1.0, 1).flat, after(0.0, 1).flat, rtol=0, atol=1e-7)
    assert (after(1.0, 2).flat - after(0.0, 2).flat).abs().max() > 1e-3


def test_exact_local_solves_have_the_sample_weighted_fixed_point_of_the_sheet() -> None:
    """(4), QT: f_k = ½h_k(x − b_k)², h = (1, 3, 0.5), b = (1, −2, 4), p = (.2, .3, .5), μ = 1:
    w* = Σp h b/(h+μ) / Σp h/(h+μ) = 0.6440678. Local minima are found with raffed's own term and loop."""
    h, b, p = (1.0, 3.0, 0.5), (1.0, -2.0, 4.0), (0.2, 0.3, 0.5)
    net = Network(Net(nn.Identity(), nn.Linear(1, 1, bias=False)))
    data = ClientData(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), torch.tensor([1]))
    w = State(Params({"head.weight": torch.zeros(1, 1)}).clone(), Params({}))
    for _ in range(22):
        ends = []
        for h_k, b_k in zip(h, b, strict=True):
            k = bare_context(start=w)

            def objective(f: Forward, step: int, h_k: float = h_k, b_k: float = b_k, k: object = k) -> Tensor:
                x = f.w["head.weight"].sum()
                return 0.5 * h_k * (x - b_k) ** 2 + Proximal(1.0).loss(f, k)  # type: ignore[arg-type]

            ends.append(sgd(net, w, objective, data, [torch.tensor([0])] * 25, Solver(0.4, 0.0, 0.0)).state)
        w = State(ends[0].w * p[0] + ends[1].w * p[1] + ends[2].w * p[2], Params({}))
    assert float(w.w["head.weight"]) == pytest.approx(0.6440678, abs=3e-5)


def test_the_pull_does_not_touch_batchnorms_statistics() -> None:
    """docs/papers/baselines.md, FedProx: θ are the trainable parameters; the first step's statistics are
    FedAvg's for any μ.
    """
    local = Local(lr=0.2, momentum=0.0, weight_decay=0.0, batch_size=64, epochs=1)
    strong = Tiny(fedprox(100.0), net=network(norm=True), local=local).visit(0).trained
    plain = Tiny(fedprox(0.0), net=network(norm=True), local=local).visit(0).trained
    assert torch.equal(strong.b.flat, plain.b.flat)


def test_the_authors_preset_pulls_by_the_difference_over_the_elements_and_the_tensors() -> None:
    """Preset "authors" by hand: w − w⁰ = (0.5, −0.5) and (0.25) in two tensors, μ = 0.4: 0.4·0.5/(2·2)
    and 0.4·0.25/2, both 0.05.
    """
    w0 = Params({"a": torch.zeros(2), "b": torch.ones(1)}).clone()
    live = {"a": torch.tensor([0.5, -0.5], requires_grad=True), "b": torch.tensor([1.25], requires_grad=True)}
    (term,) = fedprox(0.4, preset="authors").terms
    k = bare_context(start=State(w0, Params({})))
    loss = term.loss(forward(torch.zeros(1, 1), torch.zeros(1), w=Params(live)), k)
    ours = torch.autograd.grad(loss, list(live.values()))
    torch.testing.assert_close(ours[0], torch.tensor([0.05, -0.05]))
    torch.testing.assert_close(ours[1], torch.tensor([0.05]))
    assert fedprox(0.0, preset="authors").terms == ()
    with pytest.raises(UsageError, match="preset"):
        fedprox(preset="released")


# FedDisco (Ye et al. 2023).

SIZES = [100, 200, 700]
COUNTS = [torch.tensor(row) for row in ([50, 50, 0, 0], [50, 50, 50, 50], [700, 0, 0, 0])]


def weights(a: float, b: float, measure: Measure) -> list[float]:
    return Mean(reweighting=DiscrepancyWeights(a, b, measure)).weights(SIZES, lambda: COUNTS)


def test_distances_to_the_uniform_distribution_of_four_classes() -> None:
    """(½, ½, 0, 0), uniform and (1, 0, 0, 0): √(1/2 − 1/4), log 2, 1 − 1/√2; 0; √(1 − 1/4), log 4, ½."""
    expected: dict[Measure, list[float]] = {
        "l2": [0.5, 0.0, 0.8660254],
        "kl": [math.log(2), 0.0, math.log(4)],
        "cosine": [1 - 1 / math.sqrt(2), 0.0, 0.5],
    }
    for measure, values in expected.items():
        assert [float(discrepancy(c, measure)) for c in COUNTS] == pytest.approx(values, abs=1e-7)
        assert not any(discrepancy(torch.ones(c), measure) for c in (49, 98, 103))  # where c · (1/c) is not 1


def test_three_clients_have_the_weights_worked_out_by_hand() -> None:
    assert weights(0.5, 0.1, "l2") == pytest.approx([0.0, 0.4497837, 0.5502163], abs=1e-7)
    assert weights(0.5, 0.1, "kl") == pytest.approx([0.0416667, 0.375, 0.5833333], abs=1e-7)


@pytest.mark.parametrize("measure", ["kl", "l2", "cosine"])
def test_weights_add_up_to_1_and_none_is_negative(measure: Measure) -> None:
    for a, b in ((0.5, 0.1), (3.0, 0.2), (0.1, 0.0)):
        made = weights(a, b, measure)
        assert sum(made) == pytest.approx(1.0, abs=1e-12)
        assert min(made) >= 0.0


@pytest.mark.parametrize(
    ("a", "b", "measure", "reports"),
    [
        pytest.param(10.0, 0.0, "l2", [0.5, 0.8], id="no weight is above 0"),
        pytest.param(0.5, 0.25, "l2", [0.5, 0.5], id="b offsets equal ones: b = a·d"),
        pytest.param(0.5, 0.25, "kl", [0.5, 0.5], id="each of two equal ones is a half"),
        pytest.param(0.5, 0.0, "kl", [0.0, 0.0], id="uniform clients"),
    ],
)
def test_the_usual_weights_are_taken(a: float, b: float, measure: Measure, reports: list[float]) -> None:
    told = [torch.tensor([d]) for d in reports]
    assert DiscrepancyWeights(a, b, measure).weights([0.25, 0.75], told) == pytest.approx([0.25, 0.75])


def test_statistics_of_batchnorm_have_the_same_weights_as_parameters() -> None:
    """Client 2 holds one class of three and client 3 all of them, so they weigh less and more."""
    tiny = Tiny(feddisco(), net=network(norm=True))
    sizes, counts = [one.n for one in tiny.data], [one.class_counts for one in tiny.data]
    p = tiny.method.mean.weights(sizes, lambda: counts)
    usual = Mean().weights(sizes)
    assert p[2] < usual[2] - 0.05
    assert p[3] > usual[3] + 0.05
    done = tiny.step(EVERYBODY)
    for part in ("w", "b"):
        mean = sum(p[c] * getattr(done[c].upload, part).flat.double() for c in EVERYBODY)
        torch.testing.assert_close(getattr(tiny.server, part).flat.double(), mean, rtol=0, atol=1e-6)


# FedAvg with noise on the gradient (docs/papers/mpfedcon.md §5.4).


def draw(kind: str, size: float, meaning: str, count: int = 200_000) -> torch.Tensor:
    return noise(count, kind, size, meaning, torch.Generator().manual_seed(1))


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


# FedAvg + fine-tuning (docs/papers/baselines-personal.md, FedAvg+FT).


def test_0_epochs_score_the_downloaded_model() -> None:
    """(a)."""
    done = Tiny(finetune(0.0, every_round=True)).run(2).visit(1)
    assert same_bits(done.views["personal"].private, done.start)


def test_fine_tuning_everything_for_the_runs_epochs_gives_the_rounds_own_local_model() -> None:
    """(c): same batches, same start."""
    tiny = Tiny(finetune(1.0, "all", every_round=True), net=network(norm=True)).run(2)
    done = tiny.visit(1)
    assert same_bits(done.views["personal"].private, done.trained)


def test_with_the_head_alone_the_body_and_its_statistics_stay_bit_for_bit() -> None:
    """(3)."""
    tiny = Tiny(finetune(every_round=True), net=network(norm=True)).run(2)
    done = tiny.visit(1)
    private = done.personal_state(tiny.method)
    for n in private.w.names:
        assert torch.equal(private.w[n], done.start.w[n]) == n.startswith("body.")
    assert same_bits(private.b, done.start.b)


def test_it_happens_in_the_last_round_only_unless_asked() -> None:
    """T = 3: two rounds score the downloaded model, the third the fine-tuned one."""
    tiny = Tiny(finetune(), rounds=3)
    for last in (False, False, True):
        done = tiny.step([0, 1])[0]
        assert same_bits(done.personal_state(tiny.method), done.start) != last


def test_on_the_convex_head_the_training_loss_falls() -> None:
    """(4)."""
    tiny = Tiny(finetune(every_round=True)).run(2)
    done, data = tiny.visit(1), tiny.data[1]
    before, after = (
        float(torch.nn.functional.cross_entropy(tiny.net.apply(s, data.x)[0], data.y))
        for s in (done.start, done.personal_state(tiny.method))
    )
    assert after < before
