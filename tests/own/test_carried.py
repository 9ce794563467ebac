"""A process elsewhere resolves a run's references by the code that travelled, and by no other."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from raffed.config.run import RunConfig
from raffed.own.carried import packed
from raffed.runtime.setup import prepare_run
from tests.own.test_references import package, write
from tests.warm import python

USE = "import pickle; code = pickle.load(open({file!r}, 'rb')); from raffed.own.resolve import load; "


def elsewhere(folder: Path, file: Path, ends: str, **before: str) -> str:
    folder.mkdir(exist_ok=True)
    for name, text in before.items():
        write(folder / f"{name}.py", text)
    done = python(["-c", USE.format(file=str(file)) + ends], cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def away(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on what stands for another machine, with temporary files of its own."""
    place = lab / "away"
    place.mkdir()
    (place / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(place / "tmp"))
    return place


def test_the_original_place_is_used_while_it_holds_the_same_files(lab: Path, away: Path) -> None:
    (lab / "code").write_bytes(pickle.dumps(packed({"method": "./prox.py:myprox"})))
    shown = elsewhere(away, lab / "code", "print(load('./prox.py:myprox').__code__ and code.parts[0].role)")
    assert shown == "method"
    assert list((away / "tmp").iterdir()) == []


@pytest.mark.parametrize("what", ["removed", "edited"])
def test_a_file_that_is_not_there_travels_with_its_neighbours(lab: Path, away: Path, what: str) -> None:
    write(lab / "beside.py", "VALUE = 5\n")
    write(lab / "own.py", "import beside\n\ndef value():\n    return beside.VALUE\n")
    (lab / "code").write_bytes(pickle.dumps(packed({"method": "./own.py:value"})))
    if what == "removed":
        (lab / "beside.py").unlink()
    else:
        write(lab / "beside.py", "VALUE = 6\n")
    for _ in range(2):  # the second process finds what the first one wrote
        assert elsewhere(away, lab / "code", "print(load('./own.py:value')())") == "5"
    (folder,) = (away / "tmp").iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert len(list(folder.iterdir())) == 1


def test_a_package_that_travels_comes_before_another_version_of_it(lab: Path, away: Path) -> None:
    package(lab, "lab_t")
    (lab / "code").write_bytes(pickle.dumps(packed({"method": "lab_t.methods:prox"})))
    other = package(away, "lab_t")
    write(other / "pulls.py", "def pull():\n    return 4\n")
    assert elsewhere(away, lab / "code", "print(load('lab_t.methods:prox')())") == "3"


def test_a_setup_brings_its_code_along_before_anything_else_is_read(lab: Path, away: Path) -> None:
    setup = prepare_run(RunConfig(method="./prox.py:myprox"))
    (lab / "code").write_bytes(pickle.dumps(setup))
    (lab / "prox.py").unlink()
    assert elsewhere(away, lab / "code", "print(code.method.name)") == "MyProx"
