"""The inherited private model of FedPHP, MAP and ScaMAP (docs/papers/map.md §6 H1-H4, M2-M5; §2.1, §3)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.core.context import Spec
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.methods.fedavg import fedavg
from raffed.methods.fedphp import Heirloom, Inheritance, fedphp
from raffed.methods.map import InheritedModel, map_, scamap
from tests.tiny import PLAIN, Tiny, bare_context, network, of_kind, privately_trained, same_bits

SPEC_30 = Spec(3, 5, 100, 30)  # Q·T = 0.2 · 150
INHERITING = {"fedphp": fedphp, "map": map_, "scamap": scamap}


def point(values: Tensor) -> State:
    return State(Params({"w": values}).clone(), Params({}))


def inherited(own: Tensor, model: State, times: int, mu: float = 0.9, spec: Spec = SPEC_30) -> Heirloom:
    k = bare_context(spec=spec, mine=Heirloom(model, torch.tensor(times)))
    return Inheritance(mu=mu).inherit(point(own), k)


def test_the_first_hpm_is_the_clients_model_whatever_was_there_before() -> None:
    """H1: NaN before, none after; 0·NaN is NaN, so it has to be a branch."""
    own = torch.tensor([1.0, -2.0, 3.0])
    first = inherited(own, point(torch.full((3,), float("nan"))), times=0)
    assert torch.equal(first.model.w["w"], own)
    assert int(first.times) == 1


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("transfer", ["kd", "mmd"])
@pytest.mark.parametrize("name", INHERITING)
def test_at_the_first_participation_no_nan_of_the_hpm_reaches_anything(
    name: str, transfer: str, norm: bool
) -> None:
    """H1 and §3.5, through the whole round: with a NaN model, z = 0, upload and HPM are those of a fresh
    client.
    """
    tiny = Tiny(INHERITING[name](transfer=transfer), net=network(norm))
    clean = tiny.visit(0)
    client_state = clean.client_state
    own = of_kind(client_state.slots["personal"], Heirloom)
    broken = Heirloom(State(own.model.w * float("nan"), own.model.b * float("nan")), torch.tensor(0))
    fresh = {
        slot: v.replace(c=v.c.zeros()) if slot == "correction" else broken
        for slot, v in client_state.slots.items()
    }  # type: ignore[attr-defined]
    done = tiny.visit(0, client_state=client_state.replace(slots=fresh))
    assert same_bits(done.upload, clean.upload)
    assert same_bits(done.client_state, clean.client_state)


def test_the_hpm_of_basis_vectors_holds_the_closed_form_weights() -> None:
    """H2, §2.1: ψ = Σ_j (1−μ^(j)) Π_{l>j} μ^(l) ω^(j) with ω^(j) = e_j; the weights sum to 1 because
    μ^(1) = 0.
    """
    turns = 6
    mus = [min(0.9 * z / 4, 0.9) for z in range(turns)]  # Q·T = 4: 0, .225, .45, .675, .9, .9
    weights = [1.0] * turns
    for j in range(turns):
        weights[j] = 1 - mus[j]
        for later in mus[j + 1 :]:
            weights[j] *= later
    psi = point(torch.zeros(turns))
    for z in range(turns):
        psi = inherited(torch.eye(turns)[z], psi, z, spec=Spec(3, 5, 4, 4)).model
    torch.testing.assert_close(psi.w["w"], torch.tensor(weights), rtol=1e-5, atol=1e-7)
    assert sum(weights) == pytest.approx(1.0, abs=1e-12)
    assert float(psi.w["w"].sum()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("times", "mu_k"), [(0, 0.0), (1, 0.03), (15, 0.45), (30, 0.9), (45, 0.9)])
def test_the_weight_of_the_past_grows_by_participations_and_is_clipped(times: int, mu_k: float) -> None:
    """H3: Q·T = 30, μ = 0.9: ψ = μ_k·1 + (1 − μ_k)·0 = μ_k."""
    got = inherited(torch.zeros(1), point(torch.ones(1)), times).model.w["w"]
    assert float(got) == pytest.approx(mu_k, abs=1e-6)


def test_after_30_of_30_expected_participations_9_3_models_count() -> None:
    """§2.1: 1/Σ weights² of the models in ψ, seen by giving each participation a direction of its own."""
    psi = point(torch.zeros(30))
    for z in range(30):
        psi = inherited(torch.eye(30)[z], psi, z).model
    weights = psi.w["w"]
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(1 / weights.square().sum()) == pytest.approx(9.3, abs=0.05)


@given(st.floats(0, 1), st.integers(1, 60))
def test_the_upper_clip_is_0_9_whatever_mu_is(mu: float, times: int) -> None:
    """§7 no. 14, literal in the authors' code."""
    got = inherited(torch.zeros(1), point(torch.ones(1)), times, mu=mu).model.w["w"]
    assert float(got) == pytest.approx(min(mu * times / 30, 0.9), abs=1e-6)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", INHERITING)
