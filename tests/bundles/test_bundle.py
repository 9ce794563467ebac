"""A bundle holds what a reviewer needs, the same bytes each time, and nothing that names a person."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import raffed
from raffed.errors import RunFolderError, UsageError
from raffed.results.runfile import read_run, write_json
from tests.bundles.conftest import contents
from tests.cli.conftest import Cli
from tests.runtime.conftest import small
from tests.warm import python


def test_a_bundle_holds_configuration_partition_rows_hashes_lock_and_description(
    run_folder: Path, archive: Path, tmp_path: Path, cli: Cli
) -> None:
    words = ["--out", tmp_path / "a.zip", "--json", "--license", "https://licence.example/x"]
    (event,) = cli("bundle", run_folder, *words).events
    assert (event["event"], event["runs"]) == ("bundle", ["."])
    made = contents(tmp_path / "a.zip")
    rows = {name for name in made if name.startswith("results/metrics/part-")}
    assert made.keys() - rows == {
        *("bundle.json", "environment.txt", "README.md", "results/run.json", "results/partition.npz"),
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
