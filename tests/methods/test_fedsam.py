"""FedSAM (Qu et al. 2022; Caldarola et al. 2022): the gradient is taken where the loss is highest nearby."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from raffed.config.training import Local
from raffed.core.context import Context
from raffed.core.ingredients import Descent, Gradient
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.training.session import overrides
from raffed.methods.fedavg import fedavg
from raffed.methods.fedsam import SharpnessAwareSteps, fedsam, scaled
from tests.laws.test_equalities import RUNS
from tests.quadratics import quadratics, x_of
from tests.tiny import NOISY, PLAIN, Tiny, bare_context, network, same_bits, tree_stack

H, B = torch.tensor([1.0, 3.0], dtype=torch.float64), torch.tensor([1.0, -2.0], dtype=torch.float64)
NO_STATISTICS = Params({})


def at(w: list[float]) -> State:
    """A model of two layers with one number each, so that a norm of each layer would be another one."""
    numbers = torch.tensor(w, dtype=torch.float64)
    return State(Params({"a": numbers[:1], "b": numbers[1:]}), NO_STATISTICS)


def flat(w: Params) -> Tensor:
    return torch.cat([w["a"], w["b"]])


def quadratic(seen: list[Tensor] | None = None, scale: float = 1.0) -> Gradient:
    """The gradient H (w − b) of ½ (w − b)ᵀ H (w − b); `seen` gets the points where it was asked."""

    def gradient(state: State, which: int) -> tuple[Params, Params]:
        assert which == 0
        slope = scale * H * (flat(state.w) - B)
        if seen is not None:
            seen.append(flat(state.w))
        return Params({"a": slope[:1], "b": slope[1:]}), state.b

    return gradient


def run_of(steps: int, k: Context, rule: SharpnessAwareSteps, gradient: Gradient | None = None) -> Tensor:
    carried = Descent.begun(at([0.0, 0.0]))
    for _ in range(steps):
        carried = rule.step(carried, gradient or quadratic(), k)
    return flat(rule.end(carried).w)


def test_a_step_climbs_by_rho_along_one_norm_of_all_layers_and_descends_from_where_it_was() -> None:
    """g₁ = (−1, 6), e = g₁/(10 √37), g₂ = H (w + e − b). A norm of each layer gives e = (−0.1, 0.1)."""
    seen: list[Tensor] = []
    w = run_of(1, bare_context(lr=0.1), SharpnessAwareSteps(0.1), quadratic(seen))
    assert seen[0].tolist() == [0.0, 0.0]
    assert seen[1].tolist() == pytest.approx([-0.0164399, 0.0986394], abs=5e-8)
    assert (H * (seen[1] - B)).tolist() == pytest.approx([-1.0164399, 6.2959182], abs=5e-8)
    assert w.tolist() == pytest.approx([0.1016440, -0.6295918], abs=5e-8)


@pytest.mark.parametrize(
    ("rho", "expected"), [(0.1, [0.2849923, -1.6360258]), (0.0, [0.2799, -1.5594])], ids=["ρ = 0.1", "ρ = 0"]
)
def test_momentum_and_weight_decay_of_the_run_act_on_the_second_gradient(
    rho: float, expected: list[float]
) -> None:
    """v ← 0.9 v + g₂ + 0.01 w, w ← w − 0.1 v, twice."""
    k = bare_context(lr=0.1, momentum=0.9, weight_decay=0.01)
    assert run_of(2, k, SharpnessAwareSteps(rho)).tolist() == pytest.approx(expected, abs=5e-8)


def test_on_a_parabola_it_goes_as_the_formula_says_and_federated_as_well() -> None:
    """½ · 2x² from 1 with ρ = 0.05 and η = 0.1: x ← x − 0.2 (x + 0.05): 0.79, 0.622, 0.4876."""
    tiny = quadratics(fedsam(0.05), lr=0.1, steps=3, sizes=(1,), h=(2.0,), b=(0.0,))
    start = {name: torch.ones_like(t) for name, t in tiny.server.w.tensors.items()}
    tiny.server = tiny.server.replace(w=Params(start).clone())
    assert x_of(tiny.visit(0).trained.w) == pytest.approx(0.4876, abs=1e-6)


def test_the_place_of_the_second_gradient_does_not_depend_on_the_scale_of_the_loss() -> None:
    for scale in (0.01, 1.0, 100.0):
        seen: list[Tensor] = []
        run_of(1, bare_context(lr=0.1), SharpnessAwareSteps(0.1), quadratic(seen, scale))
        assert seen[1].tolist() == pytest.approx([-0.0164399, 0.0986394], abs=5e-8)


def test_at_a_point_without_slope_it_stays_there() -> None:
    assert scaled(at([0.0, 0.0]).w, 0.1)["a"].tolist() == [0.0]
    assert flat(scaled(at([3.0, -4.0]).w, 0.1)).tolist() == pytest.approx([0.06, -0.08], abs=1e-12)


RULE_0 = Method("x", solver=SharpnessAwareSteps(0.0))
STEPS: dict[str, Callable[[Method], Tiny]] = {
    **RUNS,
    "batchnorm, augmented": lambda m: Tiny(m, net=network(norm=True), augment=NOISY),
    "clipped by value, smoothed": lambda m: Tiny(
        m, local=replace(PLAIN, clip_value=0.2, label_smoothing=0.1)
    ),
    "a rate for each round": lambda m: Tiny(
        m, local=replace(PLAIN, schedule="step", schedule_args={"every": 1, "gamma": 0.5})
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_its_rule_follows_the_run_as_sgd_does_for_at_rho_0_it_has_sgd_s_bits(name: str) -> None:
    mine, plain = (STEPS[name](m).run(3) for m in (RULE_0, fedavg()))
    assert same_bits(mine.server, plain.server)
    assert not same_bits(STEPS[name](fedsam()).run(3).server, plain.server)


def test_a_run_with_another_optimiser_trains_by_sgd_and_says_so() -> None:
    given = replace(PLAIN, optimizer="adam")
    assert same_bits(Tiny(fedsam(), local=given).run(2).server, Tiny(fedsam(), local=PLAIN).run(2).server)
    assert [one.name for one in overrides(fedsam(), Local(optimizer="adam"))] == ["optimizer"]
    assert overrides(fedsam(), Local()) == []


def test_batchnorm_s_statistics_are_those_of_the_pass_ahead_or_of_both_passes() -> None:
    """One step on 8 samples: r ← 0.9 r + 0.1 m, with the batch's mean m at w̃; or first with that at w."""
    local = replace(PLAIN, batch_size=64)
    trained = {
        name: Tiny(m, net=network(norm=True), local=local).visit(0).trained.b["body.norm.running_mean"]
        for name, m in (
            ("last", fedsam(0.5)),
            ("both", fedsam(0.5, stats="both")),
            ("at w", fedavg()),
        )
    }
    at_w, ahead = trained["at w"] / 0.1, trained["last"] / 0.1  # they begin at 0
    torch.testing.assert_close(trained["both"], 0.9 * 0.1 * at_w + 0.1 * ahead, rtol=1e-5, atol=1e-6)
    assert float((at_w - ahead).abs().max()) > 1e-3


