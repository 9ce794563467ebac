"""Runs with plans of faults, attacks and robust means."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import raffed
from raffed import Data, Faults, Federation, Local, Model, Privacy, RunConfig, Runtime
from raffed.config.faults import ParticipantFault
from raffed.core.messages import Upload
from raffed.core.params import Params
from raffed.errors import UsageError
from raffed.federation.faults import attacked, attackers, damaged, draw_faults, is_refused
from raffed.methods import METHODS, build_method
from raffed.runs.run import RunResult
from raffed.runtime.setup import prepare_run
from tests.params import one_in
from tests.tiny import PLAIN, Tiny
from tests.tiny import body_point as point

# A plan of faults is data of the run: what it does to the result, and that it does the same everywhere.


def config(
    method: str = "fedavg", plan: Faults | None = None, rounds: int = 2, q: float = 1.0, epochs: float = 1
) -> RunConfig:
    return RunConfig(
        method=method,
        data=Data(samples=300, local_test=0.2),
        model=Model("mlp", {"hidden": [8]}),
        local=Local(epochs=epochs, batch_size=8),
        federation=Federation(rounds=rounds, participation=q, eval_every=rounds),
        runtime=Runtime(execution="serial", checkpoint_every=1),
        faults=plan or Faults(),
    )


def counts(result: RunResult, round: int) -> dict[str, float]:
    rows = result.to_pandas()
    rows = rows[(rows["round"] == round) & rows["metric"].isin(["dropped", "late", "refused", "straggling"])]
    return dict(zip(rows["metric"], rows["value"], strict=True))


def everyone_but(client: int, kind: str, rounds: str = "1") -> str:
    return ", ".join(f"{kind} {other}@{rounds}" for other in range(10) if other != client)


def test_a_plan_without_faults_is_no_plan() -> None:
    """An empty plan leaves the identity as it was before there were plans; probabilities of 0 are an
    empty plan.
    """
    assert config(plan=Faults(drop=0.0, straggle_share=0.5)).identity() == config().identity()
    assert config(plan=Faults(drop=0.1)).identity() != config().identity()
    assert counts(raffed.run(config()), 1) == {}


def test_a_straggler_that_does_its_whole_share_changes_nothing() -> None:
    plain = raffed.run(config("scamap"))
    slow = raffed.run(config("scamap", Faults(straggle=1.0, straggle_share=1.0)))
    assert [slow.hashes[name] for name in ("weights", "vaults")] == [
        plain.hashes[name] for name in ("weights", "vaults")
    ]


def test_stragglers_with_half_of_two_epochs_make_the_steps_of_one() -> None:
    """30 samples in batches of 8 are 4 steps an epoch; half of 8 are the same 4 batches."""
    half = raffed.run(config(plan=Faults(straggle=1.0, straggle_share=0.5), epochs=2))
    assert half.hashes["weights"] == raffed.run(config(epochs=1)).hashes["weights"]
    assert counts(half, 1)["straggling"] == 10


def test_drop_out_of_all_but_one_is_the_round_of_that_one() -> None:
    """With a single p_i = 1 the mean is that client's own upload, whoever else would have been there."""
    alone = raffed.run(config(plan=Faults(at=everyone_but(4, "drop")), rounds=1))
    others = raffed.run(config(plan=Faults(at=everyone_but(4, "corrupt")), rounds=1))
    assert alone.hashes["weights"] == others.hashes["weights"]
    assert counts(alone, 1)["dropped"] == 9
    train = alone.to_pandas().query("split == 'train' and metric == 'loss'").set_index("client")["value"]
    assert train.index.dropna().tolist() == [4]


@pytest.mark.parametrize("kind", ["corrupt", "late"])
def test_an_upload_that_does_not_count_leaves_the_weights_of_a_round_without_the_client(kind: str) -> None:
    left_out = raffed.run(config("scamap", Faults(at="drop 3@1, drop 7@1"), rounds=1))
    refused_ones = raffed.run(config("scamap", Faults(at=f"{kind} 3@1, {kind} 7@1"), rounds=1))
    assert refused_ones.hashes["weights"] == left_out.hashes["weights"]
    # The two have trained and keep their private state
    assert refused_ones.hashes["vaults"] != left_out.hashes["vaults"]
    assert counts(refused_ones, 1) == {"dropped": 0, "late": 0, "refused": 0, "straggling": 0} | {
        "refused" if kind == "corrupt" else "late": 2
    }