def test_participations_are_counted_and_absent_clients_are_untouched_bit_for_bit(
    name: str, norm: bool
) -> None:
    """H4: Σ_k z_k = t·|S|."""
    tiny = Tiny(INHERITING[name](), net=network(norm))
    for t in range(1, 5):
        before = dict(tiny.client_states)
        chosen = tiny.drawn()
        tiny.step(chosen)
        counts = [int(v.slots["personal"].times) for v in tiny.client_states.values()]  # type: ignore[attr-defined]
        assert sum(counts) == 2 * t
        for client in set(before) - set(chosen):
            assert tiny.client_states[client] is before[client]


@pytest.mark.parametrize("name", ["fedphp", "map"])
def test_the_hpm_is_a_frozen_teacher_during_the_round(name: str) -> None:
    """H4: ψ found at the start is bit-unchanged by training; only a new one is made at the end."""
    tiny = Tiny(INHERITING[name](lam=0.5), net=network(norm=True)).run(2, [0, 1])
    kept = tiny.client_states[0].slots["personal"].model.clone()  # type: ignore[attr-defined]
    done = tiny.visit(0)
    assert same_bits(tiny.client_states[0].slots["personal"].model, kept)  # type: ignore[attr-defined]
    assert not same_bits(done.client_state.slots["personal"].model, kept)  # type: ignore[attr-defined]


