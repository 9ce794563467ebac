"""A bundle holds what a reviewer needs, the same bytes each time, and nothing that names a person. A replay
executes its runs again, and its exit code says whether they are equal. What raffed does not write is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from raffed.reproductions.pages.packed.files import pack_folder, unpack_folder

import raffed
from raffed import RunConfig
from raffed.config.portable import flags_of
from raffed.errors import RunFolderError, UsageError
from raffed.results.runfile import read_run, sealed, write_json
from tests.bundles.conftest import Forge, contents
from tests.cli.conftest import Cli, shell
from tests.forging import edited, forget_references
from tests.runtime.conftest import small
from tests.warm import python


def claims(archive: Path, forged: Forge, **changes: object) -> Path:
    """The bundle with a run.json that says something else, of its configuration or of itself."""
    about = json.loads(contents(archive)["results/run.json"])
    config = RunConfig.from_dict(about["config"]).changed(changes) if "round_hashes" not in changes else None
    about |= changes if config is None else {"config": config.as_dict(), "identity": config.identity()}
    return forged({"results/run.json": json.dumps(sealed(about)).encode()})


def test_an_honest_bundle_has_equal_rows_and_weights(archive: Path, tmp_path: Path, cli: Cli) -> None:
    done = cli("replay", archive, "--out", tmp_path / "out", "--json")
    assert done.code == 0
    found = done.events[-1]
    assert found["event"] == "replay"
    checks = {one["what"]: one["ok"] for one in found["runs"][0]["checks"]}
    assert checks == dict.fromkeys(("partition", "rows", "weights", "client states", "final weights"), True)
    assert json.loads((tmp_path / "out" / "replay.json").read_text())["ok"] is True
    assert read_run(tmp_path / "out" / "again")["hashes"] == read_run(tmp_path / "out" / "recorded")["hashes"]


def test_a_file_of_speeds_travels_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("speeds.csv").write_text("client,factor\n" + "".join(f"{one},{one + 1}\n" for one in range(4)))
    clock = {"clock.speeds": "trace", "clock.trace": "speeds.csv"}
    done = raffed.run(small("fedavg", 2).changed({**clock, "data.split": "iid:4"}), "runs/a")
    assert done.folder is not None
    raffed.bundle("runs/a", "a.zip")
    digest = hashlib.sha256(Path("speeds.csv").read_bytes()).hexdigest()
    assert contents(Path("a.zip"))[f"traces/{digest}.csv"] == Path("speeds.csv").read_bytes()
    assert json.loads(contents(Path("a.zip"))["results/run.json"])["config"]["clock"]["trace"] == (
        f"traces/{digest}.csv"
    )
    Path("speeds.csv").write_text("client,factor\n")
    assert raffed.replay("a.zip", "out", progress=False).ok
    with pytest.raises(UsageError, match=r"speeds\.csv has changed since the run was made"):
        raffed.bundle("runs/a", "b.zip")


def test_bits_are_decided_before_a_file_is(archive: Path, forged: Forge, tmp_path: Path, cli: Cli) -> None:
    """This process has loaded torch. A process of the command line begins itself again at this error, and
    must find its folder as it was.
    """
    path = claims(archive, forged, **{"numerics.bits": "portable"})
    done = cli("replay", path, "--out", tmp_path / "out")
    assert (done.code, "call raffed.portable() first" in done.err) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.skipif("avx2" not in flags_of(), reason="this processor has no AVX2")
def test_a_portable_bundle_is_replayed_by_a_process_that_has_imported_nothing(tmp_path: Path) -> None:
    asked = ("run", "--method", "fedavgm", "--split", "iid:3", "--rounds", "2", "--execution", "serial")
    made = shell(*asked, "--numerics", "portable", "--out", tmp_path / "a", fresh=True)
    assert made.returncode == 0, made.stderr
    (tmp_path / "elsewhere").mkdir()
    raffed.bundle(tmp_path / "a", tmp_path / "a.zip")
    done = shell("replay", "../a.zip", "--out", "out", cwd=tmp_path / "elsewhere", fresh=True)
    assert done.returncode == 0, done.stderr
    assert "EQUAL: 1 of 1 run" in done.stdout


@pytest.fixture
def record(run_folder: Path, tmp_path: Path) -> Path:
    """The folder that packed records of a run give again."""
    pack_folder(run_folder, tmp_path / "packed")
    unpack_folder(tmp_path / "packed", tmp_path / "record")
    return tmp_path / "record"


def test_a_replay_of_a_record_compares_the_kept_rows_of_some_rounds_and_the_hash_of_all_rows_at_the_end(
    record: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Records are packed without a partition. It is drawn again, and its hash is compared."""
    assert not (record / "partition.npz").exists()
    raffed.bundle(record, tmp_path / "record.zip")
    some = raffed.replay(tmp_path / "record.zip", tmp_path / "some", rounds=2, progress=False)
    assert some.ok
    checks = [(one.what, one.round) for one in some.runs[0].checks]
    assert checks == [("partition", None), ("rows", 2), ("weights", 2)]
    assert "partition.npz" not in caplog.text
    edited(record / "run.json", lambda about: about["hashes"].update(metrics="0" * 64))
    raffed.bundle(record, tmp_path / "other.zip")
    found = raffed.replay(tmp_path / "other.zip", tmp_path / "all", progress=False)
    assert [one.what for one in found.runs[0].checks if not one.ok] == ["rows"]
    edited(record / "run.json", lambda about: about["hashes"].update(kept="0" * 64))
    with pytest.raises(RunFolderError, match="the rows do not have the hash"):
        raffed.bundle(record, tmp_path / "changed.zip")


