"""Who takes part in a run: every selection, serial and resumed, and what is refused before work starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed import Federation, Model, RunConfig, Runtime
from raffed.errors import UsageError
from raffed.runs.participation import RoundPlan
from raffed.runs.run import RunResult
from raffed.runtime.setup import prepare_run
from tests.laws.test_faults import config as usual
from tests.params import one_in


def config(selection: str = "uniform", method: str = "fedavg", rounds: int = 3, **args: object) -> RunConfig:
    base = usual(method, rounds=rounds, q=0.3)
    made = replace(base.federation, selection=selection, selection_args=args)
    return replace(base, model=Model("mlp", {"hidden": [4]}), federation=made)


def took_part(result: RunResult) -> list[list[int]]:
    rows = result.to_pandas().query("split == 'train' and metric == 'loss' and client.notna()")
    return [sorted(int(one) for one in found["client"]) for _, found in rows.groupby("round")]


def test_uniform_is_today_s_run() -> None:
    plain = usual(q=0.3)
    named = replace(plain, federation=replace(plain.federation, selection="uniform"))
    assert named.identity() == plain.identity()


@pytest.mark.parametrize(
    ("selection", "args"),
    [
        ("size", {}),
        ("size", {"replacement": False}),
        ("power_of_choice", {}),
        ("power_of_choice", {"candidates": 9}),
        ("round_robin", {}),
        ("fixed", {"clients": "0,1"}),
        ("fixed", {"clients": "0,2"}),
    ],
)
def test_every_selection_has_an_identity_of_its_own(selection: str, args: dict[str, object]) -> None:
    assert config(selection, **args).identity() != config().identity()
    assert config(selection, **args) == config(selection, **args)


def test_round_robin_and_a_list_say_who_takes_part() -> None:
    assert took_part(raffed.run(config("round_robin"))) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    listed = config("fixed", clients="1,9; 4", rounds=2)
    listed = replace(listed, federation=replace(listed.federation, participation=1.0))
    assert took_part(raffed.run(listed)) == [[1, 9], [4]]


def test_a_file_is_the_same_as_its_contents(tmp_path: Path) -> None:
    (tmp_path / "who.txt").write_text("1 9\n\n4\n")
    from_file = config("fixed", file=str(tmp_path / "who.txt"))
    assert from_file.federation == config("fixed", clients="1 9; 4").federation


@pytest.mark.parametrize("method", one_in(2, ["fedavg", "scamap"]))
def test_power_of_choice_resumes_to_the_same_bits(method: str, tmp_path: Path) -> None:
    """The participants of earlier rounds cannot be drawn again, so the checkpoint names them."""
    run, done = config("power_of_choice", method, candidates=8), list[int]()
    raffed.run(run, tmp_path / "run", watch=lambda e: done.append(e.round), stop=lambda: len(done) == 2)
    resumed, whole = raffed.resume(tmp_path / "run"), raffed.run(run)
    assert resumed.hashes == whole.hashes
    assert took_part(resumed) == took_part(whole)
    assert all(len(one) == 3 for one in took_part(whole))


def test_a_run_of_power_of_choice_is_verified_from_a_checkpoint_in_its_middle(tmp_path: Path) -> None:
    """Round 4 is executed again from the checkpoint after 3: whoever took part is in it, not drawn again."""
    kept = Runtime(execution="serial", checkpoint_every=3, keep_checkpoints=2)
    raffed.run(replace(config("power_of_choice", rounds=5), runtime=kept), tmp_path / "run")
    found = raffed.verify(tmp_path / "run", 2, progress=False)
    assert found.ok
    assert {one.round for one in found.checks if one.round is not None} == {1, 4}


def test_with_as_many_participants_as_clients_everybody_takes_part() -> None:
    run = config("power_of_choice", rounds=1)
    everyone = replace(run, federation=replace(run.federation, participation=1.0))
    assert took_part(raffed.run(everyone)) == [list(range(10))]


def test_a_client_that_is_drawn_twice_trains_once_and_counts_twice() -> None:
    """One client alone is the mean, whether it was drawn once or three times."""
    run = raffed.run(config("size", rounds=4))
    times = took_part(run)
    assert any(len(one) < 3 for one in times)
    assert all(1 <= len(set(one)) == len(one) <= 3 for one in times)


def test_the_weight_of_a_client_counts_how_often_it_was_drawn() -> None:
    """By sizes with replacement: p_k = m_k / Σ_j m_j, where client k was drawn m_k times."""
    setup = prepare_run(config("size", rounds=8))
    plans = [
        RoundPlan.of(setup.data, setup.method.mean, number, cohort=0, masks=False) for number in range(8)
    ]
    assert any(max(plan.participants.times.values()) > 1 for plan in plans)
    for plan in plans:
        times = plan.participants.times
        expected = [times[client] / times.total() for client in plan.participants.trained]
        assert plan.weights == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("federation", "match"),
    [
        (Federation(participation=0.04), r"comes to none of them; it must be above 0\.05, such as 0\.1"),
        (Federation(participation=0.3, selection="fixed", selection_args={"clients": "1"}), "leave it out"),
        (Federation(selection="fixed", selection_args={"clients": "10"}), "10 clients, from 0 to 9"),
        (
            Federation(participation=0.3, selection="power_of_choice", selection_args={"candidates": 2}),
            "between the 3 participants",
        ),
    ],
)
def test_what_cannot_be_selected_is_refused_before_work_starts(federation: Federation, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        raffed.run(replace(usual(), federation=federation))


def test_a_method_that_counts_on_its_weights_refuses_draws_with_replacement() -> None:
    with pytest.raises(UsageError, match="replacement=false"):
        prepare_run(config("size", "feddyn"))
    prepare_run(config("size", "feddyn", replacement=False))


def test_epochs_are_drawn_from_the_first_to_the_last_and_a_single_number_is_no_draw() -> None:
    base = usual(epochs=2)
    alone = replace(base, local=replace(base.local, epochs_to=2))
    drawn = replace(base, local=replace(base.local, epochs=1, epochs_to=3))
    assert raffed.run(alone).hashes["weights"] == raffed.run(base).hashes["weights"]
    assert raffed.run(drawn).hashes["weights"] != raffed.run(base).hashes["weights"]
    assert drawn.identity() != base.identity()


def test_epochs_that_a_method_sets_itself_are_not_drawn() -> None:
    base = usual("fedrep")
    with pytest.raises(UsageError, match="no effect on FedRep"):
        prepare_run(replace(base, local=replace(base.local, epochs=1, epochs_to=3)))
    with pytest.raises(UsageError, match="whole number"):
        prepare_run(replace(usual(), local=replace(base.local, epochs=0.5, epochs_to=3)))
