"""run.json names the command of the user, without secrets, also in processes that the command starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from raffed.results.origin import VARIABLE, command_line, commanded, work_for


def test_a_command_is_known_while_it_works_and_not_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with commanded(["run", "--out", "a folder"]):
        assert command_line() == "raffed run --out 'a folder'"
    assert command_line() == ""


def test_a_process_that_a_command_starts_names_the_command_and_not_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    asks = (
        "from raffed.results.origin import commanded, command_line\n"
        "with commanded(['seed-process']): print(command_line())"
    )
    with commanded(["compare", "--seeds", "5"]):
        done = subprocess.run([sys.executable, "-c", asks], check=True, capture_output=True, text=True)
    assert done.stdout == "raffed compare --seeds 5\n"


def test_a_worker_names_the_command_that_it_works_for_and_not_the_one_that_started_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "raffed up")
    work_for("raffed run --out a")
    assert command_line() == "raffed run --out a"
    work_for("")  # a run in Python, without a command
    assert command_line() == ""


def test_a_password_in_an_address_is_left_out_and_a_line_break_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with commanded(["run", "--out", "s3://user:hunter2@host/bucket", "a\nb"]):
        assert "hunter2" not in command_line()
        assert command_line().isprintable()


def test_a_command_with_letters_that_the_locale_lacks_is_written_with_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The environment of the locale C holds ASCII, and another letter in it would be an error."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    with commanded(["run", "--set", "μ=1"]):
        assert command_line() == r"raffed run --set '\u03bc=1'"
