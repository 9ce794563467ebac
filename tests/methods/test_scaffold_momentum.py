"""SCAFFOLD with momentum inside (NIID-Bench's and Flower's code), and corrections after the step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from raffed.config.federation import Federation
from raffed.config.training import Local
from raffed.core.context import Context
from raffed.core.ingredients import Correction, Descent, Gradient, LocalSolver
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.parts import Pass
from raffed.core.seeds import generator
from raffed.core.training.sgd import batch_stream
from raffed.errors import UsageError
from raffed.methods.scaffold import scaffold
from raffed.own.user_code import UserCodeError
from raffed.runtime.run_method import with_mean
from tests.contract.test_cohort import agree_in_all, pair
from tests.methods.test_scaffold import control
from tests.tiny import PLAIN, SIZES, Tiny, module, same_bits

INSIDE = scaffold(momentum_inside=True)
FLOWER = scaffold(momentum_inside=True, controls_by="samples")
ALL = (0, 1, 2, 3)
Weights = dict[str, Tensor]


def one_round(
    tiny: Tiny, client: int, round: int, w: Weights, c: Weights, c_i: Weights
) -> tuple[Weights, int]:
    """Train a client as both codes do: torch's SGD steps, and then each weight moves by −η (c − c_i)."""
    net, data, local = module(), tiny.data[client], tiny.local
    net.load_state_dict(w)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay
    )
    batches = batch_stream(data.n, local.steps(data.n), local, generator(0, "batches", round, client, 0))
    for index in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(data.x[index])[0], data.y[index])
        for p, g in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True):
            p.grad = g
        optimizer.step()
        with torch.no_grad():
            for n, p in net.named_parameters():
                p.sub_(local.lr * (c[n] - c_i[n]))
    return {n: p.detach().clone() for n, p in net.named_parameters()}, len(batches)