def test_other_results_end_with_1(archive: Path, forged: Forge, tmp_path: Path, cli: Cli) -> None:
    """A stranger may write down other hashes of weights. The replay says in which round they part."""
    hashes = json.loads(contents(archive)["results/run.json"])["round_hashes"]
    path = claims(archive, forged, round_hashes=[*hashes[:2], "0" * 64, "1" * 64])
    done = cli("replay", path, "--out", tmp_path / "out")
    assert (done.code, "NOT EQUAL" in done.out) == (1, True)
    assert "weights, round 3" in done.out


def test_code_of_a_bundle_is_executed_only_if_it_is_trusted(
    lab: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    raffed.run(small("./prox.py:plain", 2), "runs/a")
    raffed.bundle("runs/a", "a.zip")
    reviewer = tmp_path_factory.mktemp("reviewer")
    shutil.copy("a.zip", reviewer)
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "reviewer"))
    forget_references()
    refused = cli("replay", reviewer / "a.zip", "--out", reviewer / "out")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    digest = hashlib.sha256((lab / "prox.py").read_bytes()).hexdigest()
    assert f"read prox.py ({digest[:12]}), and give --trust-code" in refused.err
    assert sorted(one.name for one in reviewer.iterdir()) == ["a.zip"]


@pytest.mark.slow
def test_trusted_code_of_a_bundle_is_listed_and_executed(
    lab: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab / "helper.py").write_text("STEPS = 1\n")
    (lab / "prox.py").write_text("import helper\n" + (lab / "prox.py").read_text())
    raffed.run(small("./prox.py:plain", 2), "runs/a")
    reviewer = tmp_path_factory.mktemp("reviewer")
    raffed.bundle("runs/a", reviewer / "a.zip")
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "reviewer"))
    done = shell("replay", "a.zip", "--out", "out", "--trust-code", cwd=reviewer)
    assert done.returncode == 0, done.stderr
    for name in ("prox.py", "helper.py"):
        digest = hashlib.sha256((lab / name).read_bytes()).hexdigest()
        assert f"{name} ({digest[:12]})" in done.stderr
    assert "code" in done.stdout
    assert "EQUAL: 1 of 1 run" in done.stdout


def test_code_of_this_machine_needs_trust_too(archive: Path, forged: Forge, lab: Path, cli: Cli) -> None:
    """No record of code comes with it, and still something would be imported."""
    refused = cli("replay", claims(archive, forged, method="./prox.py:plain"), "--out", "out")
    assert (refused.code, "the bundle holds no record of it" in refused.err) == (2, True)


