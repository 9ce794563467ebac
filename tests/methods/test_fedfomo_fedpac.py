"""Models and heads of others: FedFomo, FedPAC."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import raffed
from raffed.config.training import Local
from raffed.core.context import ClientData, Received
from raffed.core.messages import Broadcast, Upload
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Pass
from raffed.core.server import ListedModels, Lists, Mixtures, replied
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
from raffed.methods.fedpac import (
    CombinedHeads,
    HeadStatistics,
    TellsStatistics,
    fedpac,
    head_shares,
    simplex_minimum,
)
from raffed.methods.fedproto import prototype_pull
from raffed.methods.fedrep import fedrep
from raffed.methods.fedsam import fedsam
from raffed.methods.solo import solo
from tests.core.test_addressed import DIGITS
from tests.tiny import (
    EVERYBODY,
    PLAIN,
    Tiny,
    bare_context,
    client_data,
    clients,
    network,
    of_kind,
    same_bits,
    server_context,
)

# FedFomo: ω and mixtures by hand, the lists of the server, what is judged by held-out samples, and bytes.


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


def test_the_only_better_candidate_is_taken_bit_for_bit_and_without_any_the_old_model() -> None:
    """(2)."""
    found = mixed(OLD, OTHERS, torch.tensor([-0.1, 0.3, 0.0], dtype=torch.float64))
    assert same_bits(found, OTHERS[1])
    assert mixed(OLD, OTHERS, torch.tensor([-0.1, 0.0, -0.2])) is OLD


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


def test_the_trained_model_is_scored_and_there_is_no_global_one() -> None:
    tiny = Tiny(fedfomo(2), net=network(True)).run(2, EVERYBODY)
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


# FedPAC: what heads are compared by, the quadratic problems, combined heads, and rates of passes.

V = torch.tensor([0.1, 0.2, 0.05], dtype=torch.float64)
H = torch.tensor([[0.8, 0.1], [0.1, 0.9], [0.7, 0.2]], dtype=torch.float64)


def test_statistics_of_the_worked_example() -> None:
    """(4): z = (1, 0), (3, 0) of class 0 and (0, 2) of class 1."""
    z, y = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 1])
    k = bare_context(features=lambda state: iter([(z[:2], y[:2]), (z[2:], y[2:])]))
    k = k.replace(spec=replace(k.spec, num_classes=2, feature_dim=2), class_counts=torch.tensor([2, 1]))
    _, told = TellsStatistics().finish(k)
    assert float(told.variance) == pytest.approx(0.8148148, abs=1e-6)
    torch.testing.assert_close(told.means, torch.tensor([[1.3333333, 0.0], [0.0, 0.6666667]]))


def test_the_pull_of_the_worked_example() -> None:
    """(4): with both centres 1.1666667. With that of class 0 alone it is the mean over its samples, 1.5; the
    official rule's 1.0 divides by all three.
    """
    z, y = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 1])
    centres = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    assert float(prototype_pull(z, y, centres, torch.tensor([True, True]))) == pytest.approx(1.1666667)
    assert float(prototype_pull(z, y, centres, torch.tensor([True, False]))) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("client", "alpha", "value"),
    [
        (0, [0.4117647, 0.0, 0.5882353], 0.0411765),
        (1, [0.0, 0.8181818, 0.1818182], 0.1636364),
        (2, [0.3266888, 0.0692137, 0.6040975], 0.0302049),
    ],
)
def test_shares_of_heads_are_those_of_the_worked_example(
    client: int, alpha: list[float], value: float
) -> None:
    """(2): C 2, d 1."""
    gap = H[client] - H
    a = torch.diag(V) + gap @ gap.T
    found = simplex_minimum(a)
    torch.testing.assert_close(found, torch.tensor(alpha, dtype=torch.float64), rtol=0, atol=1e-6)
    assert float(found @ a @ found) == pytest.approx(value, abs=1e-6)
    torch.testing.assert_close(head_shares(V, H, 0.0)[client], found)


def test_equal_means_give_shares_by_inverse_variance() -> None:
    """(3)."""
    found = head_shares(V, torch.ones(3, 4, dtype=torch.float64), 0.0)
    wanted = (1 / V) / (1 / V).sum()
    torch.testing.assert_close(found, wanted.repeat(3, 1), rtol=0, atol=1e-12)


def test_a_head_without_variance_is_all_of_its_client_s() -> None:
    """One sample: V = 0, and the matrix is singular."""
    found = head_shares(torch.tensor([0.0, 0.2], dtype=torch.float64), H[:2], 0.0)
    torch.testing.assert_close(found[0], torch.tensor([1.0, 0.0], dtype=torch.float64), rtol=0, atol=1e-10)


def test_shares_below_the_floor_become_0_and_the_others_are_scaled_up() -> None:
    """Of the shares .3266888, .0692137 and .6040975."""
    wanted = [0.3266888 / 0.9307863, 0.0, 0.6040975 / 0.9307863]
    assert head_shares(V, H, 0.07)[2].tolist() == pytest.approx(wanted, abs=1e-6)
    assert head_shares(V, H, 0.7)[2].tolist() == [0.0, 0.0, 1.0]  # the largest stays
    alike = torch.ones(12, 1, dtype=torch.float64)
    assert head_shares(alike[:, 0], alike, 0.1)[0].tolist() == pytest.approx([1 / 12] * 12)


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 2**31), st.sampled_from([0.0, 1e-3, 1.0]))
def test_the_minimum_fulfils_its_conditions(clients: int, dim: int, seed: int, spread: float) -> None:
    """α ≥ 0 adds up to 1, and A α is smallest, and equal, where α is above 0."""
    draws = torch.Generator().manual_seed(seed)
    gap = torch.randn(clients, dim, generator=draws, dtype=torch.float64)
    variance = spread * torch.rand(clients, generator=draws, dtype=torch.float64) + 1e-3
    a = torch.diag(variance) + gap @ gap.T
    alpha = simplex_minimum(a)
    assert float(alpha.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(alpha.min()) >= 0.0
    slope = a @ alpha
    level = float(alpha @ slope)
    assert float((slope - level).min()) >= -1e-10
    assert float((alpha * (slope - level)).abs().max()) <= 1e-10


def test_clients_download_their_combined_heads_under_the_mean_body() -> None:
    """(2): heads 1, 2, 4 give client 1 2.7647059. (5): an absent client keeps its last head."""
    w = Params({"body.w": torch.tensor([7.0]), "head.weight": torch.tensor([[5.0]])}).clone()
    sent = [
        Upload(
            1,
            Params({"body.w": torch.tensor([0.0]), "head.weight": torch.tensor([[head]])}).clone(),
            Params({}),
            {"message": HeadStatistics(v.float(), h.float()[:, None])},
        )
        for head, v, h in zip((1.0, 2.0, 4.0), V, H, strict=True)
    ]
    rule = CombinedHeads(0.0)
    k = server_context(received={"server": Received(3, None, tuple(sent), (0, 1, 2))})
    table, _ = rule.step(None, w, w, k)
    assert head(table, w, 0) == pytest.approx(2.7647059, abs=1e-5)
    assert head(table, w, 3) == 5.0  # it never took part
    alone = server_context(received={"server": Received(1, None, (sent[1],), (1,))})
    later, _ = rule.step(table, w, w, alone)
    assert (head(later, w, 0), head(later, w, 1)) == (head(table, w, 0), 2.0)


def head(table: Mixtures, w: Params, client: int) -> float:
    sent = replied(Broadcast(1, w, Params({}), {"server": table}), client)
    assert sent.w["body.w"].tolist() == [7.0]
    return float(sent.w["head.weight"])


@pytest.mark.parametrize("norm", [False, True])
def test_with_shares_e_i_and_without_a_pull_it_is_fedrep(norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """(1)."""
    monkeypatch.setattr(
        "raffed.methods.fedpac.head_shares",
        lambda variance, *_: torch.eye(len(variance), dtype=torch.float64),
    )
    mine, plain = (
        Tiny(m, net=network(norm)).run(3, EVERYBODY)
        for m in (fedpac(lam=0.0, head_lr_scale=1.0), fedrep(1.0, 1.0))
    )
    for client in EVERYBODY:
        one, other = mine.last[client].trained.w.flat, plain.last[client].trained.w.flat
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_statistics_are_those_of_the_downloaded_model() -> None:
    tiny = Tiny(fedpac(), net=network(True)).run(2, EVERYBODY)
    done, data = tiny.visit(3), tiny.data[3]
    z = tiny.net.apply(done.start, data.x)[1].double()
    told = of_kind(done.upload.slots["message"], HeadStatistics)
    h = torch.stack([z[data.y == c].sum(0) / data.n for c in range(3)])
    torch.testing.assert_close(told.means, h.float())
    variance = (z.square().sum() / data.n - h.square().sum()) / data.n
    assert float(told.variance) == pytest.approx(float(variance), rel=1e-5)


def test_a_pass_steps_by_its_own_multiple_of_the_rate() -> None:
    """A pass at ten times a tenth of the rate is a pass at the rate; so is its sum of rates."""
    slow = replace(PLAIN, lr=PLAIN.lr / 10)
    mine = Tiny(Method("x", passes=(Pass(lr_scale=10.0),)), local=slow).run(2, EVERYBODY)
    plain = Tiny(Method("x", passes=(Pass(),))).run(2, EVERYBODY)
    torch.testing.assert_close(mine.server.w.flat, plain.server.w.flat, rtol=0, atol=1e-6)


@pytest.mark.parametrize("cohort", [False, True])
def test_the_sum_of_the_rates_counts_each_pass_at_its_own(cohort: bool) -> None:
    """Client 0 makes 2 steps an epoch: 2 · 0.5 η + 2 · η."""
    method = Method("x", passes=(Pass("head", lr_scale=0.5), Pass("body")), message=TellsStatistics())
    done = Tiny(method, cohort=cohort).step([0, 1])[0]
    assert done.views["message"].lr_sum == pytest.approx(3 * PLAIN.lr)


def test_a_schedule_by_steps_is_scaled_as_well() -> None:
    local = Local(lr=0.1, batch_size=4, epochs=1, schedule="cosine", schedule_by="step")
    half, whole = (
        Tiny(Method("x", passes=(Pass(lr_scale=scale),), message=TellsStatistics()), local=local).step([0])[0]
        for scale in (0.5, 1.0)
    )
    assert half.views["message"].lr_sum == pytest.approx(whole.views["message"].lr_sum / 2)


def test_a_scale_beside_a_solver_is_refused() -> None:
    with pytest.raises(UsageError, match="lr_scale"):
        replace(fedsam(), passes=(Pass(lr_scale=2.0),))


def test_without_epochs_of_the_head_it_is_not_trained() -> None:
    done = Tiny(fedpac(head_epochs=0.0)).visit(1)
    assert torch.equal(done.trained.w["head.weight"], done.start.w["head.weight"])
    assert isinstance(done.trained, State)
