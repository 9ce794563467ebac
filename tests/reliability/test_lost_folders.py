"""The folder of a run on Ray, or of a sweep, is renamed, exchanged or made read-only while it is written:
one line that says what to do, exit code 1, and what was computed is there to be continued.

python -m pytest tests/reliability/test_lost_folders.py -m slow
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed.results.runfile import read_run
from raffed.results.sweep_file import read_sweep
from tests.reliability.commands import Begin, Command, Ended

pytestmark = pytest.mark.slow
ROUNDS = {"fedavg": 400, "scamap": 250}  # so many that a run is struck before its end
SMALL = ["--split", "p4c5", "--epochs", "1"]
SWEEP = ["tune", "--method", "fedavg", *SMALL, "--rounds", "60", "--seeds", "1"]
_known: dict[str, dict[str, str]] = {}
GRID = ["--grid", "local.lr=0.01,0.02,0.03,0.04,0.05,0.06"]


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Nothing can be written in the folder. root heeds no permission, so for it the folder is mounted so."""
    if os.geteuid() != 0:
        folders = [path, *(one for one in path.rglob("*") if one.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        yield
        for folder in folders:
            folder.chmod(0o755)
        return
    done = subprocess.run(["mount", "--bind", "-o", "ro", path, path], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def moved(path: Path, change: str) -> Path:
    """The new name of a folder that is renamed; exchanged: another folder has its old name."""
    new = path.rename(path.with_name("moved"))
    if change == "exchanged":
        path.mkdir()
    return new


def struck(command: Command, path: Path, change: str) -> tuple[Ended, Path]:
    """What comes of a change of the folder, and where the folder is after it."""
    with read_only(path) if change == "read-only" else nullcontext():
        ended = command.ended(lambda: None if change == "read-only" else moved(path, change) and None)
    return ended, path if change == "read-only" else path.with_name("moved")


def check(ended: Ended, path: Path, change: str, again: str) -> None:
    """One line, the exit code of a failure in the middle, no process left, and nothing begun anew."""
    [said] = [line for line in ended.err.splitlines() if line.startswith("raffed: ")]
    assert "Traceback" not in ended.err
    assert ended.code == 1
    assert ended.left == []
    if change == "read-only":
        assert re.search("Read-only file system|Permission denied", said)
    else:
        assert f"{path} was renamed or removed while" in said
        # A trial that is just beginning may still make its own folder there, but no sweep or run seems to be
        assert not list(path.glob("*.json"))
    assert f"`{again} {path}` continues" in said


def undisturbed(config: raffed.RunConfig) -> dict[str, str]:
    """The hashes of a run that nothing befalls, computed once for each method."""
    if config.method not in _known:
        _known[config.method] = raffed.run(config).hashes
    return _known[config.method]


@pytest.mark.parametrize("change", ["renamed", "exchanged", "read-only"])
@pytest.mark.parametrize("method", ["fedavg", "scamap"])
def test_a_run_on_ray_whose_folder_is_lost_is_continued_to_the_same_bits(
    begin: Begin, tmp_path: Path, method: str, change: str
) -> None:
    out, rounds = tmp_path / "run", ["--rounds", str(ROUNDS[method])]
    command = begin(["run", "--method", method, *SMALL, *rounds, "--execution", "ray", "--out", str(out)])
    command.until("^round ")
    ended, now = struck(command, out, change)
    check(ended, out, change, "raffed resume")
    about = read_run(now)
    assert about["state"] == "running"
    assert (now / "checkpoints" / f"round-{about['rounds_done']:06d}").exists() or about["rounds_done"] == 0
    config = raffed.RunConfig.from_dict(about["config"])
    serial = replace(config.runtime, execution="serial")
    assert raffed.resume(now, runtime=serial).hashes == undisturbed(replace(config, runtime=serial))


@pytest.mark.parametrize("change", ["renamed", "exchanged", "read-only"])
def test_a_sweep_whose_folder_is_lost_ends_at_once_and_is_continued(
    begin: Begin, tmp_path: Path, change: str
) -> None:
    out = tmp_path / "sweep"
    command = begin([*SWEEP, *GRID, "--out", str(out)])
    command.until("^ *1  fedavg")
    ended, now = struck(command, out, change)
    check(ended, out, change, "raffed tune --resume --out")
    trials = read_sweep(now)["methods"]["fedavg"]["trials"]
    before = {one["name"]: one["score"] for one in trials if one["rounds"] == 60}
    assert before
    assert begin(["tune", "--resume", "--out", str(now)]).wait(240) == 0
    about = read_sweep(now)
    after = {one["name"]: one["score"] for one in about["methods"]["fedavg"]["trials"]}
    assert about["state"] == "finished"
    assert before.items() <= after.items()
    assert len(after) == 6