def test_a_split_from_a_file_is_replayed_from_the_partition_of_the_bundle(
    run_folder: Path, lab: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(run_folder / "partition.npz", lab / "mine.npz")
    raffed.run(small(rounds=1).changed({"data.split": "file:mine.npz", "data.local_test": None}), "a")
    raffed.bundle("a", "a.zip")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert raffed.replay(lab / "a.zip", "out", progress=False).ok


def test_own_arrays_are_replayed_by_their_hash(lab: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setenv("RAFFED_CACHE", str(lab / "cache"))
    lines = ["a,b,label", *(f"{i % 7},{i % 5},{i % 2}" for i in range(200))]
    (lab / "mine.csv").write_text("\n".join(lines))
    config = small("fedavg", 1).changed({"data.dataset": "csv:mine.csv?label=label", "data.split": "iid:4"})
    raffed.run(config, "a")
    raffed.bundle("a", "a.zip")
    assert raffed.replay("a.zip", "out", progress=False).ok
    (lab / "mine.csv").write_text("\n".join(lines[:-1]))
    monkeypatch.setenv("RAFFED_CACHE", str(lab / "other"))
    refused = cli("replay", "a.zip", "--out", "out2")
    assert (refused.code, "has changed since the run" in refused.err) == (2, True)


def test_a_full_folder_and_a_missing_run_are_refused(archive: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "x").write_text("")
    assert "not an empty folder" in cli("replay", archive, "--out", tmp_path).err
    refused = cli("replay", archive, "--out", tmp_path / "new", "--run", "b")
    assert (refused.code, "unknown run of the bundle 'b'" in refused.err) == (2, True)
    assert not (tmp_path / "new").exists()


def test_a_replay_that_is_stopped_leaves_nothing_so_that_its_command_can_be_repeated(
    archive: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raffed.bundles.replaying.compared", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    done = cli("replay", archive, "--out", tmp_path / "out")
    assert done == (130, "", "raffed: stopped; the same command begins anew\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_sweep_and_a_table_are_bundled_and_replayed_whole(tmp_path: Path, cli: Cli) -> None:
    sweep = ("tune", "--method", "fedprox", "--grid", "mu=0.01,0.1", "--rounds", "2", "--split", "p4c5")
    assert cli(*sweep, "--epochs", "1", "--out", tmp_path / "s").code == 0
    table = ("reproduce", "map/table1", "--scale", "smoke", "--only", "fedavg", "--out", tmp_path / "r")
    assert cli(*table).code == 0
    for name, kind, shown in (("s", "sweep", "FedProx"), ("r", "item", "map/table1, smoke")):
        made = cli("bundle", tmp_path / name, "--out", tmp_path / f"{kind}.zip", "--json")
        assert made.code == 0, made.err
        assert made.events[0]["kind"] == kind
        assert shown in contents(tmp_path / f"{kind}.zip")["report.html"].decode()
        done = cli("replay", tmp_path / f"{kind}.zip", "--out", tmp_path / f"{kind}-again", "--json")
        assert done.code == 0, done.err
        assert [one["name"] for one in done.events[-1]["runs"]] == made.events[0]["runs"]
        assert len(made.events[0]["runs"]) >= 2
        recorded = tmp_path / f"{kind}-again" / "recorded"
        assert cli("report", recorded, "--out", tmp_path / f"{kind}-report").code == 0


def test_a_bundle_holds_configuration_partition_rows_hashes_lock_and_description(
    run_folder: Path, archive: Path, tmp_path: Path, cli: Cli
) -> None:
    words = ["--out", tmp_path / "a.zip", "--json", "--license", "https://licence.example/x"]
    (event,) = cli("bundle", run_folder, *words).events
    assert (event["event"], event["runs"]) == ("bundle", ["."])
    made = contents(tmp_path / "a.zip")
    rows = {name for name in made if name.startswith("results/metrics/part-")}
    assert made.keys() - rows == {
        *("bundle.json", "environment.txt", "README.md", "results/run.json", "results/partition.npz")
    }
    assert len(rows) == 1
    assert b"Licence: https://licence.example/x." in made["README.md"]
    lines = made["environment.txt"].decode().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {"raffed", "torch", "ray", "numpy", "pyarrow"} <= pins.keys()
    assert pins["raffed"] == raffed.__version__
    assert [line for line in lines if "/" in line or "@" in line] == []


def test_the_same_run_gives_the_same_bytes(archive: Path, run_folder: Path, tmp_path: Path) -> None:
    """Also elsewhere, and after one that was killed while it was written: only a whole zip has its name."""
    moved = Path(shutil.copytree(run_folder, tmp_path / "another" / "folder"))
    code = (
        "import os, sys, zipfile, raffed\n"
        "zipfile.ZipFile.writestr = lambda *member: os.kill(os.getpid(), 9)\n"
        "raffed.bundle(sys.argv[1], sys.argv[2])"
    )
    out = tmp_path / "out" / "run.zip"
    out.parent.mkdir()
    assert python(["-c", code, str(run_folder), str(out)]).returncode == -9
    assert not out.exists()
    assert any(out.parent.iterdir())
    assert raffed.bundle(moved, out).path.read_bytes() == archive.read_bytes()
    assert [one.name for one in out.parent.iterdir()] == ["run.zip"]


def test_a_comparison_is_bundled_with_its_report_and_replayed(tmp_path: Path) -> None:
    raffed.compare(["fedavg", "fedprox"], small(rounds=1), out=tmp_path / "both", progress=False)
    made = raffed.bundle(tmp_path / "both", tmp_path / "both.zip")
    assert (made.kind, made.runs) == ("comparison", ("fedavg", "fedprox"))
    page = contents(made.path)["report.html"].decode()
    assert "FedAvg and FedProx on digits" in page
    assert str(tmp_path) not in page
    moved = Path(shutil.move(tmp_path / "both", tmp_path / "moved"))
    assert raffed.bundle(moved, tmp_path / "moved.zip").sha256 == made.sha256
    assert raffed.replay(made.path, tmp_path / "again", progress=False).ok


def test_neither_the_machine_nor_the_data_of_the_user_are_named(run_folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run_folder, tmp_path / "copy"))
    about = read_run(copy)
    about["error"] = "/home/gundula/run failed on workhorse7"
    about["placement"] = {"execution": "ray", "places": [{"node": "workhorse7", "address": "10.1.2.3"}]}
    about["segments"][0]["said"] = ["/home/gundula/runs/a: slow disk of workhorse7"]
    about["config"]["data"]["root"] = "/home/gundula/data"
    about["config"]["runtime"]["address"] = "workhorse7:6379"
    about["dataset"]["client_names"] = ["Saint Mary's Hospital"]
    about["dataset"]["columns"] = [{"name": "surname", "categories": ["Featherstonehaugh"]}]
    write_json(copy / "run.json", about)
    made = contents(raffed.bundle(copy, tmp_path / "a.zip").path)
    text = b"".join(made.values()).lower()
    for word in (b"gundula", b"workhorse7", b"10.1.2.3", b"mary", b"featherstonehaugh", bytes(tmp_path)):
        assert word not in text
    kept = json.loads(made["results/run.json"])
    assert kept["identity"] == about["identity"]
    assert kept["config"]["data"]["root"] is None


def test_changed_unfinished_damaged_or_taken_is_refused(
    run_folder: Path, archive: Path, tmp_path: Path, lab: Path
) -> None:
    raffed.run(small("./prox.py:plain", 1), "runs/a")
    (lab / "prox.py").write_text("changed = True\n")
    with pytest.raises(UsageError, match=r"prox\.py of \./prox\.py:plain is not there as it was"):
        raffed.bundle("runs/a", tmp_path / "a.zip")
    with pytest.raises(UsageError, match="exists already"):
        raffed.bundle(run_folder, archive)
    with pytest.raises(UsageError, match="No such file or directory"):
        raffed.bundle(run_folder, tmp_path / "none" / "a.zip")
    copy = Path(shutil.copytree(run_folder, tmp_path / "copy"))
    about = read_run(copy)
    write_json(copy / "run.json", {**about, "state": "stopped"})
    with pytest.raises(UsageError, match="the run is stopped; finish it first"):
        raffed.bundle(copy, tmp_path / "a.zip")
    write_json(copy / "run.json", {**about, "hashes": {**about["hashes"], "metrics": "0" * 64}})
    with pytest.raises(RunFolderError, match="do not have the hash"):
        raffed.bundle(copy, tmp_path / "a.zip")


Spoil = Callable[[zipfile.ZipFile], None]


def _special(kind: int) -> Spoil:
    """A member that is no regular file."""
    about = zipfile.ZipInfo("results/final/run.json")
    about.external_attr = (kind | 0o777) << 16
    return lambda made: made.writestr(about, "/etc/passwd")


def _bomb(made: zipfile.ZipFile) -> None:
    made.writestr("code/0123456789ab/zeros.py", bytes(2**24), zipfile.ZIP_DEFLATED)


def _many(made: zipfile.ZipFile) -> None:
    for number in range(20_001):
        made.writestr(f"code/0123456789ab/f{number}.py", b"")


def _named(name: str) -> Spoil:
    return lambda made: made.writestr(name, b"x")


SPOILS: dict[str, tuple[Spoil, str]] = {
    "a path upwards": (_named("results/../../../evil.py"), "leads out of the folder"),
    "an absolute path": (_named("/etc/cron.d/evil"), "leads out of the folder"),
    "a path of Windows": (_named("results\\..\\evil.py"), "leads out of the folder"),
    "a drive": (_named("C:/evil.py"), "systems read differently"),
    "a stream of Windows": (_named("results/run.json:evil"), "systems read differently"),
    "a control character": (_named("results/a\x1b[2Jb/run.json"), "systems read differently"),
    "a folder": (_named("results/sub/"), "systems read differently"),
    "a link": (_special(stat.S_IFLNK), "is a link"),
    "a named pipe": (_special(stat.S_IFIFO), "is a named pipe"),
    "a bomb": (_bomb, "is compressed or encrypted"),
    "too many files": (_many, "at most 20000"),
    "a pickle": (_named("results/state.pkl"), "is not a file that a bundle holds"),
    "weights of torch": (_named("results/model.pt"), "is not a file that a bundle holds"),
    "a hook of Python": (_named("code/0123456789ab/evil.pth"), "is not a file that a bundle holds"),
    "a file twice": (_named("results/run.json"), "is there twice"),
    "a file twice in capitals": (_named("RESULTS/RUN.JSON"), "is not a file that a bundle holds"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("what", SPOILS)
def test_what_a_bundle_does_not_hold_is_refused(what: str, archive: Path, tmp_path: Path, cli: Cli) -> None:
    spoil, said = SPOILS[what]
    path = tmp_path / "evil.zip"
    path.write_bytes(archive.read_bytes())
    with zipfile.ZipFile(path, "a") as made:
        spoil(made)
    _refused(cli, path, said)


def _refused(cli: Cli, path: Path, said: str) -> None:
    done = cli("replay", path, "--out", path.parent / "out" / "deep")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.rstrip("\n").isprintable()
    assert said in done.err
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def _claims_more(raw: bytes) -> bytes:
    """Members that overlap would let a small file claim a large one."""
    at = raw.rindex(b"PK\x01\x02") + 20
    return raw[:at] + struct.pack("<II", 2**31, 2**31) + raw[at + 8 :]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_claims_more, "bytes"),
        *((lambda raw, new=new: new, "cannot be read as a zip") for new in (b"", b"PK", b"\x80\x04\x95")),
    ],
    ids=["claims more than the file", "empty", "cut", "a pickle"],
)
def test_a_file_that_is_no_sound_zip_is_refused(
    change: Callable[[bytes], bytes], said: str, archive: Path, tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "evil.zip"
    path.write_bytes(change(archive.read_bytes()))
    _refused(cli, path, said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({"schema": schema}, "schema") for schema in (0, 2, "1", None, 10**30)),
        *(({"runs": [name]}, "forged.zip") for name in ("../x", "/etc", "a/../../b", "none")),
    ],
)
def test_another_schema_and_a_run_outside_or_missing_are_refused(
    changes: dict[str, object], said: str, archive: Path, forged: Forge, cli: Cli
) -> None:
    listed = json.loads(contents(archive)["bundle.json"])
    _refused(cli, forged({"bundle.json": json.dumps({**listed, **changes}).encode()}), said)


def test_a_changed_file_is_refused(archive: Path, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as made:
        for name, data in contents(archive).items():
            made.writestr(name, data + b" " if name == "README.md" else data)
    _refused(cli, path, "README.md is not what bundle.json lists")


def test_a_pickle_inside_the_partition_is_refused(archive: Path, forged: Forge, cli: Cli) -> None:
    stream = io.BytesIO()
    np.savez(stream, format=np.int64(1), recipe=np.array([{"evil": 1}], dtype=object))
    about = json.loads(contents(archive)["results/run.json"])
    about["files"]["partition.npz"] = hashlib.sha256(stream.getvalue()).hexdigest()
    run = json.dumps(sealed(about)).encode()
    _refused(
        cli, forged({"results/partition.npz": stream.getvalue(), "results/run.json": run}), "partition.npz"
    )
