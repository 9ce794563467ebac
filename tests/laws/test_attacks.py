"""Modelled attacks and robust means in runs: who attacks, what it does, and what withstands it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import raffed
from raffed import Data, Faults, Federation, Privacy, RunConfig
from raffed.core.messages import Upload
from raffed.core.params import Params
from raffed.errors import UsageError
from raffed.federation.faults import attacked, attackers
from raffed.runtime.setup import prepare_run
from tests.laws.test_faults import config
from tests.params import one_in
from tests.tiny import body_point as point

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
    assert len(attackers(plan, 0, 20)) == 5
    assert attackers(plan, 0, 20) == attackers(plan, 0, 20) != attackers(plan, 1, 20)
    assert attackers(Faults(attack="sign_flip", attacker_list="3, 5-6"), 0, 20) == {3, 5, 6}
    assert attackers(Faults(), 0, 20) == set()


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


def test_a_trimmed_mean_without_trimming_is_the_run_with_uniform_weights() -> None:
    base = config()
    plain = replace(base, federation=replace(base.federation, weighting="clients"))
    none = replace(base, federation=replace(base.federation, mean="trimmed", mean_args={"beta": 0.0}))
    assert raffed.run(none).hashes["weights"] == raffed.run(plain).hashes["weights"]


def test_a_bound_that_nothing_reaches_is_the_run_with_the_mean() -> None:
    base = config()
    bounded = replace(base, federation=replace(base.federation, mean="norm_bound", mean_args={"bound": 1e9}))
    assert raffed.run(bounded).hashes["weights"] == raffed.run(base).hashes["weights"]


@pytest.mark.parametrize(
    ("plan", "match"),
    [
        ({"attackers": 0.2}, "no effect without faults.attack"),
        ({"attack": "sign_flip"}, "who attacks"),
        ({"attack": "sign_flip", "attackers": 0.1, "attacker_list": "1"}, "who attacks"),
        ({"attack": "label_flip", "attackers": 0.1, "attack_strength": 2.0}, "no effect"),
        ({"attack": "scaling", "attackers": 0.1, "backdoor_target": 2}, "no effect"),
        ({"attack": "scalling", "attackers": 0.1}, "nearest: scaling"),
    ],
)
def test_an_impossible_attack_is_refused(plan: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        prepare_run(config(plan=Faults(**plan)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("run", "match"),
    [
        (config(plan=Faults(attack="scaling", attacker_list="10")), "clients are 0 to 9"),
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
