"""FedLESAM (Fan et al. 2024): the gradient is taken against the direction in which the server moved."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.params import Params, State
from raffed.core.training.session import overrides
from raffed.methods.fedavg import fedavg
from raffed.methods.fedlesam import EstimatedSharpnessSteps, PreviousDownload, fedlesam
from tests.laws.test_equalities import RUNS, SETTINGS
from tests.quadratics import quadratics, x_of
from tests.tiny import PLAIN, Tiny, bare_context, network, of_kind, same_bits

H, B = torch.tensor([1.0, 3.0], dtype=torch.float64), torch.tensor([1.0, -2.0], dtype=torch.float64)


def at(w: list[float]) -> State:
    return State(Params({"w": torch.tensor(w, dtype=torch.float64)}), Params({}))


def previous(tiny: Tiny, client: int) -> Params:
    return of_kind(tiny.client_states[client].slots["solver"], PreviousDownload).w


def test_the_gradient_is_taken_at_rho_from_the_weights_towards_the_earlier_download() -> None:
    """w_old = (1, 2), w^t = (0.4, 2.8), ρ = 0.1: δ = (0.06, −0.08); H (w − b) is (−0.6, 14.4) at w^t."""
    seen: list[Tensor] = []

    def gradient(state: State, which: int) -> tuple[Params, Params]:
        seen.append(H * (state.w["w"] - B))
        return Params({"w": seen[-1]}), state.b

    k = bare_context(start=at([0.4, 2.8]), mine=PreviousDownload(at([1.0, 2.0]).w), lr=0.1)
    rule = EstimatedSharpnessSteps(0.1)
    carried = rule.begin(k)
    assert carried.offset["w"].tolist() == pytest.approx([0.06, -0.08], abs=1e-12)
    after = rule.end(rule.step(carried, gradient, k)).w["w"]
    assert [slope.tolist() for slope in seen] == [pytest.approx([-0.54, 14.16], abs=1e-12)]
    assert after.tolist() == pytest.approx([0.4 + 0.054, 2.8 - 1.416], abs=1e-12)
    assert (H * (at([0.4, 2.8]).w["w"] - B)).tolist() == pytest.approx([-0.6, 14.4], abs=1e-12)


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