def test_a_round_without_uploads_changes_nothing_on_the_server(tmp_path: Path) -> None:
    """FedAvgM's momentum neither: the run with an empty second of three rounds resumes and ends like any
    other.
    """
    plan = Faults(at=", ".join(f"drop {client}@2" for client in range(10)))
    done: list[int] = []
    raffed.run(
        config("fedavgm", plan, rounds=3),
        tmp_path / "run",
        watch=lambda e: done.append(1),
        stop=lambda: len(done) == 2,
    )
    hashes = json.loads((tmp_path / "run/checkpoints/round-000002/state.json").read_text())["round_hashes"]
    assert hashes[0] == hashes[1]
    resumed = raffed.resume(tmp_path / "run")
    assert resumed.hashes == raffed.run(config("fedavgm", plan, rounds=3)).hashes
    assert counts(resumed, 2)["dropped"] == 10


def test_a_plan_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """Vault versions are told anew from the plan: clients that dropped out go on from their older vaults."""
    plan, done = Faults(drop=0.3, late=0.2, corrupt=0.2, straggle=0.5), list[int]()
    staged = config("scamap", plan, rounds=4, q=0.6)
    raffed.run(staged, tmp_path / "run", watch=lambda e: done.append(e.round), stop=lambda: len(done) == 3)
    assert raffed.resume(tmp_path / "run").hashes == raffed.run(staged).hashes


@pytest.mark.parametrize("method", one_in(6, METHODS))
def test_an_upload_that_is_damaged_anywhere_is_refused_and_a_sound_one_is_not(method: str) -> None:
    """Of every method, in each part that has floats, in the second round, when clients know more."""
    built = build_method(method)
    tiny = Tiny(built, local=replace(PLAIN, momentum=0.0))
    tiny.step([0, 1])
    upload = tiny.step([0, 1])[0].upload
    assert not is_refused(upload, built.keeps_uploads)
    leaves, spec = tree_flatten(upload)
    floats = [
        i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]
    for place in [i for i in floats if leaves[i].numel()]:
        for bad in (torch.nan, 2.0**100):
            hurt = leaves[place].clone().contiguous()
            hurt.view(-1)[-1] = bad
            spoilt = tree_unflatten([*leaves[:place], hurt, *leaves[place + 1 :]], spec)
            assert is_refused(spoilt, built.keeps_uploads), (place, bad)
    for how in ("nan", "range"):
        assert is_refused(damaged(upload, how, 0, 0, 0), built.keeps_uploads) or not floats


def test_struck_shares_are_the_probabilities_and_kinds_are_independent() -> None:
    """10,000 clients: shares within 4 standard deviations; the stream of one kind does not move with
    another's probability.
    """
    found = draw_faults(Faults(drop=0.2, straggle=0.5), 0, 0, range(10_000))
    dropped = {client for client, fault_of in found.items() if fault_of.outcome == "dropped"}
    slow = {client for client, fault_of in found.items() if fault_of.completed_fraction < 1}
    assert abs(len(dropped) - 2000) < 4 * 40
    assert abs(len(slow & dropped) - 1000) < 4 * 30
    alone = draw_faults(Faults(straggle=0.5), 0, 0, range(10_000))
    assert {client for client, fault_of in alone.items() if fault_of.completed_fraction < 1} == slow
    assert draw_faults(Faults(drop=0.2), 0, 1, range(10_000)) != draw_faults(
        Faults(drop=0.2), 0, 0, range(10_000)
    )


def test_the_earlier_kind_holds_and_lists_are_rounds_from_one() -> None:
    plan = Faults(at="late 1@2-3, corrupt 1@3, straggle 1@3", straggle_share=0.25)
    dice = (0.5, 0.5, 0.5, 0.5)
    assert [plan.fault_of(round, 1, dice) for round in range(4)] == [
        ParticipantFault(),
        ParticipantFault("late"),
        ParticipantFault("late", 0.25),
        ParticipantFault(),
    ]
    assert plan.fault_of(1, 2, dice) == ParticipantFault()


# Modelled attacks and robust means in runs: who attacks, what it does, and what withstands it.

KINDS = ("sign_flip", "scaling", "gaussian", "label_flip", "backdoor")


