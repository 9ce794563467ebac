"""A JSON file of a stranger: its object, or one line that says what is wrong with it; never a wait, a
traceback or a way out.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from raffed.errors import RunFolderError
from raffed.own.gate import check_inside
from raffed.results.files import LARGEST, JsonFileError, NoJsonFileError, read_json

GOOD = {"a": [1, -2.5, True, None, "ü", {"b": {}}], "": 2**63 - 1}


def nested(depth: int) -> bytes:
    """An object with `depth` containers in one another."""
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
def test_content_that_no_writer_of_raffed_leaves_is_one_error(
    content: bytes, why: str, tmp_path: Path
) -> None:
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
def test_what_is_no_regular_file_is_refused_and_never_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
