"""run.json is written in one step, has equal bytes for equal contents, and says what is wrong with it."""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

import pytest

import raffed
from raffed.errors import RunFolderError
from raffed.results import read_run, runfile, write_json
from raffed.results.runfile import sealed
from tests.forging import FEWEST


def test_equal_objects_give_equal_bytes_whatever_their_order(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"b": 1, "a": {"d": 2, "c": "ü"}})
    write_json(tmp_path / "b", {"a": {"c": "ü", "d": 2}, "b": 1})
    expected = '{\n  "a": {\n    "c": "ü",\n    "d": 2\n  },\n  "b": 1\n}\n'
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == expected.encode()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", FEWEST)
    assert read_run(tmp_path) == sealed(FEWEST)


@pytest.mark.parametrize("bad", [{"x": float("nan")}, {"x": Path("y")}])
def test_what_json_cannot_say_leaves_the_old_file_alone(tmp_path: Path, bad: dict[str, object]) -> None:
    write_json(tmp_path / "run.json", FEWEST)
    with pytest.raises((ValueError, TypeError)):
        write_json(tmp_path / "run.json", bad)
    assert read_run(tmp_path) == sealed(FEWEST)


def test_a_write_that_fails_before_the_rename_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / "run.json", FEWEST)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "run.json", {**FEWEST, "run_id": "new"})
    assert read_run(tmp_path) == sealed(FEWEST)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no run.json here"),
        ('{"run_id": ', "is not JSON"),
        ("[1]", "holds a list"),
        ("\udcff", "is not JSON"),
    ],
)
def test_a_missing_or_damaged_run_json_is_named(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "run.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(RunFolderError, match=says) as caught:
        read_run(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_checkout_that_is_not_installed_records_its_own_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the tree on PYTHONPATH has no metadata of an installed package."""

    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    runfile.versions.__globals__["_version"].cache_clear()
    try:
        assert runfile.versions()["raffed"] == raffed.__version__
    finally:
        runfile.versions.__globals__["_version"].cache_clear()


def test_a_digit_that_changed_in_run_json_is_noticed_and_another_layout_is_not(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, FEWEST)
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert read_run(tmp_path)["seconds"] == 1.5
    path.write_text(path.read_text().replace("1.5", "1.7"))
    with pytest.raises(
        RunFolderError, match=r"run\.json: the file was edited or damaged, because its contents"
    ):
        read_run(tmp_path)


def test_a_run_json_that_holds_no_hash_of_its_contents_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(FEWEST))
    assert read_run(tmp_path) == FEWEST