def attack(kind: str, mean: str = "", method: str = "fedavg", rounds: int = 2, **more: object) -> RunConfig:
    plan = Faults(attack=kind, attackers=0.2, **more)  # type: ignore[arg-type]
    base = config(method, plan, rounds=rounds)
    return replace(base, federation=replace(base.federation, mean=mean))


@pytest.mark.parametrize(
    ("kind", "strength", "expected"),
    [
        ("sign_flip", None, [-1.0, 2.0]),
        ("sign_flip", 3.0, [-5.0, 4.0]),
        ("scaling", None, [21.0, -9.0]),
        ("label_flip", None, [3.0, 0.0]),
        ("backdoor", None, [3.0, 0.0]),
        ("backdoor", 2.0, [5.0, -1.0]),
    ],
)
def test_what_an_attacker_sends(kind: str, strength: float | None, expected: list[float]) -> None:
    """From w^t = (1, 1) a client has trained (3, 0), so Δ = (2, −1)."""
    plan = Faults(attack=kind, attackers=0.5, attack_strength=strength)  # type: ignore[arg-type]
    made = attacked(Upload(1, point(3.0, 0.0), Params({}), {}), point(1.0, 1.0), plan, 0, 0, 0)
    assert made.w["body.w"].tolist() == expected


def test_noise_of_an_attacker_is_its_own_in_every_round() -> None:
    plan = Faults(attack="gaussian", attackers=0.5, attack_strength=2.0)
    upload, zero = Upload(1, point(*[9.0] * 4000), Params({}), {}), point(*[0.0] * 4000)
    found = [
        attacked(upload, zero, plan, 0, round, client).w["body.w"]
        for round, client in ((0, 0), (0, 1), (1, 0))
    ]
    assert abs(float(found[0].std()) - 2.0) < 4 * 2.0 / (2 * 4000) ** 0.5
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_attackers_are_as_many_as_asked_for_or_those_that_are_listed() -> None:
    plan = Faults(attack="sign_flip", attackers=0.25)
    assert len(attackers(plan, 0, range(20))) == 5
    assert attackers(plan, 0, range(20)) == attackers(plan, 0, range(20)) != attackers(plan, 1, range(20))
    assert attackers(Faults(attack="sign_flip", attacker_list="3, 5-6"), 0, range(20)) == {3, 5, 6}
    assert attackers(Faults(), 0, range(20)) == set()


@pytest.mark.parametrize("kind", one_in(2, KINDS))
def test_every_attack_changes_the_run_and_is_part_of_its_identity(kind: str) -> None:
    assert attack(kind).identity() != config().identity()
    assert raffed.run(attack(kind)).hashes["weights"] != raffed.run(config()).hashes["weights"]


def test_rows_say_how_many_attacked_and_how_often_a_backdoor_succeeds() -> None:
    rows = raffed.run(attack("backdoor", attack_strength=5.0)).to_pandas()
    assert rows.query("metric == 'attacking'")["value"].tolist() == [2.0, 2.0]
    success = rows.query("metric == 'attack_success'")
    assert success["round"].tolist() == [2]
    assert 0.0 <= success["value"].item() <= 1.0
    tests = rows.query("metric == 'accuracy' and model == 'global' and split == 'test' and `class` != 0")
    others = tests.dropna(subset=["class"])["n"].sum()
    assert success["n"].item() == others


def test_an_attack_resumes_to_the_same_bits(tmp_path: Path) -> None:
    run, done = attack("gaussian", "median", rounds=3), list[int]()
    raffed.run(run, tmp_path / "run", watch=lambda e: done.append(e.round), stop=lambda: len(done) == 2)
    assert raffed.resume(tmp_path / "run").hashes == raffed.run(run).hashes


def test_what_scaling_does_to_the_mean_it_does_not_do_to_the_median() -> None:
    """Two of ten clients with equal shares of all classes send 1000 Δ."""
    share = Data(samples=300, split="iid:10")
    hurt, robust = (
        raffed.run(replace(attack("scaling", mean, rounds=4, attack_strength=1e3), data=share))
        for mean in ("", "median")
    )
    assert robust.accuracy is not None
    assert hurt.accuracy is not None
    assert robust.accuracy > hurt.accuracy


