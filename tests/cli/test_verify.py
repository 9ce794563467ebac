"""A certificate is given for the bits that a configuration leads to; a damaged partition is told."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raffed
from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.splits import parse_split
from raffed.results.runfile import read_run
from raffed.runs.verify import sampled, verify
from tests.cli.conftest import Cli, contents
from tests.cli.damages import Damage, told_once
from tests.forging import edited, resealed, sha256
from tests.runtime.conftest import small


def test_an_untouched_run_is_verified_and_left_as_it_was(cli: Cli, copied: Path) -> None:
    before = contents(copied)
    done = cli("verify", copied, "--rounds", "3")
    assert (done.code, "VERIFIED" in done.out) == (0, True)
    assert contents(copied) == before


def test_a_run_at_a_url_is_verified_and_left_as_it_was(cli: Cli, copied: Path) -> None:
    before = contents(copied)
    done = cli("verify", copied.as_uri(), "--rounds", "2")
    assert done.code == 0
    assert done.out.startswith(f"{copied.as_uri()}: ")
    assert contents(copied) == before
    assert cli("verify", (copied.parent / "other").as_uri()).code == 2


def test_all_rounds_meet_every_checkpoint_on_the_way(finished: Path) -> None:
    seen = []
    certificate = verify(finished, rounds=99, watch=lambda done, of: seen.append((done, of)))
    assert certificate.ok
    assert certificate.rounds == (1, 2, 3, 4, 5)
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    again = {(check.what, check.round) for check in certificate.checks if check.round}
    assert again == {
        *(("weights", n) for n in range(1, 6)),
        *(("metric rows", n) for n in range(1, 6)),
        *(("server", n) for n in (2, 4, 5)),
        *(("vaults", n) for n in (2, 4, 5)),
    }


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.unlink()  # vaults are hard links: the other names keep their bytes
    path.write_bytes(raw)


def vault_of(run: Path, round: int) -> Path:
    return sorted((run / f"checkpoints/round-{round:06d}/vaults").glob("*"))[0]


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "learning rate": (
        lambda run: edited(run / "run.json", lambda a: a["config"]["local"].update(lr=0.5)),
        "configuration",
    ),
    "bytes after the end of run.json": (
        lambda run: (run / "run.json").write_bytes((run / "run.json").read_bytes() + b" \n"),
        "run.json, file",
    ),
    "final weights": (lambda run: _flip(run / "final.safetensors"), "final.safetensors"),
    "final weights gone": (lambda run: (run / "final.safetensors").unlink(), "final.safetensors"),
    "a lost part": (lambda run: sorted((run / "metrics").glob("*"))[0].unlink(), "metric rows"),
    "a cut part": (lambda run: sorted((run / "metrics").glob("*"))[0].write_bytes(b"PAR1"), "metric rows"),
    "a checkpoint": (lambda run: _flip(run / "checkpoints/round-000004/server.safetensors"), "round-000004"),
    "a vault": (
        lambda run: _flip(sorted((run / "checkpoints/round-000005/vaults").glob("*"))[0]),
        "vaults of the clients",
    ),
    "a vault of an earlier checkpoint": (lambda run: _flip(vault_of(run, 4)), "round-000004, client-"),
    "a lost vault": (lambda run: vault_of(run, 4).unlink(), "round-000004, client-"),
    "a vault too many": (
        lambda run: shutil.copy(vault_of(run, 4), vault_of(run, 4).with_name("client-77@000004.safetensors")),
        "round-000004, client-77",
    ),
    "a checkpoint without the hashes of its vaults": (
        lambda run: edited(run / "checkpoints/round-000004/state.json", lambda about: about.pop("vaults")),
        "round-000004",
    ),
    "partition": (lambda run: (run / "partition.npz").write_bytes(b"PK"), "partition.npz"),
    "a round's hash": (
        lambda run: edited(run / "run.json", lambda a: a["round_hashes"].__setitem__(2, "0" * 64)),
        "round-000004",
    ),
    "claimed accuracy": (
        lambda run: edited(run / "run.json", lambda a: a["hashes"].update(metrics="0" * 64)),
        "metric rows",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_every_damage_is_found_and_named(cli: Cli, copied: Path, what: str) -> None:
    damage, named = DAMAGE[what]
    damage(copied)
    done = cli("verify", copied, "--rounds", "0", "--json")
    assert done.code == 1
    wrong = [check["what"] for check in done.events[0]["checks"] if not check["ok"]]
    assert [one for one in wrong if one.startswith(named)] != []


def test_a_changed_client_state_of_a_stopped_run_is_found(cli: Cli, stopped: Path) -> None:
    changed = sorted((stopped / "vaults").glob("clients-*/client-*"))[-1]
    assert cli("verify", stopped, "--rounds", "0").code == 0
    _flip(changed)
    done = cli("verify", stopped, "--rounds", "0")
    assert done.code == 1
    assert f"vaults/{changed.name}" in done.out


def test_a_consistent_forgery_is_found_by_execution(cli: Cli, copied: Path) -> None:
    """Round 1's hash replaced everywhere it is written: only executing round 1 again can tell."""
    edited(copied / "run.json", lambda a: a["round_hashes"].__setitem__(0, "0" * 64))
    for state in copied.glob("checkpoints/*/state.json"):
        edited(state, lambda a: a["round_hashes"].__setitem__(0, "0" * 64))
    resealed(copied)
    assert cli("verify", copied, "--rounds", "0").code == 0
    done = cli("verify", copied, "--rounds", "1")
    assert done.code == 1
    assert "NOT VERIFIED" in done.out
    assert "weights, round 1 again" in done.out


