"""A certificate is given for the bits that a configuration leads to. Each damage of a folder is told in one
line with the name of the file, by every command, none is waited for, and none goes unnoticed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raffed.analysis.loading import load_runs
from raffed.reproductions.pages.packed.files import read_records

import raffed
from raffed import RunConfig
from raffed.cli.messages import set_as_recorded
from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.splits import parse_split
from raffed.results.metric import Row
from raffed.results.runfile import read_run
from raffed.results.storage import packed_below
from raffed.results.writer import MetricsWriter, read_metrics, rows_sha256
from raffed.runs.verify import sampled, verify
from tests.cli.conftest import Cli, Damage, contents, told_once
from tests.forging import edited, resealed, sha256
from tests.params import one_in
from tests.runtime.conftest import small

pytestmark = pytest.mark.usefixtures("no_waiting")


def test_a_run_here_or_at_a_url_is_verified_and_left_as_it_was(cli: Cli, copied: Path) -> None:
    before = contents(copied)
    for place in (copied, copied.as_uri()):
        done = cli("verify", place, "--rounds", "2")
        assert (done.code, "VERIFIED" in done.out, done.out.startswith(f"{place}: ")) == (0, True, True)
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
        *((what, n) for what in ("weights", "metric rows") for n in range(1, 6)),
        *((what, n) for what in ("server", "vaults") for n in (2, 4, 5)),
    }


def flip(path: Path, at: int = -1) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.unlink()  # vaults are hard links: the other names keep their bytes
    path.write_bytes(raw)


def vault_of(run: Path, round: int) -> Path:
    return sorted((run / f"checkpoints/round-{round:06d}/vaults").glob("*"))[0]


def says(change: Damage, name: str = "run.json") -> Damage:
    return lambda run: edited(run / name, change)


STATE = "checkpoints/round-000004/state.json"
DAMAGE: dict[str, tuple[Damage, str]] = {
    "learning rate": (says(lambda about: about["config"]["local"].update(lr=0.5)), "configuration"),
    "bytes after the end of run.json": (
        lambda run: (run / "run.json").write_bytes((run / "run.json").read_bytes() + b" \n"),
        "run.json, file",
    ),
    "final weights": (lambda run: flip(run / "final.safetensors"), "final.safetensors"),
    "final weights gone": (lambda run: (run / "final.safetensors").unlink(), "final.safetensors"),
    "a lost part": (lambda run: sorted((run / "metrics").glob("*"))[0].unlink(), "metric rows"),
    "a cut part": (lambda run: sorted((run / "metrics").glob("*"))[0].write_bytes(b"PAR1"), "metric rows"),
    "a checkpoint": (lambda run: flip(run / "checkpoints/round-000004/server.safetensors"), "round-000004"),
    "a vault": (lambda run: flip(vault_of(run, 5)), "vaults of the clients"),
    "a vault of an earlier checkpoint": (lambda run: flip(vault_of(run, 4)), "round-000004, client-"),
    "a lost vault": (lambda run: vault_of(run, 4).unlink(), "round-000004, client-"),
    "a vault too many": (
        lambda run: shutil.copy(vault_of(run, 4), vault_of(run, 4).with_name("client-77@000004.safetensors")),
        "round-000004, client-77",
    ),
    "no hashes of vaults": (says(lambda about: about.pop("vaults"), STATE), "round-000004"),
    "partition": (lambda run: (run / "partition.npz").write_bytes(b"PK"), "partition.npz"),
    "a round's hash": (says(lambda about: about["round_hashes"].__setitem__(2, "0" * 64)), "round-000004"),
    "claimed accuracy": (says(lambda about: about["hashes"].update(metrics="0" * 64)), "metric rows"),
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
    flip(changed)
    done = cli("verify", stopped, "--rounds", "0")
    assert (done.code, f"vaults/{changed.name}" in done.out) == (1, True)


def test_a_consistent_forgery_is_found_by_execution(cli: Cli, copied: Path) -> None:
    """Round 1's hash replaced everywhere it is written: only executing round 1 again can tell."""
    for path in (copied / "run.json", *copied.glob("checkpoints/*/state.json")):
        edited(path, lambda about: about["round_hashes"].__setitem__(0, "0" * 64))
    resealed(copied)
    assert cli("verify", copied, "--rounds", "0").code == 0
    done = cli("verify", copied, "--rounds", "1")
    assert (done.code, "NOT VERIFIED" in done.out) == (1, True)
    assert "weights, round 1 again" in done.out


