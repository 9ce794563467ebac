"""FedProx (docs/papers/baselines.md, FedProx (1)-(5))."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from raffed.config.training import Local
from raffed.core.context import ClientData, Forward
from raffed.core.params import Params, State
from raffed.core.training.network import Network
from raffed.core.training.task import Solver
from raffed.errors import UsageError
from raffed.methods.fedprox import Proximal, fedprox
from raffed.models.net import Net
from tests.tiny import Tiny, bare_context, forward, network, sgd

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
