"""JSON files and run.json: written in one step, read whole, and one line says what is wrong with them.
run.json names the command of the user, without secrets, and which own code computed which rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raffed.config.validation import Json
from raffed.errors import RunFolderError
from raffed.results.files import LARGEST, JsonFileError, NoJsonFileError, read_json
from raffed.results.origin import (
    VARIABLE,
    all_files,
    changed_files,
    code_before,
    code_stages,
    command_line,
    commanded,
    files_by_role,
    work_for,
)
from raffed.results.runfile import problem, read_run, sealed, write_json
from raffed.results.text import without_secrets
from tests.forging import FEWEST

GOOD = {"a": [1, -2.5, True, None, "ü", {"b": {}}], "": 2**63 - 1}


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"a": 1', "is not JSON"),
        (b"[]", "holds a list, but must hold an object"),
        (nested(200_000), "recursion limit"),
        (b'{"a": NaN}', "is not JSON"),
        (b'{"a": 1e400}', "not finite"),
        (b'{"a": 1' + b"0" * 400 + b"}", "more than 64 bits"),
    ],
)
def test_content_that_raffed_never_writes_is_an_error(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(JsonFileError, match=why) as raised:
        read_json(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_what_was_written_is_read_up_to_a_depth_and_a_size(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(GOOD, ensure_ascii=False), encoding="utf-8")
    assert read_json(path) == GOOD
    path.write_bytes(nested(200))
    assert list(read_json(tmp_path / "a.json")) == ["a"]
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(JsonFileError, match="but may have at most"):
        read_json(path)
    path.unlink()
    with pytest.raises(NoJsonFileError):
        read_json(path)


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
    circle = "cannot be followed|Too many levels"  # before Python 3.13, and since
    for name, why in (("bad", "leads out of"), ("device", "leads out of"), ("circle", circle)):
        with pytest.raises(JsonFileError, match=why):
            read_json(run / f"{name}.json")


def test_equal_objects_give_equal_bytes_whatever_their_order(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"b": 1, "a": {"d": 2, "c": "ü"}})
    write_json(tmp_path / "b", {"a": {"c": "ü", "d": 2}, "b": 1})
    expected = '{\n  "a": {\n    "c": "ü",\n    "d": 2\n  },\n  "b": 1\n}\n'
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == expected.encode()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of what JSON cannot say."""
    write_json(tmp_path / "run.json", FEWEST)
    for bad in ({"x": float("nan")}, {"x": Path("y")}):
        with pytest.raises((ValueError, TypeError)):
            write_json(tmp_path / "run.json", bad)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "run.json", {**FEWEST, "run_id": "new"})
    assert read_run(tmp_path) == sealed(FEWEST)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


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
    "identity": ("0" * 63, "but must be 64 hexadecimal digits"),
    "state": ("done", "but must be 'running', 'stopped', 'failed' or 'finished'"),
    "rounds_done": (-1, "rounds_done is -1, but must be greater than or equal to 0"),
    "rounds_doen": (3, "is not a field that raffed writes (did you mean 'rounds_done'?)"),
    "hardware": ({"cores": 2.5}, "cores is 2.5, but must be a valid string or must be a valid integer"),
    "classes": ({"samples": ["1"], "holders": [1]}, "classes.samples[0] is '1', but must be a valid integer"),
    "files": ({"../x": "0" * 64}, "files.../x is '../x', but must be the name of a file below the folder"),
    "segments": ([{"from": 1}], "segments[0].to is missing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named(name: str) -> None:
    value, says = WRONG[name]
    found = problem({**FEWEST, name: value})
    assert says in found
    assert found.count("\n") == 0
    assert problem({**FEWEST, "schema": 3}).startswith("schema 3, and this version of raffed reads 2")
    assert problem({key: one for key, one in FEWEST.items() if key != "run_id"}).startswith("has no run_id;")


def test_a_process_names_the_command_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    asks = (
        "from raffed.results.origin import commanded, command_line\n"
        "with commanded(['seed-process']): print(command_line())"
    )
    with commanded(["compare", "--seeds", "5"]):
        done = subprocess.run([sys.executable, "-c", asks], check=True, capture_output=True, text=True)
    assert done.stdout == "raffed compare --seeds 5\n"


def test_a_worker_names_the_command_that_it_works_for_without_a_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "raffed up")
    work_for("raffed run --out a")
    assert command_line() == "raffed run --out a"
    work_for("")  # a run in Python, without a command
    assert command_line() == ""
    with commanded(["run", "--out", "s3://user:hunter2@host/bucket", "a\nb"]):
        assert command_line().startswith("raffed run --out ")
        assert "hunter2" not in command_line()
        assert command_line().isprintable()
    assert command_line() == ""


TOLD = {
    "postgresql://me:hid/den@host/db": "postgresql://…@host/db",
    "http://me:hid@den@host": "http://…@host",
    "s3://KEY:hidden@bucket/a?region=x: no": "s3://…@bucket/a?region=x: no",
    "https://h/x?X-Amz-Signature=hidden&a=b": "https://h/x?X-Amz-Signature=…&a=b",
    "(url: /api?token=hidden)": "(url: /api?token=…)",
    "s3://b/x?endpoint_override=http%3A%2F%2Fme%3Ahidden%40h%3A1": (
        "s3://b/x?endpoint_override=http%3A%2F%2F…%40h%3A1"
    ),
    "me@x.org said http://h/a?design=1": "me@x.org said http://h/a?design=1",
}


@pytest.mark.parametrize("text", TOLD)
def test_the_secrets_of_an_address_are_not_told_and_the_rest_is(text: str) -> None:
    assert without_secrets(text) == TOLD[text]


# Own code, also where a run went on with changed code

A, B, C = "a" * 64, "b" * 64, "c" * 64


def record(role: str, **files: str) -> dict[str, object]:
    return {"role": role, "files": files}


def segment(first: int, last: int, **accepted: list[str]) -> dict[str, object]:
    return {"from": first, "to": last, **({"accepted": accepted} if accepted else {})}


def test_each_accepted_change_is_a_stage_with_the_files_of_its_rounds() -> None:
    assert code_stages({"segments": [segment(1, 3), segment(4, 5)]}) == [(1, {})]
    about = {
        "code": [record("method", own=C)],
        "segments": [segment(1, 2), segment(3, 4, own=[A, B]), segment(5, 5), segment(6, 9, own=[B, C])],
    }
    assert code_stages(about) == [(1, {"own": A}), (3, {"own": B}), (6, {"own": C})]


def test_code_that_computed_no_round_is_in_no_stage() -> None:
    changed_at_once = {"code": [record("method", own=B)], "segments": [segment(1, 4, own=[A, B])]}
    assert code_stages(changed_at_once) == [(1, {"own": B})]
    begun = {"code": [record("method", own=B)], "segments": [segment(1, 4), segment(5, 4, own=[A, B])]}
    assert code_stages(begun) == [(1, {"own": A})]


def test_a_file_that_came_or_went_is_no_file_before_or_after() -> None:
    assert changed_files({"old": A}, {"new": B}) == {"new": ["no file", B], "old": [A, "no file"]}
    assert code_before({"new": B}, changed_files({"old": A}, {"new": B})) == {"old": A}


def test_different_files_of_one_name_are_told_apart_by_their_roles() -> None:
    records = [record("method", own=A, both=C), record("model", own=B, both=C)]
    assert files_by_role(records) == {"method": {"own": A, "both": C}, "model": {"model: own": B, "both": C}}
    assert all_files(records) == {"own": A, "both": C, "model: own": B}