def test_forged_rows_of_a_round_are_found_by_execution(copied: Path, finished: Path) -> None:
    """Other accuracies under the run's name, with a hash that fits."""
    shutil.rmtree(copied / "metrics")
    rows = []
    for one in read_metrics(finished).to_pylist():
        if one["metric"] == "accuracy":
            one["value"] = min(1.0, one["value"] + 0.01)
        rows.append(Row(**{name: one[name.rstrip("_")] for name in Row._fields}))
    writer = MetricsWriter(copied, read_run(copied)["run_id"], "map", "digits", "p4c5", 0)
    writer.add(rows)
    writer.flush()
    resealed(copied)
    edited(
        copied / "run.json", lambda about: about["hashes"].update(metrics=rows_sha256(read_metrics(copied)))
    )
    certificate = verify(copied, rounds=1)
    wrong = [(check.what, check.round) for check in certificate.checks if not check.ok]
    assert wrong == [("metric rows", 1)]
    assert "metric rows of round 1: other values of accuracy" in certificate.notes


def unfinished(run: Path, rounds_done: int, *gone: str) -> None:
    """Let a run look as if it had been killed after some rounds, without these folders."""

    def killed(about: dict[str, Any]) -> None:
        about.update(state="running", rounds_done=rounds_done)
        about["segments"][-1]["to"] = rounds_done
        del about["hashes"], about["round_hashes"]

    edited(run / "run.json", killed)
    (run / "final.safetensors").unlink()
    for name in gone:
        shutil.rmtree(run / name)


def test_an_unfinished_run_is_verified_as_far_as_its_checkpoints_go(cli: Cli, copied: Path) -> None:
    unfinished(copied, 4, "checkpoints/round-000005")
    certificate = verify(copied, rounds=9)
    assert (certificate.ok, certificate.rounds) == (True, (1, 2, 3, 4))
    shutil.rmtree(copied / "checkpoints")
    done = cli("verify", copied)
    assert (done.code, "NOT VERIFIED" in done.out) == (1, True)
    assert re.search(r"rounds done that a checkpoint holds\W+4\W+0", done.out)


def test_of_a_run_without_a_round_nothing_is_executed(cli: Cli, copied: Path) -> None:
    unfinished(copied, 0, "checkpoints", "metrics")
    done = cli("verify", copied)
    assert (done.code, "VERIFIED" in done.out) == (0, False)
    assert "NOTHING TO EXECUTE: the run has not recorded a round yet" in done.out


@given(st.lists(st.integers(1, 60), max_size=4, unique=True), st.integers(0, 60), st.integers(0, 80))
def test_sampled_rounds_are_as_many_as_asked_each_once(starts: list[int], done: int, count: int) -> None:
    kept = [0, *sorted(start for start in starts if start <= done)]
    plan = sampled(kept, done, count)
    rounds = [first + 1 + i for first, n in plan.items() for i in range(n)]
    assert len(rounds) == len(set(rounds)) == min(count, done)
    assert set(rounds) <= set(range(1, done + 1))
    assert set(plan) <= set(kept)


def another_partition(run: Path) -> None:
    labels = np.arange(1797) % 10
    make_partition(parse_split("iid:10"), labels, 10, None, 5, 0.2).save(run / "partition.npz")


def another_recipe(run: Path) -> None:
    kept = Partition.load(run / "partition.npz")
    other = Partition(kept.train, kept.test, kept.num_classes, {**kept.recipe, "seed": 77})
    other.save(run / "partition.npz")


