"""run.json names the command of the user, without secrets, also in processes that the command starts.

It also says which own code computed which rounds.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

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
from raffed.results.text import without_secrets


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
    assert files_by_role(records) == {
        "method": {"own": A, "both": C},
        "model": {"model: own": B, "both": C},
    }
    assert all_files(records) == {"own": A, "both": C, "model: own": B}
