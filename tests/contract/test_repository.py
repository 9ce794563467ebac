"""What lies in the repository: the names at its top, and no large file that nobody has allowed."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest
from raffed.reproductions.pages.packed.files import read_file

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_tracked_file_is_larger_than_its_allowance(
    tracked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    check = runpy.run_path(str(ROOT / ".ci" / "large_files.py"))["main"]
    assert check(*tracked) == 0, capsys.readouterr().out


def locked() -> dict[str, str]:
    """The version of every package in requirements.lock."""
    text = (ROOT / "requirements.lock").read_text()
    entries = re.findall(r"^([\w.-]+)==([^ ;\\]+)[^\n]*\\\n +--hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE)), "an entry has no hash"
    return dict(entries)


def test_the_lock_holds_the_versions_that_the_recorded_runs_name() -> None:
    index, _ = read_file(ROOT / "reproductions/records/gldp/records.parquet")
    recorded = [one["versions"] for name, one in index["files"].items() if name.endswith("run.json")]
    for name in ("torch", "ray", "numpy", "pyarrow"):
        assert {one[name] for one in recorded} == {locked()[name]}


def test_the_lock_has_every_dependency_with_its_hashes_and_names_no_host() -> None:
    text = (ROOT / "pyproject.toml").read_text().partition("\ndependencies = [")[2].partition("\n]")[0]
    wanted = re.findall(r'^    "([\w-]+)[^"]*"', text, re.MULTILINE)
    assert len(wanted) > 10
    assert set(wanted) <= locked().keys()
    assert "://" not in (ROOT / "requirements.lock").read_text()
