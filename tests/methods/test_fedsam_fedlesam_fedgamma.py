"""Steps that take their gradient elsewhere: FedSAM, FedLESAM, FedGAMMA."""

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
from raffed.methods.fedgamma import CorrectedSharpnessSteps, fedgamma
from raffed.methods.fedlesam import EstimatedSharpnessSteps, PreviousDownload, fedlesam
from raffed.methods.fedsam import SharpnessAwareSteps, fedsam, scaled
from raffed.methods.scaffold import scaffold
from tests.laws.test_equalities import ALSO_STACKED, RUNS, SETTINGS
from tests.quadratics import GRADIENTS, OPTIMUM, B, H, quadratics, x_of
from tests.tiny import NOISY, PLAIN, Tiny, bare_context, network, of_kind, same_bits, tree_stack

# FedSAM (Qu et al. 2022; Caldarola et al. 2022): the gradient is taken where the loss is highest nearby.

CURVATURE, CENTRE = (
    torch.tensor([1.0, 3.0], dtype=torch.float64),
    torch.tensor([1.0, -2.0], dtype=torch.float64),
)
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
        slope = scale * CURVATURE * (flat(state.w) - CENTRE)
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
    assert (CURVATURE * (seen[1] - CENTRE)).tolist() == pytest.approx([-1.0164399, 6.2959182], abs=5e-8)
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


# FedLESAM (Fan et al. 2024): the gradient is taken against the direction in which the server moved.


def one_layer(w: list[float]) -> State:
    return State(Params({"w": torch.tensor(w, dtype=torch.float64)}), Params({}))


def previous(tiny: Tiny, client: int) -> Params:
    return of_kind(tiny.client_states[client].slots["solver"], PreviousDownload).w


def test_the_gradient_is_taken_at_rho_from_the_weights_towards_the_earlier_download() -> None:
    """w_old = (1, 2), w^t = (0.4, 2.8), ρ = 0.1: δ = (0.06, −0.08); H (w − b) is (−0.6, 14.4) at w^t."""
    seen: list[Tensor] = []

    def gradient(state: State, which: int) -> tuple[Params, Params]:
        seen.append(CURVATURE * (state.w["w"] - CENTRE))
        return Params({"w": seen[-1]}), state.b

    k = bare_context(start=one_layer([0.4, 2.8]), mine=PreviousDownload(one_layer([1.0, 2.0]).w), lr=0.1)
    rule = EstimatedSharpnessSteps(0.1)
    carried = rule.begin(k)
    assert carried.offset["w"].tolist() == pytest.approx([0.06, -0.08], abs=1e-12)
    after = rule.end(rule.step(carried, gradient, k)).w["w"]
    assert [slope.tolist() for slope in seen] == [pytest.approx([-0.54, 14.16], abs=1e-12)]
    assert after.tolist() == pytest.approx([0.4 + 0.054, 2.8 - 1.416], abs=1e-12)
    assert (CURVATURE * (one_layer([0.4, 2.8]).w["w"] - CENTRE)).tolist() == pytest.approx(
        [-0.6, 14.4], abs=1e-12
    )


@pytest.mark.parametrize("name", {**SETTINGS, **RUNS})
def test_clients_that_never_return_train_as_in_fedavg_bit_for_bit(name: str) -> None:
    """Also in a later round, when the server has moved: only an earlier visit of the client itself counts."""
    setting = {**SETTINGS, **RUNS}[name]
    mine, plain = setting(fedlesam(5.0)), setting(fedavg())
    for participants in ([0, 1], [2], [3]):
        mine.step(participants)
        plain.step(participants)
        assert same_bits(mine.server, plain.server)
    mine.step([0])
    plain.step([0])
    assert not same_bits(mine.server, plain.server)


def test_a_client_keeps_what_it_downloaded_when_it_last_took_part_and_not_its_own_model() -> None:
    tiny = Tiny(fedlesam(), net=network(norm=True))
    first = tiny.server.w
    tiny.step([0, 1])
    second = tiny.server.w
    tiny.step([1])
    assert same_bits(previous(tiny, 0), first)
    assert same_bits(previous(tiny, 1), second)
    assert not same_bits(first, second)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_second_visit_is_the_formula_on_a_parabola(sign: float) -> None:
    """½ · 2(x − b)², two steps of rate 0.1 a round. After round 0 x = 0.36 b, so w_old − w^t points to −b."""
    tiny = quadratics(fedlesam(0.05), lr=0.1, steps=2, sizes=(1,), h=(2.0,), b=(sign,)).run(2, [0])
    x = 0.36 * sign
    for _ in range(2):
        x -= 0.1 * 2.0 * (x - 0.05 * sign - sign)
    assert x_of(tiny.server.w) == pytest.approx(x, abs=1e-6)


def test_a_client_whose_download_has_not_changed_trains_as_in_fedavg() -> None:
    """The direction is 0 then, and not 0/0."""
    tiny = Tiny(fedlesam(5.0))
    seen = tiny.visit(1)
    again = tiny.visit(1, client_state=seen.client_state)
    assert same_bits(again.trained, Tiny(fedavg()).visit(1).trained)


def test_a_step_asks_for_one_gradient_and_a_run_with_another_optimiser_trains_by_sgd() -> None:
    done = Tiny(fedlesam()).visit(3)
    assert done.steps == Tiny(fedavg()).visit(3).steps
    given = replace(PLAIN, optimizer="adam")
    everybody = [0, 1, 2, 3]
    assert same_bits(
        Tiny(fedlesam(), local=given).run(2, everybody).server, Tiny(fedlesam()).run(2, everybody).server
    )
    assert [one.name for one in overrides(fedlesam(), given)] == ["optimizer"]