def test_forged_rows_of_a_round_are_found_by_execution(copied: Path, finished: Path) -> None:
    """Rows of another seed under the run's name, with a hash that fits."""
    from raffed.results.metric import Row
    from raffed.results.writer import MetricsWriter, read_metrics, rows_sha256

    shutil.rmtree(copied / "metrics")
    about = read_run(copied)
    rows = []
    for one in read_metrics(finished).to_pylist():
        if one["metric"] == "accuracy":
            one["value"] = min(1.0, one["value"] + 0.01)
        rows.append(Row(**{name: one[name.rstrip("_")] for name in Row._fields}))
    writer = MetricsWriter(copied, about["run_id"], "map", "digits", "p4c5", 0)
    writer.add(rows)
    writer.flush()
    resealed(copied)
    edited(copied / "run.json", lambda a: a["hashes"].update(metrics=rows_sha256(read_metrics(copied))))
    certificate = verify(copied, rounds=1)
    wrong = [(check.what, check.round) for check in certificate.checks if not check.ok]
    assert wrong == [("metric rows", 1)]
    assert "metric rows of round 1: other values of accuracy" in certificate.notes


def test_metrics_of_which_one_side_has_no_rows_are_named() -> None:
    from raffed.results.metric import Row
    from raffed.results.writer import table_of
    from raffed.runs.verify import row_difference

    run = {"run_id": "a", "method": "fedavg", "dataset": "digits", "partition": "iid:2", "seed": 0}
    one, both = (
        table_of([Row(1, "global", "test", name, 1.0) for name in names], run)
        for names in (["loss"], ["loss", "macro_f1"])
    )
    assert row_difference(one, one) == ""
    assert row_difference(one, both) == "the folder has no rows of macro_f1"
    assert row_difference(both, one) == "only the folder has rows of macro_f1"


def test_a_stopped_run_is_verified_up_to_its_checkpoint(copied: Path) -> None:
    def stopped(about: dict) -> None:
        about.update(state="stopped", rounds_done=4)
        about["segments"][-1]["to"] = 4
        del about["hashes"], about["round_hashes"]

    edited(copied / "run.json", stopped)
    shutil.rmtree(copied / "checkpoints" / "round-000005")
    (copied / "final.safetensors").unlink()
    certificate = verify(copied, rounds=9)
    assert certificate.ok
    assert certificate.rounds == (1, 2, 3, 4)


def _unfinished(run: Path, rounds_done: int) -> None:
    def killed(about: dict) -> None:
        about.update(state="running", rounds_done=rounds_done)
        about["segments"][-1]["to"] = rounds_done
        del about["hashes"], about["round_hashes"]

    edited(run / "run.json", killed)
    shutil.rmtree(run / "checkpoints")
    (run / "final.safetensors").unlink()


def test_of_a_run_without_a_round_nothing_is_executed(cli: Cli, copied: Path) -> None:
    _unfinished(copied, rounds_done=0)
    shutil.rmtree(copied / "metrics")
    done = cli("verify", copied)
    assert done.code == 0
    assert "NOTHING TO EXECUTE: the run has not recorded a round yet" in done.out
    assert "VERIFIED" not in done.out


