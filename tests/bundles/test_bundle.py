"""A bundle holds what a reviewer needs, the same bytes each time, and nothing that names a person."""

from __future__ import annotations

import dataclasses
import getpass
import json
import platform
import shutil
from pathlib import Path

import pytest

import raffed
from raffed.errors import RunFolderError, UsageError
from raffed.experiments.bundles.private_text import Machine
from raffed.results.runfile import read_run, write_json
from tests.bundles.conftest import contents
from tests.cli.conftest import Cli
from tests.runtime.conftest import small
from tests.warm import python


def test_a_bundle_holds_configuration_partition_rows_hashes_lock_and_description(archive: Path) -> None:
    names = set(contents(archive))
    rows = {name for name in names if name.startswith("results/metrics/part-")}
    assert names - rows == {
        *("bundle.json", "environment.txt", "README.md", "ro-crate-metadata.json"),
        *("results/run.json", "results/partition.npz"),
    }
    assert len(rows) == 1


def test_the_same_run_gives_the_same_bytes(archive: Path, run_folder: Path, tmp_path: Path) -> None:
    again = raffed.bundle(run_folder, tmp_path / "again.zip")
    assert again.path.read_bytes() == archive.read_bytes()
    moved = Path(shutil.copytree(run_folder, tmp_path / "another" / "folder"))
    assert raffed.bundle(moved, tmp_path / "moved.zip").sha256 == again.sha256


def test_a_bundle_that_was_killed_while_it_was_written_is_made_again(
    archive: Path, run_folder: Path, tmp_path: Path
) -> None:
    """The zip has its name only when it is whole."""
    code = (
        "import os, sys, zipfile, raffed\n"
        "zipfile.ZipFile.writestr = lambda *member: os.kill(os.getpid(), 9)\n"
        "raffed.bundle(sys.argv[1], sys.argv[2])"
    )
    killed = python(["-c", code, str(run_folder), str(tmp_path / "run.zip")])
    assert killed.returncode == -9
    assert not (tmp_path / "run.zip").exists()
    assert any(tmp_path.iterdir())
    assert raffed.bundle(run_folder, tmp_path / "run.zip").path.read_bytes() == archive.read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == ["run.zip"]


def test_the_lock_lists_what_raffed_needs_and_no_place(archive: Path) -> None:
    lines = contents(archive)["environment.txt"].decode().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {"raffed", "torch", "ray", "numpy", "pyarrow"} <= pins.keys()
    assert pins["raffed"] == raffed.__version__
    assert [line for line in lines if "/" in line or "@" in line] == []


def test_the_crate_describes_every_file_as_the_specification_asks(archive: Path) -> None:
    """RO-Crate 1.1, "Root Data Entity" and "Data Entities"."""
    members = contents(archive)
    graph = {one["@id"]: one for one in json.loads(members["ro-crate-metadata.json"])["@graph"]}
    about = graph["ro-crate-metadata.json"]
    assert about["@type"] == "CreativeWork"
    assert about["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    root = graph[about["about"]["@id"]]
    assert root["@type"] == "Dataset"
    assert all(root[name] for name in ("name", "description", "datePublished", "license"))
    files = {name for name, one in graph.items() if one["@type"] == "File"}
    assert files == members.keys() - {"ro-crate-metadata.json"} == {one["@id"] for one in root["hasPart"]}
    assert all(int(graph[name]["contentSize"]) == len(members[name]) for name in files)
    used = [one["@id"] for entity in graph.values() for one in _references(entity)]
    assert {one for one in used if not one.startswith("https://")} <= graph.keys()


def _references(entity: dict[str, object]) -> list[dict[str, str]]:
    values = [one for value in entity.values() for one in (value if isinstance(value, list) else [value])]
    return [one for one in values if isinstance(one, dict)]


def test_neither_the_account_nor_the_machine_nor_a_folder_of_it_is_named(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "gundula")
    monkeypatch.setattr(platform, "node", lambda: "workhorse7.lab")
    monkeypatch.setenv("MY_API_TOKEN", "tuesday-afternoon-42")
    copy = Path(shutil.copytree(run_folder, tmp_path / "gundula"))
    about = read_run(copy)
    about["error"] = "/home/gundula/run failed on workhorse7 with tuesday-afternoon-42"
    about["placement"] = {"execution": "ray", "places": [{"node": "workhorse7", "address": "10.1.2.3"}]}
    about["segments"][0]["said"] = ["/home/gundula/runs/a: slow disk of workhorse7"]
    about["title"] = "a run of gundula in /scratch/gundula/x"
    about["config"]["data"]["root"] = "/home/gundula/data"
    about["config"]["runtime"]["address"] = "workhorse7:6379"
    about["dataset"]["client_names"] = ["Saint Mary's Hospital"]
    about["dataset"]["columns"] = [{"name": "surname", "categories": ["Featherstonehaugh"]}]
    write_json(copy / "run.json", about)
    made = contents(raffed.bundle(copy, tmp_path / "a.zip").path)
    text = b"".join(made.values()).lower()
    for word in (
        b"gundula",
        b"workhorse7",
        b"tuesday-afternoon",
        b"10.1.2.3",
        b"/scratch",
        b"mary",
        b"featherstonehaugh",
        str(tmp_path).encode(),
    ):
        assert word not in text
    kept = json.loads(made["results/run.json"])
    assert kept["identity"] == about["identity"]
    assert kept["config"]["data"]["root"] is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("token = 'gh" + "p_" + "a1B2" * 9 + "'", "a token of GitHub"),
        ("url = 'https://me:hunter22@host/db'", "in an address"),
        ("x = 'tuesday-afternoon-42'", "environment variable MY_API_TOKEN"),
        ("# written by gundula", "name of this account or machine gundula"),
        ("open('/home/somebody/x')", "/home/somebody"),
        ("open('C:\\Users\\somebody\\x')", "somebody"),
        ("open('/srv/people/gundula-home/x')", "gundula"),
    ],
)
def test_own_code_with_a_secret_or_a_name_in_it_is_refused(
    text: str, what: str, lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "gundula")
    monkeypatch.setenv("MY_API_TOKEN", "tuesday-afternoon-42")
    machine = Machine(("gundula",), "/srv/people/gundula-home", {"MY_API_TOKEN": "tuesday-afternoon-42"})
    assert any(
        what in f"{kind} {found}" for kind, found in machine.found(f"import torch\n{text}\n", "own.py")
    )