def test_with_batchnorm_the_hpms_statistics_are_those_of_the_clients_data() -> None:
    """§3.3: after eq. 10 the running mean equals the exact data mean of ψ's own pre-activations."""
    tiny = Tiny(map_(), net=network(norm=True)).run(3, [0, 1])
    psi: State = tiny.client_states[0].slots["personal"].model  # type: ignore[attr-defined]
    inner = tiny.data[0].x @ psi.w["body.fc.weight"].T + psi.w["body.fc.bias"]
    torch.testing.assert_close(psi.b["body.norm.running_mean"], inner.mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", INHERITING)
def test_the_personal_score_is_that_of_the_hpm_after_its_update(name: str) -> None:
    """§0 no. 5."""
    tiny = Tiny(INHERITING[name]()).run(2, [0, 1])
    done = tiny.visit(0)
    assert same_bits(done.personal_state(tiny.method), done.client_state.slots["personal"].model)  # type: ignore[attr-defined]


def test_map_with_nothing_to_add_is_fedavg_in_both_scores() -> None:
    """M2: α = 1, λ = 0, μ = 0, no stage-2 step."""
    bare = map_(alpha=1.0, lam=0.0, mu=0.0, share=0.0, least=0)
    mine, plain = Tiny(bare).run(3), Tiny(fedavg()).run(3)
    assert same_bits(mine.server, plain.server)
    for client, done in mine.last.items():
        assert same_bits(done.personal_state(bare), plain.last[client].personal_state(plain.method))


@pytest.mark.parametrize("method", [map_(lr_scale=0.0), fedphp()], ids=lambda one: one.name)
def test_the_hpm_inherits_what_was_uploaded_where_stage_2_starts_at_it_and_stands_still(
    method: Method,
) -> None:
    """M3: with stage-2 rate 0, ω^per = ω_k; §2.4: FedPHP has no stage 2. So eq. 10 has ω_k itself at the
    first visit, then 0.225 of it and 0.775 of the second ω_k.
    """
    tiny = Tiny(method)
    first = tiny.step([0])[0]
    assert same_bits(first.upload.w, first.trained.w)
    assert first.views["personal"].private is None or same_bits(
        first.views["personal"].private, first.trained
    )
    assert same_bits(first.client_state.slots["personal"].model, first.trained)  # type: ignore[attr-defined]
    second = tiny.step([0])[0]
    mixed = 0.225 * first.trained + 0.775 * second.trained  # μ_k = 0.9·1/4
    got: State = second.client_state.slots["personal"].model  # type: ignore[attr-defined]
    torch.testing.assert_close(got.w.flat, mixed.w.flat, rtol=1e-5, atol=1e-6)
    assert not same_bits(first.trained.w, second.trained.w)


def test_stage_2_does_move_and_what_is_uploaded_is_stage_1() -> None:
    """§3.1: ω_k is uploaded, ω^per is not."""
    done = Tiny(map_()).visit(0)
    assert same_bits(done.upload.w, done.trained.w)
    assert not same_bits(done.views["personal"].private, done.trained)


@pytest.mark.parametrize(
    ("method", "n", "epochs", "steps"),
    [
        (map_(), 8, 5, 5),
        (map_(), 44, 10, 11),
        (scamap(), 44, 10, 22),
        (map_(share=0.0, least=0), 44, 10, 0),
    ],
)
def test_stage_2_lasts_as_long_as_the_table_of_section_3_2_says(
    method: Method, n: int, epochs: int, steps: int
) -> None:
    """max(int(0.1 n₁), 5) at 0.2η for MAP, max(int(0.2 n₁), 5) at 0.5η for ScaMAP; n₁ = E·⌈n/B⌉ = 10,
    110, 110.
    """
    personal = of_kind(method.personal, InheritedModel)
    n1 = epochs * -(-n // 4)
    budget = personal.budget(bare_context(steps=n1))
    assert budget is not None
    assert budget.steps == steps
    assert budget.lr_scale == (0.5 if method.name == "ScaMAP" else 0.2)
    assert budget.momentum is None  # the run's


def test_scamaps_stage_2_uses_the_runs_momentum_and_no_control_variates() -> None:
    """§4: with c ≠ 0, MAP's stage 2 from the same ω_k, with ScaMAP's share and rate, takes the same steps
    bit for bit.
    """
    tiny = Tiny(scamap(), net=network()).run(2, [0, 1, 2, 3])
    assert float(tiny.server.slots["correction"].c.sq_norm()) > 0  # type: ignore[union-attr]
    done = tiny.visit(0)
    view = done.views["personal"]
    alone = map_(share=0.2, lr_scale=0.5)
    entry = view.replace(mine=tiny.client_states[0].slots["personal"], private=None)
    again = privately_trained(alone, tiny, entry, tiny.data[0])
    assert same_bits(again, view.private)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(
    "change", [{"share": 0.0, "least": 0}, {"lr_scale": 0.0}, {"lam": 0.9}, {"transfer": "mmd"}]
)
def test_scamaps_control_update_does_not_see_stage_2(change: dict[str, object], norm: bool) -> None:
    """M5: c_k⁺ uses stage 1's displacement, steps and rate."""
    one = Tiny(scamap(), net=network(norm)).run(3)
    two = Tiny(scamap(**change), net=network(norm)).run(3)  # type: ignore[arg-type]
    assert set(one.client_states) == set(two.client_states)
    for client in one.client_states:
        assert same_bits(
            one.client_states[client].slots["correction"], two.client_states[client].slots["correction"]
        )


def test_without_transfer_stage_2_is_fine_tuning_and_the_hpm_still_averages() -> None:
    """§3.5: λ = 0."""
    local = replace(PLAIN, epochs=2)
    tiny = Tiny(map_(lam=0.0), local=local).run(2, [0])
    assert int(tiny.client_states[0].slots["personal"].times) == 2  # type: ignore[attr-defined]
    assert not same_bits(
        tiny.client_states[0].slots["personal"].model, tiny.last[0].views["personal"].private
    )  # type: ignore[attr-defined]