def test_a_run_whose_checkpoints_were_deleted_is_not_verified(cli: Cli, copied: Path) -> None:
    _unfinished(copied, rounds_done=4)
    done = cli("verify", copied)
    assert done.code == 1
    assert "NOT VERIFIED" in done.out
    assert re.search(r"rounds done that a checkpoint holds\W+4\W+0", done.out)


@given(st.lists(st.integers(1, 60), max_size=4, unique=True), st.integers(0, 60), st.integers(0, 80))
def test_sampled_rounds_are_as_many_as_asked_each_once(starts: list[int], done: int, count: int) -> None:
    kept = [0, *sorted(start for start in starts if start <= done)]
    plan = sampled(kept, done, count)
    rounds = [first + 1 + i for first, n in plan.items() for i in range(n)]
    assert len(rounds) == len(set(rounds)) == min(count, done)
    assert all(1 <= number <= done for number in rounds)
    assert set(plan) <= set(kept)
    assert set(rounds) == set(range(1, done + 1)) if count >= done else True


pytestmark = pytest.mark.usefixtures("no_waiting")


def another_partition(run: Path) -> None:
    labels = np.arange(1797) % 10
    make_partition(parse_split("iid:10"), labels, 10, None, 5, 0.2).save(run / "partition.npz")


def another_recipe(run: Path) -> None:
    kept = Partition.load(run / "partition.npz")
    other = Partition(kept.train, kept.test, kept.num_classes, {**kept.recipe, "seed": 77})
    other.save(run / "partition.npz")


def flip_at(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


PARTITION_DAMAGES: dict[str, Damage] = {
    "a bit": lambda run: flip_at(run / "partition.npz", -400),
    "cut": lambda run: (run / "partition.npz").write_bytes((run / "partition.npz").read_bytes()[:200]),
    "another one": another_partition,
    "another recipe": another_recipe,
}


@pytest.mark.parametrize("what", PARTITION_DAMAGES)
def test_a_damaged_or_exchanged_partition_is_told(cli: Cli, stopped: Path, whole: Path, what: str) -> None:
    for run in (stopped, whole):
        PARTITION_DAMAGES[what](run)
        assert told_once(cli("resume", run), "partition.npz")
        done = cli("verify", run, "--rounds", "0")
        assert done.code in (1, 2)
        assert "partition.npz" in done.out + done.err
        shutil.rmtree(run.parent / "away", ignore_errors=True)
        (run.parent / "away").unlink(missing_ok=True)
    if (stopped / "partition.npz").is_file():
        (stopped / "partition.npz").unlink()
        assert raffed.resume(stopped).state == "finished"
        assert cli("verify", stopped, "--rounds", "0").code == 0


def test_a_partition_that_is_missing_is_said_and_written_again(
    cli: Cli, stopped: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for run, then in ((stopped, "it is written again"), (whole, "put back a copy")):
        (run / "partition.npz").unlink()
        assert cli("verify", run, "--rounds", "0").code == 1
        assert cli("resume", run, "--quiet").code == 0
        missing = f"{run}/partition.npz: is missing"
        assert sum(missing in one.message and then in one.message for one in caplog.records) == 1
    assert sha256(stopped / "partition.npz") == read_run(stopped)["files"]["partition.npz"]


@pytest.mark.parametrize("change", [{"round": 1}, {"round_hashes": ["0" * 64] * 2}, {"vaults": {}}])
def test_an_edited_checkpoint_is_not_gone_on_from(cli: Cli, stopped: Path, change: dict[str, Any]) -> None:
    edited(stopped / "checkpoints" / "round-000002" / "state.json", lambda about: about.update(change))
    assert told_once(cli("resume", stopped), "round-000002/state.json: it is damaged or was replaced")
    done = cli("verify", stopped, "--rounds", "0")
    assert done.code == 1


def test_other_vector_instructions_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raffed.run(small(rounds=1), tmp_path / "run")
    assert verify(tmp_path / "run").differs == ()
    monkeypatch.setattr("raffed.runs.verify.hardware", lambda: {"vectors": "ABACUS", "system": "other"})
    (said,) = verify(tmp_path / "run").differs
    assert said.startswith("vectors ")
    assert said.endswith(" → ABACUS")