def test_the_switch_of_statistics_moves_no_weight_of_the_round() -> None:
    """Training normalises by the batch, so the weights of a round do not depend on what is remembered."""
    one, two = (
        Tiny(fedsam(stats=stats), net=network(norm=True)).visit(1).trained for stats in ("last", "both")
    )
    assert same_bits(one.w, two.w)
    assert not same_bits(one.b, two.b)


@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.01), (0.0, 0.0)])
@pytest.mark.parametrize("own_rates", [False, True])
def test_a_step_of_many_clients_at_once_is_the_loops(momentum: float, decay: float, own_rates: bool) -> None:
    """vmap over stacked models and, where clients differ in it, over their rates."""
    k = bare_context(lr=0.1, momentum=momentum, weight_decay=decay)
    rule, rates = SharpnessAwareSteps(0.1), torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    begun = [Descent.begun(at(w)) for w in ([0.0, 0.0], [3.0, -1.0], [-2.0, 5.0])]

    def one(carried: Descent, rate: Tensor) -> Descent:
        now = k.replace(lr=rate) if own_rates else k
        return rule.step(rule.step(carried, quadratic(), now), quadratic(), now)

    together = vmap(one)(tree_stack(begun), rates)
    for i, own in enumerate(begun):
        now = k.replace(lr=float(rates[i])) if own_rates else k
        alone = rule.step(rule.step(own, quadratic(), now), quadratic(), now)
        torch.testing.assert_close(flat(rule.end(alone).w), torch.cat([together.model.w[n][i] for n in "ab"]))
