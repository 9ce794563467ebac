"""The laws through the front door: `raffed.run` on digits, serial, hashes of every round's weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import Federation, Local, Model, RunConfig
from tests.tiny import SHORT, digits

BASE = digits(hidden=10, federation=Federation(3, 0.5))
BATCHNORM = replace(
    BASE,
    model=Model("resnet8"),
    local=Local(lr=0.05, batch_size=32, epochs=0.4),
    federation=Federation(rounds=2, participation=0.34),
)


def rounds_of(path: Path, method: str, config: RunConfig = BASE, **args: Any) -> list[str]:
    """SHA-256 of weights and buffers after every round."""
    raffed.run(replace(config, method=method, args=args), out=path / f"{method}-{len(list(path.iterdir()))}")
    found = max(path.iterdir(), key=lambda p: int(p.name.rpartition("-")[2]))
    hashes: list[str] = json.loads((found / "run.json").read_text())["round_hashes"]
    assert len(set(hashes)) == config.federation.rounds  # it trains
    return hashes


def test_fedavg_and_every_method_at_0_give_the_same_weights_after_every_round(tmp_path: Path) -> None:
    plain = rounds_of(tmp_path, "fedavg")
    assert rounds_of(tmp_path, "fedprox", mu=0.0) == plain
    assert rounds_of(tmp_path, "fedrs", alpha=1.0) == plain
    assert rounds_of(tmp_path, "fedmr", mu1=0.0, mu2=0.0) == plain
    assert rounds_of(tmp_path, "fedprox", mu=0.5) != plain


@pytest.mark.parametrize(("with_personal", "without"), [("map", "fedrs"), ("scamap", "scars")])
def test_the_servers_of_map_and_scamap_are_those_of_fedrs_and_scars(
    with_personal: str, without: str, tmp_path: Path
) -> None:
    """docs/papers/map.md §6 M1 with a BatchNorm net."""
    mine = rounds_of(tmp_path, with_personal, BATCHNORM, lam=0.5, transfer="mmd")
    assert mine == rounds_of(tmp_path, without, BATCHNORM)


JUDGED_BY_MORE = (  # whose scores take more than a forward pass of what is sent or kept
    "map",
    "flda",
    "fedrod",
    "ditto",
    "fedproto",
    "feddf",
    "finetune",
    "pfedme",
    "perfedavg",
    "apfl",
    "gldp",
    "mpfedcon",
)


SHORT_OF_THEM = {"map", "fedrod", "ditto", "feddf", "gldp"}  # of each kind of judgement one


@pytest.mark.more
@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=[] if m in SHORT_OF_THEM else [pytest.mark.slow]) for m in JUDGED_BY_MORE],
)
def test_evaluating_every_round_or_only_at_the_end_gives_the_same_weights_and_vaults(method: str) -> None:
    """docs/papers/baselines.md G4, with a BatchNorm net."""
    data = replace(BATCHNORM.data, local_test=0.2, samples=600)
    config = replace(BATCHNORM, method=method, args=SHORT.get(method, {}), data=data)
    seldom = replace(config, federation=replace(config.federation, eval_every=2))
    often, rare = raffed.run(config), raffed.run(seldom)
    assert often.hashes["weights"] == rare.hashes["weights"]
    assert often.hashes["vaults"] == rare.hashes["vaults"]
    assert often.metrics.num_rows > rare.metrics.num_rows


def test_every_method_has_the_same_split() -> None:
    """docs/papers/map.md §E2.3 S5: the hash of all index lists, whatever the method; but for those that
    take labelled images out of the pool first.
    """
    from raffed.methods import METHODS, build_method
    from raffed.runtime.setup import prepare_run

    reserving = {name for name in METHODS if build_method(name).server.required_data().labelled}
    args = {"fedfomo": {"judge": "train"}}  # by default it judges by samples that are held out
    found = {
        prepare_run(replace(BASE, method=name, args=args.get(name, {}))).partition.sha256()
        for name in METHODS
        if name not in reserving
    }
    assert len(found) == 1
    assert reserving == {"fedic"}


def test_scores_do_not_depend_on_alpha_where_weights_do_not() -> None:
    """docs/papers/map.md §6 R5: with rate 0 the model never moves, so every accuracy and test loss is the
    same for α = 0.1 and 1.
    """
    still = replace(BASE, method="fedrs", local=replace(BASE.local, lr=0.0))
    scores = []
    for alpha in (0.1, 1.0):
        rows = raffed.run(replace(still, args={"alpha": alpha})).to_pandas()
        rows = rows[rows["split"] != "train"]
        scores.append(
            rows[["round", "client", "class", "model", "split", "metric", "value"]].reset_index(drop=True)
        )
    assert len(scores[0]) > 30
    assert scores[0].equals(scores[1])


def test_the_personal_score_of_a_single_model_method_is_the_local_one_after_training() -> None:
    """docs/papers/baselines.md §0, Definition 2: FedAvg's Def. 2 is ω_k after local training; MAP's is
    not.
    """
    for method, equal in (("fedavg", True), ("map", False)):
        rows = raffed.run(replace(BASE, method=method)).to_pandas()
        rows = rows[(rows["split"] == "local_test") & (rows["metric"] == "accuracy") & rows["client"].notna()]
        rows = rows.sort_values(["round", "client"])
        values = [list(rows[rows["model"] == model]["value"]) for model in ("local", "personal")]
        assert len(values[0]) == 9  # 3 clients in each of 3 rounds
        assert (values[0] == values[1]) == equal


@pytest.mark.parametrize("split", ["stages:20:4:1:if5", "stages:4:4:5:if5"])
def test_gldp_by_its_clients_own_prototypes_is_above_chance(split: str) -> None:
    """docs/papers/gldp.md §ED: t = 1, s = 2, K = 3. A client knows four classes at least: chance is 1/4
    or less.
    """
    stages = int(split.split(":")[3])
    config = digits(
        split,
        64,
        method="gldp",
        args={"body_epochs": 1.0, "head_epochs": 2.0},
        local=Local(0.05, 0.5, batch_size=8, epochs=3),
        federation=Federation(3 * stages, 0.2 if stages == 1 else 0.5),
    )
    rows = raffed.run(config).to_pandas()
    own = rows[(rows["model"] == "personal") & (rows["metric"] == "accuracy") & rows["client"].notna()]
    assert len(own) == 3 * stages * (4 if stages == 1 else 2)
    assert own["value"].mean() > 0.5
