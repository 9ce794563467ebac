"""A folder from a stranger holds links to what lies outside of it: nothing there is written, emptied,
renamed or removed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import raffed
from raffed.config.run import RunConfig
from raffed.data import datasets
from raffed.errors import DataFileError, RunFolderError
from raffed.methods import build_method
from raffed.results import lock
from raffed.results.files import replacing
from raffed.results.runfile import write_json
from raffed.runtime.record_files import save_record
from tests.cli.conftest import Cli
from tests.forging import edited
from tests.runtime.conftest import small

INSIDE = (
    *("run.json", "partition.npz", "metrics", "checkpoints", "vaults", ".lock", ".run.json.tmp"),
    *("metrics/part-000001-000002.parquet", "anything/else", "checkpoints/.part"),
    "checkpoints/round-000002/state.json",
)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What a person has beside the folder: files and folders, some with the names of a run's."""
    folder = tmp_path / "mine"
    names = ("file", "run.json", "metrics/part-000001-000009.parquet", "round-000001/state.json")
    for name in (*names, "report.html"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    return folder


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode) for path in files}


def linked(run: Path, name: str, outside: Path) -> None:
    """The name is a link to a file or folder outside; what was there is out there now."""
    path = run / name
    path.parent.mkdir(exist_ok=True)
    target = outside / "taken"
    if path.exists():
        path.rename(target)
    elif "." in path.name[1:] or name == ".lock":
        target.write_text("mine")
    else:
        shutil.copytree(outside / "metrics", target)
    path.symlink_to(target)


@pytest.mark.parametrize("name", INSIDE)
def test_a_link_that_leaves_a_runs_folder_is_named_and_nothing_behind_it_changes(
    cli: Cli, stopped: Path, outside: Path, name: str
) -> None:
    linked(stopped, name, outside)
    before = contents(outside), sorted(path.name for path in stopped.rglob("*"))
    for command in ("resume", "verify"):
        done = cli(command, stopped)
        assert done.code == 2, done
        (line,) = [line for line in done.err.splitlines() if line.startswith("raffed: ")]
        assert f"{stopped}/{name}: leads out of" in line
    assert (contents(outside), sorted(path.name for path in stopped.rglob("*"))) == before


def test_a_new_run_empties_nothing_that_its_lock_leads_to(cli: Cli, outside: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".lock").symlink_to(outside / "file")
    done = cli("run --execution serial --rounds 1", "--out", tmp_path / "new")
    assert done.code == 2
    assert (outside / "file").read_text() == "mine"
    with (
        pytest.raises(RunFolderError, match=r"\.lock: is a link, but must be a file; remove it"),
        lock.held(tmp_path / "new"),
    ):
        pass


def test_a_link_within_the_folder_is_followed(stopped: Path, tmp_path: Path) -> None:
    (stopped / "parts").symlink_to("metrics")
    (stopped / "metrics" / "up").symlink_to("..")
    (tmp_path / "link").symlink_to(stopped)
    assert raffed.resume(tmp_path / "link").hashes == raffed.run(small()).hashes


@pytest.mark.parametrize("name", ["report", "fedavg"])
def test_neither_a_report_nor_a_comparison_writes_through_a_link(
    cli: Cli, stopped: Path, outside: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(outside)
    (stopped / "report").symlink_to(outside)
    before = contents(outside)
    compared = cli("compare --method fedavg --execution serial --rounds 1", "--out", tmp_path / "out")
    assert (compared.code, f"out/{name}: leads out of" in compared.err) == (2, True)
    reported = cli("report", stopped, "--out", stopped / "report")
    assert (reported.code, "report: leads out of" in reported.err) == (2, True)
    assert contents(outside) == before


def test_what_writes_files_makes_them_anew_and_follows_no_link(outside: Path, tmp_path: Path) -> None:
    """Every writer of a run's files, alone, without the look through the folder before."""
    from raffed.core.messages import ClientState
    from raffed.core.params import Params
    from raffed.data.partition import make_partition
    from raffed.data.partition_file import Partition
    from raffed.data.splits import parse_split
    from raffed.runtime.record_files import load_record

    made: Partition = make_partition(parse_split("iid:2"), datasets.load_dataset("digits").y, 10, None, 0)
    writers = {
        "a.json": lambda path: write_json(path, {}),
        "b.npz": made.save,
        "c": lambda path: save_record(ClientState(Params({}), Params({}), {}), path),
    }
    before = contents(outside)
    for name, write in writers.items():
        for temporary in (f".{name}.tmp", f".{name}.{os.getpid()}.tmp", f".{name}.{os.getpid()}.part", name):
            (tmp_path / temporary).symlink_to(outside / "file")
        write(tmp_path / name)
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).stat().st_size > 0
    with replacing(tmp_path / "d") as temp:
        assert not temp.is_symlink()
    assert contents(outside) == before
    assert load_record(tmp_path / "c", ClientState, build_method("fedavg").records).slots == {}


def test_verify_never_downloads(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration with `download` and another data root is a consistent one: its identity does not
    depend on either.
    """
    asked = list[object]()
    monkeypatch.setattr(datasets, "download_files", lambda *given: asked.append(given))
    fetched = {"dataset": "mnist", "split": "iid:4", "download": True, "root": str(tmp_path / "elsewhere")}
    config = RunConfig.from_dict({**small().as_dict(), "data": fetched})
    raffed.run(small(rounds=1), tmp_path / "run")

    def stranger(about: dict[str, object]) -> None:
        about.update(config=config.as_dict(), identity=config.identity())

    edited(tmp_path / "run" / "run.json", stranger)
    before = contents(tmp_path)
    done = cli("verify", tmp_path / "run")
    assert done.code == 2, done
    assert "elsewhere" in done.err
    assert asked == []
    assert contents(tmp_path) == before
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(DataFileError):
        datasets.load_dataset("mnist", tmp_path / "elsewhere")
