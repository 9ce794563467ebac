"""The wheel, in an environment of its own: everything is there, and nothing under a name that others use."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.clean import BESIDE, ROOT, call

pytestmark = pytest.mark.slow


def test_the_wheel_brings_one_top_level_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) > 100
    assert {name.split("/")[0] for name in names if not name.startswith("raffed-")} == {"raffed"}


def test_the_wheel_holds_every_file_of_the_folders_it_takes_in(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    checked = 0
    for folder in ("raffed", "analysis", "cluster", "reproductions", "tune_spaces"):
        inside = "raffed" if folder == "raffed" else f"raffed/{folder}"
        for path in (ROOT / folder).rglob("*"):
            # Records of runs and what is written about them stay in the repository, and C is compiled
            left_out = {"__pycache__", "records", "prose"} & set(path.relative_to(ROOT).parts)
            if path.is_file() and not left_out and path.suffix not in (".c", ".so"):
                assert f"{inside}/{path.relative_to(ROOT / folder).as_posix()}" in names
                checked += 1
    assert checked > 100


def test_the_records_are_in_the_sdist_and_not_in_the_wheel(copy: Path, wheel: Path, tmp_path: Path) -> None:
    build = "import sys, build_backend; print(build_backend.build_sdist(sys.argv[1]))"
    call(sys.executable, "-c", f"import sys; sys.path.insert(0, '.ci'); {build}", tmp_path, cwd=copy)
    (made,) = tmp_path.glob("raffed-*.tar.gz")
    with tarfile.open(made) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    packed = [path for path in (ROOT / "reproductions" / "records").rglob("*") if path.is_file()]
    assert {path.relative_to(ROOT).as_posix() for path in packed} <= names
    assert {"tests/conftest.py", ".ci/build_backend.py", ".ci/MANIFEST.in"} <= names
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "/records/" in name]


def test_no_generic_name_can_be_imported_and_raffed_s_own_can(python: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, raffed, raffed.analysis.report, raffed.cluster, raffed.tune_spaces\n"
        f"print([n for n in {BESIDE!r} if u.find_spec(n)], raffed.__path__)\n"
    )
    found, _, where = call(python, "-c", code, cwd=tmp_path).partition("] ")
    assert found == "["
    assert where.count("'") == 2  # one folder: the checkout is not on the path
    assert str(ROOT) not in where


def test_the_commands_work_beside_a_user_s_own_analysis_py(python: Path, tmp_path: Path) -> None:
    (tmp_path / "analysis.py").write_text("raise SystemExit('the user\\'s analysis was imported')\n")
    small = ("--rounds", "1", "--epochs", "1", "--split", "p4c5", "--execution", "serial", "--quiet")
    run = [python, "-m", "raffed", "run", *small]
    call(*run, "--out", "runs/a", cwd=tmp_path)
    call(python, "-m", "raffed", "report", "runs", "--out", "report", cwd=tmp_path)
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