def test_the_refusal_of_a_source_names_file_reason_and_remedy_in_one_line(lab: Path, cli: Cli) -> None:
    (lab / "prox.py").write_text((lab / "prox.py").read_text() + "# see /home/somebody/notes\n")
    raffed.run(dataclasses.replace(small("./prox.py:plain", 1)), "runs/a")
    refused = cli("bundle", "runs/a", "--out", "a.zip")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "prox.py: holds a path of a person's folder /home/somebody" in refused.err
    assert not (lab / "a.zip").exists()
    done = cli("bundle", "runs/a", "--out", "a.zip", "--allow", "/home/somebody")
    assert done.code == 0
    assert b"somebody" in b"".join(contents(lab / "a.zip").values())
    (lab / "prox.py").write_text("changed = True\n")
    assert (
        "prox.py of ./prox.py:plain is not there as it was" in cli("bundle", "runs/a", "--out", "b.zip").err
    )


@pytest.mark.parametrize(
    "text", ["/srv/x.csv", "csv:/srv/x.csv", "~/x.csv", "~me/x", "C:\\data\\x", "file:/a/b"]
)
def test_absolute_paths_are_found(text: str) -> None:
    assert list(Machine((), "", {}).paths(text))


@pytest.mark.parametrize(
    "text", ["./own.py:f", "csv:tables/x.csv?label=y", "s3://bucket/a", "2/3", "https://a.b/c", "MB up/round"]
)
def test_relative_paths_and_addresses_are_not_taken_for_absolute_paths(text: str) -> None:
    assert list(Machine((), "", {}).paths(text)) == []


def test_a_configuration_with_an_absolute_path_is_refused(lab: Path, run_folder: Path, cli: Cli) -> None:
    raffed.run(
        small(rounds=1).changed({"data.split": f"file:{run_folder}/partition.npz", "data.local_test": None}),
        "a",
    )
    refused = cli("bundle", "a", "--out", "a.zip")
    assert refused.code == 2
    assert "data.split: holds an absolute path" in refused.err


def test_what_is_not_finished_damaged_or_taken_is_refused(
    run_folder: Path, archive: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="exists already"):
        raffed.bundle(run_folder, archive)
    with pytest.raises(UsageError, match="no such folder"):
        raffed.bundle(run_folder, tmp_path / "none" / "a.zip")
    with pytest.raises(RunFolderError):
        raffed.bundle(tmp_path, tmp_path / "a.zip")
    copy = Path(shutil.copytree(run_folder, tmp_path / "copy"))
    about = read_run(copy)
    write_json(copy / "run.json", {**about, "state": "stopped"})
    with pytest.raises(UsageError, match="the run is stopped; finish it first"):
        raffed.bundle(copy, tmp_path / "a.zip")
    write_json(copy / "run.json", {**about, "hashes": {**about["hashes"], "metrics": "0" * 64}})
    with pytest.raises(RunFolderError, match="do not have the hash"):
        raffed.bundle(copy, tmp_path / "a.zip")


def test_the_command_prints_what_was_written(run_folder: Path, tmp_path: Path, cli: Cli) -> None:
    done = cli(
        "bundle", run_folder, "--out", tmp_path / "a.zip", "--json", "--license", "https://licence.example/x"
    )
    assert done.code == 0
    assert done.events[0]["event"] == "bundle"
    assert done.events[0]["runs"] == ["."]
    graph = json.loads(contents(tmp_path / "a.zip")["ro-crate-metadata.json"])["@graph"]
    assert {"@id": "https://licence.example/x"} in [one.get("license") for one in graph]