@pytest.mark.parametrize(
    "mean", ["median", "trimmed", "krum", "multi_krum", "geometric_median", "norm_bound"]
)
def test_every_rule_is_part_of_the_identity(mean: str) -> None:
    base = config()
    made = replace(base, federation=replace(base.federation, mean=mean))
    assert made.identity() != base.identity()
    assert replace(base, federation=replace(base.federation, mean="")).identity() == base.identity()


def test_a_bound_that_nothing_reaches_is_the_run_with_the_mean() -> None:
    base = config()
    bounded = replace(base, federation=replace(base.federation, mean="norm_bound", mean_args={"bound": 1e9}))
    assert raffed.run(bounded).hashes["weights"] == raffed.run(base).hashes["weights"]


@pytest.mark.parametrize(
    ("plan", "match"),
    [
        ({"drop": 1.5}, r"faults\.drop = 1\.5"),
        ({"straggle_share": 0.0}, "straggle_share"),
        ({"at": "drop 3"}, "KIND CLIENT@ROUND"),
        ({"at": "dorp 3@1"}, "nearest: drop"),
        ({"at": "drop 3@0"}, "counted from 1"),
        ({"corrupt_kind": "inf"}, "corrupt_kind"),
        ({"attackers": 0.2}, "no effect without faults.attack"),
        ({"attack": "sign_flip"}, "who attacks"),
        ({"attack": "sign_flip", "attackers": 0.1, "attacker_list": "1"}, "who attacks"),
        ({"attack": "label_flip", "attackers": 0.1, "attack_strength": 2.0}, "no effect"),
        ({"attack": "scaling", "attackers": 0.1, "backdoor_target": 2}, "no effect"),
        ({"attack": "scalling", "attackers": 0.1}, "nearest: scaling"),
    ],
)
def test_an_impossible_plan_is_refused(plan: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        prepare_run(config(plan=Faults(**plan)))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_attackers_are_clients_that_train(seed: int) -> None:
    """docs/metrics.md: no other option is about clients that never train. Here five train and one attacks."""
    federation = Federation(rounds=1, unseen_clients=0.5)
    run = replace(config(plan=Faults(attack="sign_flip", attackers=0.2)), federation=federation, seed=seed)
    rows = raffed.run(run).to_pandas()
    assert rows[rows["metric"] == "attacking"]["value"].tolist() == [1.0]
    unseen = prepare_run(run).data.unseen[0]
    with pytest.raises(UsageError, match=f"names client {unseen}, which is not one of those that train"):
        prepare_run(replace(run, faults=Faults(attack="sign_flip", attacker_list=str(unseen))))


@pytest.mark.parametrize("unseen_clients", [0.0, 0.5])
def test_planned_faults_are_of_clients_that_train(unseen_clients: float) -> None:
    run = replace(config(), federation=Federation(rounds=1, unseen_clients=unseen_clients))
    client = (*prepare_run(run).data.unseen, 10)[0]
    with pytest.raises(
        UsageError, match=rf"faults\.at names client {client}, which is not one of those that"
    ):
        raffed.run(replace(run, faults=Faults(at=f"drop {client}@1")))


@pytest.mark.parametrize(
    ("run", "match"),
    [
        (config(plan=Faults(attack="scaling", attacker_list="10")), "10 clients, from 0 to 9"),
        (config(plan=Faults(attack="scaling", attackers=0.04)), "comes to none of them"),
        (config("solo", Faults(attack="scaling", attackers=0.2)), "share no weights"),
        (config(plan=Faults(attack="backdoor", attackers=0.2, backdoor_target=10)), "classes are 0 to 9"),
        (attack("scaling", "median", "scaffold"), "correction"),
        (attack("scaling", "median", "feddf"), "every upload in another way"),
        (attack("scaling", "median", "feddyn"), "weights of the mean elsewhere"),
        (replace(attack("scaling", "median"), privacy=Privacy(masks=True)), "only their sum"),
        (replace(attack("scaling", "median"), privacy=Privacy(clip=1.0)), "only their sum"),
        (
            replace(attack("scaling"), federation=Federation(mean="krum", mean_args={"f": 4})),
            r"2f \+ 3 = 11 uploads",
        ),
        (
            replace(attack("scaling"), federation=Federation(mean="median", weighting="samples")),
            "has no weights",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_work_starts(run: RunConfig, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        prepare_run(run)
