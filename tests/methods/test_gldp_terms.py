"""GLDP's terms and answers in numbers (docs/papers/gldp.md §4 to §6, A12; §9)."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.core.params import Params, State
from raffed.methods.common import Prototypes
from raffed.methods.gldp import Relations, Remembered, gldp, global_relation, local_relation
from tests.tiny import PLAIN, Tiny, activity, bare_context, forward, same_bits

CORNERS = 3 * torch.eye(3, 5)
EVERY, ONE = torch.ones(3, dtype=torch.bool), torch.tensor([False, True, False])
SAMPLE = "feature_softmax_sample"


def answers(z: Tensor, mine: Remembered, server: Prototypes, **choices: str) -> list[int]:
    """What is answered for features z [B, 5] under a head that says class 2."""
    head = torch.tensor([[0.0, 0.0, 1.0]]).expand(len(z), 3)
    k = bare_context(net=lambda state, x: (head, z), mine=mine, server=server)
    return Relations(0.5, 0.5, **choices).predict(torch.zeros(len(z), 4), k).argmax(-1).tolist()  # type: ignore[arg-type]


def test_the_two_answers_are_by_the_servers_and_by_the_clients_own_prototypes() -> None:
    """Eq. 13: the server's corners are 0, 1, 2, the client's 1, 2, 0."""
    server, mine = Prototypes(CORNERS, EVERY), Remembered(CORNERS[[2, 0, 1]], EVERY)
    assert answers(CORNERS, mine, server, inference="gp") == [0, 1, 2]
    assert answers(CORNERS, mine, server, inference="lp") == [1, 2, 0]


def test_candidates_are_all_known_classes_or_those_that_the_client_has_seen() -> None:
    """A12: the client has seen class 1 alone; z lies at prototype 0."""
    server, mine = Prototypes(CORNERS, EVERY), Remembered(CORNERS, ONE)
    assert answers(CORNERS[:1], mine, server, inference="gp", candidates="all") == [0]
    assert answers(CORNERS[:1], mine, server, inference="gp", candidates="seen") == [1]


def test_a_class_that_the_server_does_not_know_is_never_answered() -> None:
    """§10 no. 10: z at the corner of class 0, of which the server holds a mean that it does not know to
    be one.
    """
    server, mine = Prototypes(CORNERS, torch.tensor([False, True, True])), Remembered(CORNERS, EVERY)
    z = CORNERS[:1] + 0.1 * CORNERS[2]
    assert answers(z, mine, server, inference="gp") == [2]


W0, B0 = torch.tensor([[math.log(2), 0.0], [0.0, 0.0], [0.0, 0.0]]), torch.tensor([0.0, math.log(2), 0.0])


def test_lp_logits_compares_the_old_prototype_under_the_old_head_with_what_the_head_says_now() -> None:
    """§4: Ĉ = (1, 7): W0 Ĉ + b0 = (ln 2, ln 2, 0), so p = (2, 2, 1)/5; the logits now are (ln 3, 0, 0), q =
    (3, 1, 1)/5.

        KL = 0.4 ln(2/3) + 0.4 ln 2 + 0.2 ln 1. The other sample's class is not known: half of it.
    """
    mine = Remembered(torch.tensor([[1.0, 7.0], [9.0, 9.0], [9.0, 9.0]]), torch.tensor([True, False, False]))
    start = State(Params({"head.weight": W0, "head.bias": B0}), Params({}))
    now = Params({"head.weight": -W0, "head.bias": -B0})
    logits = torch.tensor([[math.log(3), 0.0, 0.0], [5.0, 0.0, 0.0]])
    f = forward(torch.ones(2, 2), torch.tensor([0, 1]), logits, now)
    k = bare_context(mine=mine, start=start, server=Prototypes(torch.zeros(3, 2), ~EVERY))
    wanted = 0.4 * math.log(2 / 3) + 0.4 * math.log(2)
    assert float(Relations(1.0, 0.5, "logits").loss(f, k)) == pytest.approx(wanted / 2, rel=1e-5)
    assert float(Relations(0.3, 0.5, "logits").loss(f, k)) == pytest.approx(0.3 * wanted / 2, rel=1e-5)


ONE_STEP = replace(PLAIN, momentum=0.0, weight_decay=0.0, batch_size=64)


def test_lp_logits_acts_on_the_head_as_well() -> None:
    """§6: one step without momentum: W ← W − η Σ_j ((q_j − e_{y_j}) + λ (q_j − p_{y_j})) z_jᵀ/B, p under
    the head as it was.
    """
    tiny = Tiny(gldp(0.4, 0.5, 0.0, 1.0, lp="logits"), local=ONE_STEP).run(1, [0, 1, 2, 3])
    kept, data, start = tiny.client_states[1].slots["personal"], tiny.data[1], tiny.visit(1).start
    assert isinstance(kept, Remembered)
    w, b = start.w["head.weight"], start.w["head.bias"]
    logits, z = activity(start.w, data.x)
    q, p = logits.softmax(-1), (kept.mean[data.y] @ w.T + b).softmax(-1)
    error = (q - torch.eye(3)[data.y]) + 0.4 * (q - p)
    done = tiny.visit(1).trained.w
    torch.testing.assert_close(done["head.weight"], w - 0.1 * error.T @ z / len(z), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(done["head.bias"], b - 0.1 * error.mean(0), rtol=1e-5, atol=1e-6)


def test_no_other_form_acts_on_the_head_nor_does_this_one_with_factor_0() -> None:
    """§6: only CE has a gradient there."""
    plain = Tiny(gldp(0.0, 0.5, 0.0, 1.0, lp="none"), local=ONE_STEP).run(2, [0, 1, 2, 3])
    for lam, lp, same in (
        (0.5, SAMPLE, True),
        (0.5, "mse", True),
        (0.0, "logits", True),
        (0.5, "logits", False),
    ):
        tiny = Tiny(gldp(lam, 0.5, 0.0, 1.0, lp=lp), local=ONE_STEP).run(2, [0, 1, 2, 3])  # type: ignore[arg-type]
        assert same_bits(tiny.client_states[1].v, plain.client_states[1].v) == same, lp
    assert (
        [one.cross_entropy_only for one in gldp(0.0, lp="logits").passes]
        == [one.cross_entropy_only for one in gldp().passes]
        == [False, True]
    )


def test_the_temperature_and_the_factor_reach_the_local_relation() -> None:
    """λ KL(softmax(Ĉ/2) ‖ softmax(z/2)) with Ĉ = 2 (ln 2, 0, …), z = 0, D = 5: p = (2, 1, 1, 1, 1)/6, q =
    1/5.
    """
    old = torch.zeros(3, 5)
    old[:, 0] = 2 * math.log(2)
    k = bare_context(mine=Remembered(old, EVERY), server=Prototypes(torch.zeros(3, 5), ~EVERY))
    f = forward(torch.zeros(4, 5), torch.tensor([0, 1, 2, 0]), torch.zeros(4, 3))
    wanted = math.log(10 / 6) / 3 + 4 / 6 * math.log(5 / 6)
    assert float(Relations(0.3, 0.5, temperature=2.0).loss(f, k)) == pytest.approx(0.3 * wanted, rel=1e-5)


def test_mse_is_the_mean_square_and_l1_compares_shares() -> None:
    """§4: z − Ĉ = 2 everywhere gives 4; Ĉ = (1, 3) and z = (2, 2): 0.25 ln 0.5 + 0.75 ln 1.5."""
    old = torch.tensor([[1.0, 3.0]])
    y = torch.zeros(3, dtype=torch.int64)
    known = torch.ones(1, dtype=torch.bool)
    assert float(local_relation(old.expand(3, 2) + 2, y, old, known, "mse", 1.0)) == pytest.approx(4.0)
    wanted = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert wanted == pytest.approx(0.1308, abs=5e-5)
    assert float(local_relation(torch.full((3, 2), 2.0), y, old, known, "l1", 1.0)) == pytest.approx(
        wanted, abs=2e-6
    )


def test_no_gradient_reaches_the_memories_or_the_head_and_any_uneven_shift_is_felt() -> None:
    """§10 no. 3: neither Ĉ, C̃ nor ν; L_LP > 0 unless all coordinates move alike."""
    g = torch.Generator().manual_seed(0)
    z, old, centres, w = (torch.randn(n, 5, generator=g).requires_grad_() for n in (6, 3, 3, 3))
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    k: Context = bare_context(mine=Remembered(old, EVERY), server=None)
    f = forward(z, y, z @ w.T)
    losses = [Relations(1.0, 0.5, lp).loss(f, k) for lp in (SAMPLE, "feature_softmax_class", "mse")]
    losses += [global_relation(z, y, centres, EVERY, form) for form in ("class_mean", "per_sample")]
    for loss in losses:
        found = torch.autograd.grad(loss, [z, old, centres, w], allow_unused=True, retain_graph=True)
        assert found[0] is not None
        assert found[0].abs().max() > 0
        assert found[1:] == (None, None, None)
    shift = torch.tensor([0.1, 0.0, 0.0, 0.0, 0.0])
    assert float(local_relation(old[y].detach() + shift, y, old.detach(), EVERY, SAMPLE, 1.0)) > 1e-4


def test_the_defaults_are_the_papers() -> None:
    """§9: λ = β = 0.5; t = 10 of 30 local epochs (A4), T = 1; body first, refreshed prototypes (A3, A7)."""
    known = {name: p.default for name, p in inspect.signature(gldp).parameters.items()}
    assert known == {
        "lam": 0.5,
        "beta": 0.5,
        "body_epochs": 10.0,
        "head_epochs": 20.0,
        "lp": SAMPLE,
        "gp": "class_mean",
        "temperature": 1.0,
        "order": "body_first",
        "inference": "lp",
        "candidates": "all",
        "proto_snapshot": False,
    }
