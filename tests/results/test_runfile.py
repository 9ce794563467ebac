"""JSON files and run.json: written in one step, read whole, and one line says what is wrong with them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import raffed
from raffed.config.validation import Doc, Json
from raffed.errors import RunFolderError
from raffed.own.gate import check_inside
from raffed.results import runfile
from raffed.results.files import LARGEST, JsonFileError, NoJsonFileError, read_json
from raffed.results.runfile import RunContents, problem, read_run, sealed, write_json
from tests.forging import FEWEST

GOOD = {"a": [1, -2.5, True, None, "ü", {"b": {}}], "": 2**63 - 1}


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not JSON"),
        (b'{"a": 1', "is not JSON"),
        (b"\xef\xbb\xbf{}", "is not JSON"),
        (b'{"a": "\xff"}', "is not JSON .invalid unicode code point"),
        (b"[]", "holds a list, but must hold an object"),
        (nested(200_000), "recursion limit"),
        (b'{"a": "\\ud800"}', "is not JSON"),
        (b'{"a": NaN}', "is not JSON"),
        (b'{"a": 1e400}', "not finite"),
        (b'{"a": 1' + b"0" * 400 + b"}", "more than 64 bits"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "is not JSON"),
    ],
)
def test_content_that_raffed_never_writes_is_an_error(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(JsonFileError, match=why) as raised:
        read_json(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_what_was_written_is_read_also_the_deepest_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(GOOD, ensure_ascii=False), encoding="utf-8")
    assert read_json(path) == GOOD
    path.write_bytes(nested(200))
    assert list(read_json(tmp_path / "a.json")) == ["a"]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(JsonFileError, match=r"has 33,554,433 bytes, but may have at most 33,554,432"):
        read_json(tmp_path / "a.json")


def test_no_file_is_told_apart_from_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "none.json", tmp_path / "file" / "a.json"):
        with pytest.raises(NoJsonFileError, match="there is no such file"):
            read_json(path)


@pytest.mark.skipif(os.name != "posix", reason="special files of POSIX systems")
def test_what_is_no_regular_file_is_never_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    Path("folder").mkdir()
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        for name, why in (("folder", "is a folder"), ("pipe", "is a named pipe"), ("socket", "is a socket")):
            with pytest.raises(JsonFileError, match=why):
                read_json(Path(name))


def test_a_link_is_followed_inside_its_folder_and_not_out_of_it(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "secret.json"
    run.mkdir()
    outside.write_text('{"secret": 1}')
    (run / "real.json").write_text("{}")
    (run / "good.json").symlink_to("real.json")
    assert read_json(run / "good.json") == {}
    (run / "bad.json").symlink_to(outside)
    (run / "device.json").symlink_to("/dev/zero")
    (run / "circle.json").symlink_to("circle.json")
    for name, why in (("bad", "leads out of"), ("device", "leads out of"), ("circle", "cannot be followed")):
        with pytest.raises(JsonFileError, match=why):
            read_json(run / f"{name}.json")


def test_a_folder_that_is_itself_reached_by_a_link_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a.json").write_text("{}")
    (tmp_path / "runs").symlink_to("disk")
    assert read_json(tmp_path / "runs" / "a.json") == {}
    check_inside(tmp_path / "runs", tmp_path / "disk" / "not" / "there" / "yet")


def test_a_path_that_leads_out_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics").symlink_to(tmp_path)
    for name in ("metrics", "metrics/new", "../x"):
        with pytest.raises(RunFolderError, match="leads out of"):
            check_inside(tmp_path / "run", tmp_path / "run" / name)


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


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "run.json", FEWEST)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "run.json", {**FEWEST, "run_id": "new"})
    assert read_run(tmp_path) == sealed(FEWEST)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


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
    path.write_text(json.dumps(FEWEST))  # one without a hash, of an earlier version
    assert read_run(tmp_path) == FEWEST
    write_json(path, FEWEST)
    path.write_text(path.read_text().replace("1.5", "1.7"))
    with pytest.raises(RunFolderError, match=r"run\.json: the file was edited or damaged"):
        read_run(tmp_path)


# Every field is declared once, and a wrong value gives one line that names the field

WRONG: dict[str, tuple[Json, str]] = {
    "schema": ("2", "schema is '2', but must be a valid integer"),
    "run_id": ("", "run_id is '', but must be a text of printable characters"),
    "identity": ("0" * 63, "but must be 64 hexadecimal digits"),
    "state": ("done", "but must be 'running', 'stopped', 'failed' or 'finished'"),
    "rounds_done": (-1, "rounds_done is -1, but must be greater than or equal to 0"),
    "versions": ({"torch": 2}, "versions.torch is 2, but must be a valid string"),
    "hardware": ({"cores": 2.5}, "cores is 2.5, but must be a valid string or must be a valid integer"),
    "classes": ({"samples": ["1"], "holders": [1]}, "classes.samples[0] is '1', but must be a valid integer"),
    "hashes": ({"metrics": "0" * 64, "vaults": "0" * 64}, "hashes.weights is missing"),
    "files": ({"../x": "0" * 64}, "files.../x is '../x', but must be the name of a file below the folder"),
    "segments": ([{"from": 1}], "segments[0].to is missing"),
    "code": ([{"role": "method"}], "code[0].reference is missing"),
}


FIELDS = get_type_hints(RunContents, include_extras=True)


def test_every_field_has_a_meaning() -> None:
    kinds = FIELDS.values()
    assert all(any(isinstance(one, Doc) for one in get_args(kind)) for kind in kinds)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named(name: str) -> None:
    value, says = WRONG[name]
    found = problem({**FEWEST, name: value})
    assert says in found
    assert found.count("\n") == 0


def test_a_field_that_there_is_not_is_named_with_the_nearest() -> None:
    assert "rounds_doen is not a field that raffed writes (did you mean 'rounds_done'?)" in problem(
        {**FEWEST, "rounds_doen": 3}
    )


@pytest.mark.parametrize("name", FEWEST)
def test_a_field_that_every_run_has_may_not_be_missing(name: str) -> None:
    assert problem(FEWEST) == ""
    assert problem({other: value for other, value in FEWEST.items() if other != name}).startswith(
        f"has no {name};"
    )


@pytest.mark.parametrize("schema", [1, 3])
def test_another_schema_is_left_to_the_version_that_wrote_it(schema: int) -> None:
    found = problem({**FEWEST, "schema": schema})
    assert found == f"schema {schema}, and this version of raffed reads 2; use the version that wrote it"
