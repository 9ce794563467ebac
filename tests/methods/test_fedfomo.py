"""FedFomo: ω and mixtures by hand, the lists of the server, what is judged by held-out samples, and bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import raffed
from raffed.core.context import ClientData, Received
from raffed.core.messages import Broadcast
from raffed.core.params import Params, State
from raffed.core.server import ListedModels, Lists, replied
from raffed.errors import UsageError
from raffed.methods.fedfomo import (
    JudgedModel,
    LastStart,
    Peers,
    PreferredPeers,
    distance,
    fedfomo,
    mixed,
    peers,
    point_of,
    preferences,
    scale,
)
from raffed.methods.solo import solo
from tests.core.test_addressed import DIGITS
from tests.golden.regenerate import B, P
from tests.tiny import EVERYBODY, Tiny, client_data, clients, network, of_kind, same_bits, server_context


def model(*values: float) -> State:
    return State(Params({"w": torch.tensor(values)}).clone(), Params({}))


OLD = model(0.0, 0.0)
OTHERS = [model(3.0, 4.0), model(1.0, 0.0), model(0.0, 1.0)]


def table(tiny: Tiny) -> Peers:
    return of_kind(tiny.server.slots["server"], Peers)


def judged(tiny: Tiny, client: int) -> JudgedModel:
    return of_kind(tiny.last[client].upload.slots["opening"], JudgedModel)


def with_parts() -> list[ClientData]:
    """Clients with five held-out samples each, drawn apart."""
    parts = [client_data(5, (0, 1, 2), 300 + i) for i in range(4)]
    return [replace(one, held_out=(part.x, part.y)) for one, part in zip(clients(), parts, strict=True)]


@pytest.mark.parametrize(
    ("norm", "omega", "ends"),
    [
        ("l2", [0.08, 0.2, -0.3], [1.5714286, 1.1428571]),
        ("l1", [0.0571429, 0.2, -0.3], [1.4444444, 0.8888889]),
    ],
)
def test_a_worked_example_has_these_preferences_and_this_mixture(
    norm: Any, omega: list[float], ends: list[float]
) -> None:
    """(1)."""
    distances = [distance(one.w, OLD.w, norm) for one in OTHERS]
    found = preferences(0.9, [0.5, 0.7, 1.2], distances)
    assert found.tolist() == pytest.approx(omega, abs=1e-7)
    assert mixed(OLD, OTHERS, found).w["w"].tolist() == pytest.approx(ends, abs=1e-6)


def test_without_a_better_candidate_a_client_begins_with_its_old_model_bit_for_bit() -> None:
    """(2)."""
    assert mixed(OLD, OTHERS, torch.tensor([-0.1, 0.0, -0.2])) is OLD


def test_the_only_better_candidate_is_taken_bit_for_bit() -> None:
    found = mixed(OLD, OTHERS, torch.tensor([-0.1, 0.3, 0.0], dtype=torch.float64))
    assert same_bits(found, OTHERS[1])


def test_a_candidate_that_is_the_old_model_has_preference_0() -> None:
    """(4)."""
    found = preferences(0.9, [0.9, 0.5], [distance(OLD.w, OLD.w, "l2"), 2.0])
    assert found.tolist() == [0.0, 0.2]
    assert mixed(OLD, [OLD, OTHERS[0]], found).w["w"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize("norm", [False, True])
def test_without_models_of_others_it_is_local_training(norm: bool) -> None:
    """(3)."""
    mine, alone = (Tiny(m, net=network(norm)).run(3, EVERYBODY) for m in (fedfomo(0), solo()))
    for client in EVERYBODY:
        assert same_bits(mine.last[client].trained, alone.last[client].trained)


def test_the_preferred_others_come_first_and_nobody_gets_its_own_model() -> None:
    preference = torch.tensor([9.0, 0.1, 0.5, 0.3, 0.7])
    known = torch.tensor([True, True, True, True, False])
    draw = torch.Generator().manual_seed(0)
    assert peers(preference, known, 0, 2, 0.0, draw).tolist() == [2, 3]
    assert peers(preference, known, 0, 5, 0.0, draw).tolist() == [2, 3, 1, -1, -1]
    assert peers(preference, torch.zeros(5, dtype=torch.bool), 0, 2, 0.5, draw).tolist() == [-1, -1]


def test_equal_preferences_and_exploration_are_decided_at_random_without_repetition() -> None:
    known, draw = torch.ones(6, dtype=torch.bool), torch.Generator().manual_seed(0)
    for preference, chance in ((torch.zeros(6), 0.0), (torch.arange(6.0), 1.0)):
        lists = [peers(preference, known, 0, 2, chance, draw).tolist() for _ in range(200)]
        assert {i for one in lists for i in one} == {1, 2, 3, 4, 5}
        assert all(len(set(one)) == 2 for one in lists)
    half = [peers(torch.arange(6.0), known, 0, 1, 0.5, draw).tolist()[0] for _ in range(2000)]
    assert half.count(5) / 2000 == pytest.approx(0.6, abs=0.05)  # ½ + ½ · 1/5


@pytest.mark.parametrize(("scaled", "row"), [(False, [0.5, 2.0, -1.0]), (True, [0.5, 2.0 / 3, -1.0 / 3])])
def test_the_server_adds_up_preferences_of_participants(scaled: bool, row: list[float]) -> None:
    """ω = (0, 4, −1) has the sum 3; before it P is (½, −2, 0), or (½, −⅔, 0)."""
    first = torch.tensor([[0.5, -2.0, 0.0], [1.0, 0.0, 2.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    first[0, 1] = -2.0 / 3 if scaled else -2.0
    own = Peers(torch.zeros(3, 1), torch.zeros(3, 0), torch.zeros(3, 2).long(), torch.ones(3).bool(), first)
    sent = JudgedModel(Params({"w": torch.tensor([7.0])}), Params({}), torch.tensor([0.0, 4.0, -1.0]))
    k = server_context(received={"opening": Received(1, each=(sent,), clients=(0,))})
    k = replace(k, spec=replace(k.spec, num_clients=3))
    found, _ = PreferredPeers(2, 0.0, 0.0, scaled).step(own, Params({}), Params({}), k)
    assert found.preference.tolist() == [pytest.approx(row), [1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    assert found.rows.flatten().tolist() == [7.0, 0.0, 0.0]
    assert found.chosen[0].tolist() == [1, 2]
    assert found.chosen[1].tolist() == [2, 0]
    assert scale(0.0) == 1e-9


def test_a_client_gets_its_list_and_one_that_is_not_known_gets_nobody() -> None:
    lists = Lists(
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0], [6.0]]), torch.tensor([[1, -1], [0, -1]])
    )
    sent = Broadcast(3, Params({}), Params({}), {"server": lists})
    first, stranger = (replied(sent, client).slots for client in (0, 9))
    assert isinstance(first["opening"], ListedModels)
    assert first["opening"].w.tolist() == [[3.0, 4.0], [0.0, 0.0]]
    assert first["opening"].number.tolist() == [2, 0]
    assert first["opening"].b.tolist() == [[6.0], [0.0]]
    assert set(first) == set(stranger) == {"opening"}
    assert stranger["opening"].nbytes() == 0
    assert first["opening"].nbytes() == 4 * (1 + 2 + 1)  # its number, two weights and a statistic


@pytest.mark.parametrize("judge", ["val", "train"])
def test_losses_are_of_held_out_samples_or_of_the_training_samples(judge: Any) -> None:
    tiny = Tiny(fedfomo(2, explore=0.0, judge=judge), net=network(True), data=with_parts()).run(2, EVERYBODY)
    held, states = table(tiny), dict(tiny.client_states)
    tiny.step(EVERYBODY)
    for client, data in enumerate(tiny.data):
        state = states[client]
        own, kept = State(state.v, state.b), state.slots["opening"]
        assert isinstance(kept, LastStart)
        x, y = data.held_out if judge == "val" and data.held_out else (data.x, data.y)

        def loss(one: State, x: torch.Tensor = x, y: torch.Tensor = y) -> float:
            return float(cross_entropy(tiny.net.apply(one, x)[0], y))

        others = held.chosen[client].tolist()
        like = tiny.net.initial
        pairs = [(held.rows[i], held.statistics[i]) for i in others]
        models = [own, *(State(point_of(w, like.w), point_of(b, like.b)) for w, b in pairs)]
        gaps = [float((one.w.flat - kept.old.w.flat).double().norm()) for one in models]
        wanted = [(loss(kept.old) - loss(one)) / gap for one, gap in zip(models, gaps, strict=True)]
        found = judged(tiny, client).omega
        assert found[[client, *others]].tolist() == pytest.approx(wanted, abs=1e-5)
        assert int(found.count_nonzero()) == 3
        after = of_kind(tiny.client_states[client].slots["opening"], LastStart)
        positive = torch.tensor(wanted).clamp(min=0)
        assert positive.any()
        start = (positive / positive.sum()) @ torch.stack([one.w.flat for one in models])
        torch.testing.assert_close(after.old.w.flat, start, rtol=0, atol=1e-5)


def test_what_leaves_a_client_is_its_model_and_a_row_and_down_go_m_models() -> None:
    tiny = Tiny(fedfomo(2), net=network(True)).run(2, EVERYBODY)
    assert tiny.last[1].upload.nbytes() == 4 * (P + B + 4)
    assert replied(tiny.server.broadcast(), 1).nbytes() == 4 * 2 * (P + B + 1)
    assert not tiny.method.has_global
    assert same_bits(tiny.last[1].personal_state(tiny.method), tiny.last[1].trained)


def test_exploration_differs_from_round_to_round_and_is_that_of_the_seed() -> None:
    first, again = (Tiny(fedfomo(1, explore=1.0, explore_decay=0.0)) for _ in range(2))
    seen = set()
    for _ in range(6):
        first.step(EVERYBODY)
        again.step(EVERYBODY)
        assert torch.equal(table(first).chosen, table(again).chosen)
        seen.add(tuple(table(first).chosen.flatten().tolist()))
    assert len(seen) > 1


def test_a_run_without_validation_parts_is_refused_unless_training_samples_judge() -> None:
    with pytest.raises(UsageError, match=r"FedFomo: .* data.validation is 0; set it"):
        raffed.run(replace(DIGITS, method="fedfomo"))
    rows = raffed.run(replace(DIGITS, method="fedfomo", args={"judge": "train"})).to_pandas()
    assert len(rows)


def test_a_run_with_validation_parts_judges_by_them_in_stacks_and_one_by_one() -> None:
    """Whether they reach the clients shows in the results, which differ from those by training samples."""
    held = replace(DIGITS, method="fedfomo", data=replace(DIGITS.data, validation=0.25))

    def losses(config: Any) -> list[float]:
        rows = raffed.run(config).to_pandas()
        kept = rows[(rows["metric"] == "loss") & (rows["model"] == "local")]
        return [float(value) for value in kept["value"]]

    alone = losses(held)
    stacked = losses(replace(held, numerics=replace(held.numerics, cohort=3)))
    assert stacked == pytest.approx(alone, rel=1e-4)
    assert alone != losses(replace(held, args={"judge": "train"}))
