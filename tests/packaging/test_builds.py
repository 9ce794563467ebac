"""A wheel records its commit, the same sources give the same bytes, and C is optional. In an environment of
its own everything is there, and nothing under a name that others use.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from raffed.config.toml import parse_toml
from tests.packaging.conftest import BESIDE, ROOT, call, stranger

FOLDERS = ("analysis", "cluster", "reproductions", "tune_spaces")
COMMIT = "0123456789012345678901234567890123456789"


def test_the_image_copies_everything_that_a_wheel_is_built_from() -> None:
    text = (ROOT / "cluster" / "Dockerfile").read_text(encoding="utf-8")
    copied = {word for line in text.splitlines() if line.startswith("COPY") for word in line.split()[2:-1]}
    needed = {"pyproject.toml", "README.md", "LICENSE", ".ci", "raffed", *BESIDE} - {"tests"}
    assert needed <= copied


@pytest.mark.parametrize(("digest", "code"), [("", 1), (f"@sha256:{'0' * 64}", 0)])
def test_the_image_is_built_upon_one_that_is_named_by_its_digest(digest: str, code: int) -> None:
    text = (ROOT / "cluster" / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall("^FROM (.*)$", text, re.MULTILINE) == ["${BASE}"]
    (refuse,) = re.findall("^RUN (case .*)$", text, re.MULTILINE)
    base = {**os.environ, "BASE": f"rayproject/ray:2.60.0-py311{digest}"}
    assert subprocess.run(["sh", "-c", refuse], env=base, check=False, capture_output=True).returncode == code


def test_what_ci_executes_of_others_is_named_by_its_hash() -> None:
    """An action by the commit of a tag, a package of the lock by its file's hash; what is released says its
    origin.
    """
    flows = {one.stem: one.read_text("utf-8") for one in (ROOT / ".github" / "workflows").glob("*.yml")}
    used = [name for text in flows.values() for name in re.findall(r"uses: (.*)", text)]
    assert len(used) >= 12
    assert [
        one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)
    ] == []
    assert "pip install --require-hashes -r requirements.lock" in flows["check"]
    jobs = yaml.safe_load(flows["release"])["jobs"]
    for name in ("wheels", "sdist"):
        assert any("attest-build-provenance" in step.get("uses", "") for step in jobs[name]["steps"])
        assert jobs[name]["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}


def built(copy: Path, out: Path, **variables: str) -> Path:
    """The wheel of a copy, built as pip does, with these environment variables."""
    code = (
        "import sys; sys.path.insert(0, '.ci'); import build_backend as b; print(b.build_wheel(sys.argv[1]))"
    )
    subprocess.run(["rm", "-rf", "build", "raffed.egg-info"], cwd=copy, check=True)
    env = {**stranger(), "SOURCE_DATE_EPOCH": "315532800", **variables}
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)], cwd=copy, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.split()[-1]


@pytest.mark.slow
def test_the_same_sources_give_the_same_wheel_which_records_their_commit(copy: Path, tmp_path: Path) -> None:
    (copy / "raffed" / "_commit.txt").write_text(COMMIT)  # as in an sdist, which has no history
    try:
        for name in ("one", "two"):
            os.mkdir(tmp_path / name)
        first, second = (built(copy, tmp_path / name) for name in ("one", "two"))
    finally:
        (copy / "raffed" / "_commit.txt").unlink()
    assert first.read_bytes() == second.read_bytes()
    assert zipfile.ZipFile(first).read("raffed/_commit.txt").decode() == COMMIT


@pytest.mark.slow
def test_without_a_compiler_the_wheel_is_built_without_c(copy: Path, tmp_path: Path) -> None:
    found = built(copy, tmp_path, CC="/bin/false", CXX="/bin/false")
    names = zipfile.ZipFile(found).namelist()
    assert "raffed/core/kernels/maxpool.py" in names
    assert [name for name in names if name.endswith((".so", ".pyd"))] == []


TREES = {"raffed": "raffed", **{f"raffed.{name}": name for name in FOLDERS}}
NOT_SHIPPED = {"raffed.reproductions.records", "raffed.cluster.launcher"}  # the latter is shipped as data


def test_pyproject_names_every_folder_of_modules_as_a_package() -> None:
    settings = parse_toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"), "pyproject.toml")
    named = set(settings["tool"]["setuptools"]["packages"])
    found = {
        ".".join([package, *file.parent.relative_to(ROOT / folder).parts])
        for package, folder in TREES.items()
        for file in (ROOT / folder).rglob("*.py")
    }
    assert len(found) > 40
    assert found - NOT_SHIPPED == named


@pytest.mark.slow
def test_the_wheel_brings_one_top_level_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) > 100
    assert {name.split("/")[0] for name in names if not name.startswith("raffed-")} == {"raffed"}


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_no_generic_name_can_be_imported_and_raffed_s_own_can(python: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, raffed, raffed.analysis.report, raffed.cluster, raffed.tune_spaces\n"
        f"print([n for n in {BESIDE!r} if u.find_spec(n)], raffed.__path__)\n"
    )
    found, _, where = call(python, "-c", code, cwd=tmp_path).partition("] ")
    assert found == "["
    assert where.count("'") == 2  # one folder: the checkout is not on the path
    assert str(ROOT) not in where


@pytest.mark.slow
def test_the_commands_work_beside_a_user_s_own_analysis_py(python: Path, tmp_path: Path) -> None:
    (tmp_path / "analysis.py").write_text("raise SystemExit('the user\\'s analysis was imported')\n")
    small = ("--rounds", "1", "--epochs", "1", "--split", "p4c5", "--execution", "serial", "--quiet")
    run = [python, "-m", "raffed", "run", *small]
    call(*run, "--out", "runs/a", cwd=tmp_path)
    call(python, "-m", "raffed", "report", "runs", "--out", "report", cwd=tmp_path)
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
