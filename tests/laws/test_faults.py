"""A plan of faults is data of the run: what it does to the result, and that it does the same everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import raffed
from raffed import Data, Faults, Federation, Local, Model, RunConfig, Runtime
from raffed.config.faults import ParticipantFault
from raffed.errors import UsageError
from raffed.federation.faults import damaged, draw_faults, is_refused
from raffed.methods import build_method
from raffed.runs.run import RunResult
from tests.tiny import PLAIN, Tiny


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


def test_in_memory_a_single_upload_is_the_mean() -> None:
    tiny = Tiny(build_method("fedavg", {}))
    upload = tiny.step([2])[2].upload
    assert torch.allclose(tiny.server.w.flat, upload.w.flat, rtol=0, atol=2.0**-45)


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


@pytest.mark.parametrize("how", ["nan", "range"])
def test_a_damaged_upload_is_refused_and_a_sound_one_is_not(how: str) -> None:
    for method in ("fedavg", "scaffold", "fedproto"):
        upload = Tiny(build_method(method, {}), local=replace(PLAIN, momentum=0.0)).step([0])[0].upload
        assert not is_refused(upload, keep=False)
        assert is_refused(damaged(upload, how, 0, 0, 0), keep=False)


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


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"drop": 1.5}, r"faults\.drop = 1\.5"),
        ({"straggle_share": 0.0}, "straggle_share"),
        ({"at": "drop 3"}, "KIND CLIENT@ROUND"),
        ({"at": "dorp 3@1"}, "nearest: drop"),
        ({"at": "drop 3@0"}, "counted from 1"),
        ({"corrupt_kind": "inf"}, "corrupt_kind"),
    ],
)
def test_an_impossible_plan_is_refused(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        replace(config(), faults=Faults(**wrong))  # type: ignore[arg-type]


def test_a_plan_for_a_client_that_does_not_exist_is_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match=r"faults\.at names client 10; clients are 0 to 9"):
        raffed.run(config(plan=Faults(at="drop 3@1, late 10@1")))