# FedGAMMA (Dai et al. 2023): sharpness-aware steps with SCAFFOLD's control variates.


def with_rho(rho: float) -> Method:
    """FedGAMMA with its own steps also where ρ is 0."""
    return replace(fedgamma(0.1), solver=CorrectedSharpnessSteps(rho))


def server_control(tiny: Tiny) -> Params:
    found: Params = tiny.server.slots["solver"].c  # type: ignore[union-attr]
    return found


def control(tiny: Tiny, client: int) -> Params:
    state = tiny.client_states.get(client)
    return state.slots["solver"].c if state else tiny.net.initial.w.zeros()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ALSO_STACKED)
def test_its_own_steps_with_rho_0_are_scaffold_s_and_so_are_the_controls(name: str) -> None:
    """Where rates change within a round, the controls divide by the sum of those that were used."""
    mine, plain = ALSO_STACKED[name](with_rho(0.0)).run(4), ALSO_STACKED[name](scaffold()).run(4)
    theirs = plain.server.slots["correction"].c  # type: ignore[union-attr]
    for a, b in ((mine.server.w, plain.server.w), (server_control(mine), theirs)):
        torch.testing.assert_close(a.flat, b.flat, rtol=1e-5, atol=1e-5)
    assert float(theirs.sq_norm()) > 1e-3


def test_with_rho_0_quadratic_clients_end_at_the_optimum() -> None:
    """QT with K = 5 and η = 0.1: x* = −2/3, c_i = ∇f_i(x*) and c = 0. FedAvg ends elsewhere."""
    tiny = quadratics(with_rho(0.0), lr=0.1, steps=5).run(40, [0, 1, 2])
    assert x_of(tiny.server.w) == pytest.approx(OPTIMUM, abs=1e-5)
    assert [x_of(control(tiny, i)) for i in range(3)] == pytest.approx(GRADIENTS, abs=1e-4)
    assert x_of(server_control(tiny)) == pytest.approx(0.0, abs=1e-4)


def test_one_round_of_quadratic_clients_with_rho_a_tenth() -> None:
    """From 0: every second gradient is h (x ± 0.1 − b), and c_i is the mean of the five of them."""
    tiny = quadratics(fedgamma(0.1), lr=0.1, steps=5)
    tiny.step([0, 1, 2])
    assert x_of(tiny.server.w) == pytest.approx(-0.1230313, abs=2e-7)
    assert x_of(server_control(tiny)) == pytest.approx(0.2460626, abs=5e-7)
    controls = [x_of(control(tiny, i)) for i in range(3)]
    assert controls == pytest.approx([-0.9009220, 3.4941060, -1.8549963], abs=5e-7)
    for h, b, c in zip(H, B, controls, strict=True):
        x, seen = 0.0, []
        for _ in range(5):
            slope = h * (x - b)
            seen.append(h * (x + (0.1 if slope > 0 else -0.1) - b))
            x -= 0.1 * seen[-1]
        assert c == pytest.approx(sum(seen) / 5, abs=1e-6)


def test_in_a_later_round_the_second_gradient_is_corrected_and_the_first_is_not() -> None:
    """Written out for two rounds: w̃ = x ± ρ by the sign of the plain slope, then g₂ − c_i + c."""
    tiny = quadratics(fedgamma(0.1), lr=0.1, steps=2).run(2, [0, 1, 2])
    x, c, own = 0.0, 0.0, [0.0, 0.0, 0.0]
    for _ in range(2):
        ends = []
        for h, b, c_i in zip(H, B, own, strict=True):
            w = x
            for _ in range(2):
                ahead = w + (0.1 if h * (w - b) > 0 else -0.1)
                w -= 0.1 * (h * (ahead - b) - c_i + c)
            ends.append(w)
        own, before = [c_i - c + (x - w) / 0.2 for c_i, w in zip(own, ends, strict=True)], own
        c += sum(a - b for a, b in zip(own, before, strict=True)) / 3
        x = sum(ends) / 3
    assert x_of(tiny.server.w) == pytest.approx(x, abs=1e-6)
    assert x_of(server_control(tiny)) == pytest.approx(c, abs=1e-5)


def test_the_server_s_control_is_the_mean_over_all_clients_after_every_round() -> None:
    """Two of four take part in a round; a client that has never been drawn counts as 0."""
    tiny = Tiny(fedgamma(), net=network(norm=True))
    for _ in range(4):
        tiny.step()
        mean = sum((control(tiny, k) for k in range(1, 4)), control(tiny, 0)) / 4
        torch.testing.assert_close(server_control(tiny).clone().flat, mean.clone().flat, rtol=1e-5, atol=1e-6)


def test_momentum_and_decay_of_the_run_do_not_apply_and_means_are_uniform() -> None:
    strong = replace(PLAIN, momentum=0.99, weight_decay=1.0)
    tiny = Tiny(fedgamma(server_lr=0.5), local=strong)
    start, done = tiny.server.w, tiny.step([0, 2])
    assert done[0].upload.n is None
    mean = (done[0].upload.w + done[2].upload.w) / 2
    torch.testing.assert_close(tiny.server.w.flat, (start + (mean - start) * 0.5).flat, rtol=1e-5, atol=1e-6)
    plain = Tiny(fedgamma(server_lr=0.5), local=replace(PLAIN, momentum=0.0, weight_decay=0.0))
    plain.step([0, 2])
    assert same_bits(tiny.server, plain.server)
    assert [one.name for one in overrides(fedgamma(), strong)] == ["momentum", "weight_decay"]