PARTITION_DAMAGES: dict[str, Damage] = {
    "a bit": lambda run: flip(run / "partition.npz", -400),
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
    assert cli("verify", stopped, "--rounds", "0").code == 1


def test_other_vector_instructions_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raffed.run(small(rounds=1), tmp_path / "run")
    assert verify(tmp_path / "run").differs == ()
    monkeypatch.setattr("raffed.runs.verify.hardware", lambda: {"vectors": "ABACUS", "system": "other"})
    (said,) = verify(tmp_path / "run").differs
    assert re.fullmatch("vectors .* → ABACUS", said)


def text(change: Callable[[str], str]) -> Damage:
    return lambda run: (run / "run.json").write_text(change((run / "run.json").read_text()))


def instead(make: Callable[[Path], object], name: str = "run.json") -> Damage:
    """Something else lies where a file or folder was."""

    def damage(run: Path) -> None:
        (run / name).rename(run.parent / "away")
        make(run / name)

    return damage


DEEP = '"config": {"x": ' + "[" * 10**5 + "]" * 10**5 + ","
RUN_FILE_DAMAGES: dict[str, Damage] = {
    "a key is misspelt": says(lambda about: about.update(rounds_doen=about.pop("rounds_done"))),
    "seconds is NaN": text(lambda old: re.sub(r'"seconds": [0-9.e-]+', '"seconds": NaN', old)),
    "rounds_done is another number": says(lambda about: about.update(rounds_done=3)),
    "half a character": says(lambda about: about.update(error="\ud800")),
    "nested very deeply": text(lambda old: old.replace('"config": {', DEEP, 1)),
    "a later schema": says(lambda about: about.update(schema=99)),
    "files leads out of the folder": says(lambda about: about.update(files={"../x": "0" * 64})),
    "a segment begins elsewhere": says(lambda about: about["segments"][0].update({"from": 2})),
    "cut": text(lambda old: old[: len(old) // 2]),
    "a named pipe": instead(os.mkfifo),
    "a link out of the folder": instead(lambda path: path.symlink_to(path.parents[1] / "away")),
}


@pytest.mark.parametrize("what", one_in(3, RUN_FILE_DAMAGES))
def test_every_command_that_reads_run_json_refuses_a_damaged_one_in_one_line(
    cli: Cli, stopped: Path, tmp_path: Path, what: str
) -> None:
    RUN_FILE_DAMAGES[what](stopped)
    set_as_recorded(stopped)  # looks up the bits of a run without these checks: it neither fails nor waits
    for command in ("resume", "verify"):
        done = cli(command, stopped)
        assert told_once(done, "run.json"), (command, done)
    for folder in (stopped, tmp_path):
        done = cli("report", folder, "--out", tmp_path / "out")
        assert told_once(done, "run.json"), done
    (tmp_path / "compared").mkdir()
    stopped.rename(tmp_path / "compared" / "fedavg")
    done = cli("compare", "--method", "fedavg", "--out", tmp_path / "compared")
    assert (done.code, "run.json" in done.err) == (2, True), done


def test_a_configuration_that_cannot_be_read_is_told_with_the_files_name(cli: Cli, stopped: Path) -> None:
    says(lambda about: about["config"]["data"].update(splitt=3))(stopped)
    for command in ("resume", "verify"):
        assert told_once(cli(command, stopped), f"{stopped}/run.json: its configuration cannot be read")


@pytest.mark.parametrize("lost", [["hashes"], ["round_hashes"], ["hashes", "round_hashes"]])
def test_a_finished_run_without_its_hashes_is_not_verified(cli: Cli, whole: Path, lost: list[str]) -> None:
    edited(whole / "run.json", lambda about: [about.pop(name) for name in lost])
    for command in ("verify", "resume"):
        done = cli(command, whole)
        assert told_once(done, "run.json"), done
        assert "state is finished, but there is no" in done.err


def part(run: Path) -> Path:
    return sorted((run / "metrics").iterdir())[0]


def rows(change: Callable[[pa.Table], pa.Table]) -> Damage:
    """The first part's rows are others, its metadata the same."""

    def damage(run: Path) -> None:
        table = pq.ParquetFile(part(run)).read()
        pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), part(run))

    return damage


def a_little_higher(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("value")
    value = pc.if_else(
        pc.equal(table["metric"], "accuracy"), pc.multiply(table["value"], 1.001), table["value"]
    )
    return table.set_column(place, table.schema.field("value"), value)


PART_DAMAGES: dict[str, Damage] = {
    "an accuracy that is a little higher": rows(a_little_higher),
    "one row twice": rows(lambda table: pa.concat_tables([table, table.slice(0, 1)])),
    "one row fewer": rows(lambda table: table.slice(1)),
    "written again": rows(lambda table: table),
    "another part's bytes": lambda run: shutil.copy(run.parent / "other.parquet", part(run)),
    "a named pipe": lambda run: instead(os.mkfifo, f"metrics/{part(run).name}")(run),
    "a part too many": lambda run: shutil.copy(part(run), run / "metrics" / "part-000001-000009.parquet"),
    "a file": instead(Path.touch, "metrics"),
}


@pytest.mark.parametrize("what", one_in(3, PART_DAMAGES))
@pytest.mark.parametrize("kind", ["finished", "stopped"])
def test_rows_that_were_changed_are_told_by_every_command_that_reads_them(
    cli: Cli, runs: Path, tmp_path: Path, kind: str, what: str
) -> None:
    run = Path(shutil.copytree(runs / kind, tmp_path / kind))
    shutil.copy(part(runs / ("stopped" if kind == "finished" else "finished")), tmp_path / "other.parquet")
    PART_DAMAGES[what](run)
    before = contents(run)
    done = cli("resume", run)
    assert told_once(done, "metrics"), done
    assert contents(run) == before
    done = cli("verify", run, "--rounds", "0")
    assert done.code in (1, 2)
    assert "metric" in done.out + done.err
    if kind == "finished":
        done = cli("report", run, "--out", tmp_path / "out")
        assert re.search(rf"raffed: .*{run}.*metrics", done.err), done
    if (run / "metrics").is_dir():
        assert load_runs(run).metrics.empty  # no mean has a changed row


@pytest.mark.more
def test_every_record_of_the_analysis_is_read(tmp_path: Path) -> None:
    runs = 0
    for folder in packed_below(Path(__file__).parents[2] / "reproductions" / "records"):
        for name, about in read_records(folder).objects.items():
            if name.endswith("run.json"):
                (tmp_path / "run.json").write_text(json.dumps(about), encoding="utf-8")
                runs += RunConfig.from_dict(read_run(tmp_path)["config"]).identity() == about["identity"]
    assert runs > 1000
