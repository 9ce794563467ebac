"""`raffed new` writes a project whose own checks pass, and `raffed check` leaves with the truth."""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from raffed.api.creating import FILES, new_project
from raffed.errors import UsageError
from tests.warm import python

ROOT = Path(__file__).parents[2]


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return python(["-m", *words], cwd=folder, env={**os.environ, "PYTHONPATH": path}, timeout=300)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "mylab"
    assert len(new_project(folder)) == len(FILES)
    return folder


def test_the_project_holds_what_its_readme_names(project: Path) -> None:
    found = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert found == {one.format(name="mylab") for one in FILES}
    assert not any("@NAME@" in path.read_text() for path in project.rglob("*") if path.is_file())


@pytest.mark.slow
def test_its_code_passes_ruff_and_mypy(project: Path) -> None:
    ruff = [("ruff", *words, "--no-cache", ".") for words in (["check"], ["format", "--check"])]
    for words in [*ruff, ("mypy", "--cache-dir", os.devnull)]:
        done = call(project, *words)
        assert done.returncode == 0, done.stdout


@pytest.mark.more
def test_its_tests_pass_check_by_check(project: Path) -> None:
    known = any(one.value == "raffed.testing.plugin" for one in entry_points(group="pytest11"))
    plugin = () if known else ("-p", "raffed.testing.plugin")  # an installed raffed registers it
    done = call(project, "pytest", *plugin, "-p", "no:cacheprovider", "-q", "-rA")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_the_contract_holds[mylab.methods:myprox-same-seed-same-bits]" in done.stdout
    assert "test_the_contract_holds[mylab.data:Halves-each-sample-once]" in done.stdout


@pytest.mark.more
def test_its_run_file_runs_its_method(project: Path) -> None:
    done = call(project, "raffed", "run", "experiments/base.toml", "--rounds", "1", "--out", "runs/a")
    assert done.returncode == 0, done.stderr
    assert (project / "runs" / "a" / "run.json").exists()


def test_check_leaves_with_1_where_a_check_fails_and_2_where_the_reference_is_wrong(project: Path) -> None:
    (project / "wrong.py").write_text(
        "from raffed import Method, Term\n\n\nclass Bad(Term):\n    def loss(self, f, k):\n"
        "        return f.logits.sum() / 0.0\n\n\ndef bad() -> Method:\n"
        "    return Method('Bad', terms=(Bad(),))\n"
    )
    done = call(project, "raffed", "check", "./wrong.py:bad")
    (project / "wrong.py").unlink()
    assert done.returncode == 1
    assert "finite-losses" in done.stdout
    assert call(project, "raffed", "check", "./nosuch.py:bad").returncode == 2


@pytest.mark.parametrize("name", ["My-Lab", "class", "torch", "", "there"])
def test_a_name_that_no_package_can_have_and_a_folder_that_exists_are_refused(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError):
        new_project(tmp_path / name if name else "")
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