@pytest.mark.parametrize("first", ["zeros", "network"])
@pytest.mark.parametrize("controls_by", ["clients", "samples"])
def test_three_rounds_are_those_of_a_plain_program(controls_by: str, first: str) -> None:
    """c_i⁺ = c_i − c + (w^t − w_i)/(K η), with all clients in every round, as the published tables have it.
    Flower's c moves by Σ n_i (c_i⁺ − c_i) / Σ n_j, NIID-Bench's by the mean. Both weigh models by samples, as
    `--weighting samples` does. That their controls begin at a network's weights then changes nothing.
    """
    local = replace(PLAIN, epochs=2)
    by = "samples" if controls_by == "samples" else "clients"
    method = with_mean(scaffold(momentum_inside=True, controls_by=by), Federation(weighting="samples"))  # type: ignore[arg-type]
    tiny = Tiny(method, local=local)
    w = {n: t.clone() for n, t in tiny.server.w.tensors.items()}
    begin = {n: t.clone() if first == "network" else torch.zeros_like(t) for n, t in w.items()}
    c, own = begin, [begin] * 4
    samples = [n / sum(SIZES) for n in SIZES]
    share = samples if by == "samples" else [1 / 4] * 4
    for round in range(3):
        ends, fresh = [], []
        for i in ALL:
            end, steps = one_round(tiny, i, round, w, c, own[i])
            ends.append(end)
            fresh.append({n: own[i][n] - c[n] + (w[n] - end[n]) / (steps * local.lr) for n in w})
        c = {n: c[n] + sum(share[i] * (fresh[i][n] - own[i][n]) for i in ALL) for n in w}  # type: ignore[misc]
        w = {n: sum(samples[i] * ends[i][n] for i in ALL) for n in w}  # type: ignore[misc]
        own = fresh
    tiny.run(3, ALL)
    for n in w:
        torch.testing.assert_close(tiny.server.w[n], w[n], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(tiny.server.slots["correction"].c[n], c[n], rtol=1e-3, atol=1e-4)  # type: ignore[union-attr]
        for i in ALL:
            torch.testing.assert_close(control(tiny, i)[n], own[i][n], rtol=1e-3, atol=1e-4)


def test_without_momentum_it_is_scaffold_to_rounding() -> None:
    """w − η g − η (c − c_i) = w − η (g − c_i + c)."""
    local = replace(PLAIN, momentum=0.0, weight_decay=0.0)
    inside, plain = (Tiny(m, local=local).run(4) for m in (INSIDE, scaffold()))
    torch.testing.assert_close(inside.server.w.flat, plain.server.w.flat, rtol=1e-5, atol=1e-6)
    assert not same_bits(plain.server, Tiny(INSIDE, local=PLAIN).run(4).server)


def test_a_constant_gradient_gives_a_control_of_what_momentum_makes_of_it() -> None:
    """Where a client sees the same gradient g in each of K steps, it moves by η Σ_j (1 − ρ^j)/(1 − ρ) g, and
    c_i⁺ is the mean of these factors times g: 4.39 g for ρ = 0.9 and K = 11, where plain SGD has g.
    """
    momentum, steps = 0.9, 11  # whole batches at a rate at which the gradient hardly changes
    local = Local(lr=1e-4, momentum=momentum, weight_decay=0.0, batch_size=64, epochs=steps)
    tiny, net = Tiny(INSIDE, local=local), module()
    done, data = tiny.visit(0), tiny.data[0]
    loss = nn.functional.cross_entropy(net(data.x)[0], data.y)
    slopes = dict(zip(tiny.server.w.names, torch.autograd.grad(loss, list(net.parameters())), strict=True))
    factor = sum((1 - momentum**j) / (1 - momentum) for j in range(1, steps + 1)) / steps
    assert factor == pytest.approx(4.386, abs=1e-3)
    for n, g in slopes.items():
        c = done.client_state.slots["correction"].c[n]  # type: ignore[attr-defined]
        torch.testing.assert_close(c, factor * g, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("momentum_inside", [False, True])
def test_by_samples_c_is_the_weighted_mean_of_all_controls_after_every_round(momentum_inside: bool) -> None:
    """c = Σ_{all k} (n_k/Σ_j n_j) c_k also if 2 of 4 clients take part."""
    tiny = Tiny(scaffold(momentum_inside=momentum_inside, controls_by="samples"))
    for _ in range(5):
        tiny.step()
        c = tiny.server.slots["correction"].c  # type: ignore[union-attr]
        shares = [n / sum(SIZES) for n in SIZES]
        mean = control(tiny, 0) * shares[0]
        for k in (1, 2, 3):
            mean = mean + control(tiny, k) * shares[k]
        torch.testing.assert_close(c.clone().flat, mean.clone().flat, rtol=1e-5, atol=1e-6)
    assert float(c.sq_norm()) > 1e-3


@pytest.mark.parametrize("local", [PLAIN, replace(PLAIN, schedule="cosine", schedule_by="step", epochs_to=3)])
@pytest.mark.parametrize("method", [INSIDE, FLOWER], ids=["inside", "flower"])
def test_stacked_clients_end_where_they_end_alone(method: Method, local: Local) -> None:
    """Also with a rate for each step and client, where clients of one stack have different ones."""
    agree_in_all(*pair(Tiny(method, local=local).run(2, ALL)))


def test_the_runs_momentum_and_weight_decay_apply_only_inside() -> None:
    other = replace(PLAIN, momentum=0.5, weight_decay=0.1)
    for method, applies in ((INSIDE, True), (scaffold(), False)):
        one, two = (Tiny(method, local=local).run(2).server for local in (PLAIN, other))
        assert same_bits(one, two) != applies


def test_the_authors_preset_has_neither_of_them() -> None:
    for args in ({"momentum_inside": True}, {"controls_by": "samples"}):
        with pytest.raises(UsageError, match="preset authors is MAP's code"):
            scaffold(preset="authors", **args)  # type: ignore[arg-type]


class Shrink(Correction):
    """w ← (1 − η λ) w after every step: weight decay that momentum does not see."""

    plain_sgd = False
    rate: float = 0.5

    def after_step(self, w: Params, lr: float | Tensor, k: Context) -> Params:
        return w * (1 - lr * self.rate)


class Backwards(Correction):
    """Changes nothing, and names the tensors in another order."""

    plain_sgd = False

    def gradient(self, g: Params, k: Context) -> Params:
        return Params({name: g[name] for name in reversed(g.names)})

    def after_step(self, w: Params, lr: float | Tensor, k: Context) -> Params:
        return Params({name: w[name] for name in reversed(w.names)})


class WrongShape(Correction):
    plain_sgd = False

    def after_step(self, w: Params, lr: float | Tensor, k: Context) -> Params:
        return Params({name: w[name].sum() for name in w.names})


class OwnSteps(LocalSolver):
    def step(self, carried: Descent, gradient: Gradient, k: Context) -> Descent:
        raise NotImplementedError


@pytest.mark.parametrize("cohort", [False, True])
def test_ones_own_correction_moves_the_weights_after_the_optimisers_step(cohort: bool) -> None:
    """One step without momentum: (1 − ηλ)(w − η g), where the step of plain SGD is w − η g."""
    local = Local(lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=64, epochs=1)
    plain, shrunk = (
        Tiny(Method("own", correction=one), local=local, cohort=cohort).run(1, ALL).server.w.flat
        for one in (None, Shrink())
    )
    torch.testing.assert_close(shrunk, plain * 0.95, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cohort", [False, True])
def test_a_corrections_tensors_are_taken_by_their_names(cohort: bool) -> None:
    one, two = (
        Tiny(Method("own", correction=one), cohort=cohort).run(2, ALL).server for one in (None, Backwards())
    )
    torch.testing.assert_close(two.w.flat, one.w.flat, rtol=1e-5, atol=1e-6)


def test_what_after_step_must_return_is_said() -> None:
    with pytest.raises(UserCodeError, match="after_step returned other tensors than it must: other shapes"):
        Tiny(Method("own", correction=WrongShape())).run(1)


def test_a_solver_of_its_own_would_leave_the_correction_out_and_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Shrink corrects the steps of SGD, but OwnSteps makes its own"):
        Method("own", correction=Shrink(), solver=OwnSteps(), passes=(Pass(),))
