"""What earlier versions had answers with one line that says what to do instead."""

from __future__ import annotations

import pytest

from raffed.cli.app import app
from raffed.cli.messages import GONE
from tests.cli.conftest import Cli


@pytest.mark.parametrize("typed", GONE)
@pytest.mark.parametrize("joined", [" ", "="])
def test_what_is_gone_is_refused_with_what_to_do_instead(cli: Cli, typed: str, joined: str) -> None:
    words = typed.replace(" ", joined).split()
    done = cli(*(["run", "--out", "somewhere"] if typed.startswith("--") else []), *words)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"raffed: {typed}: {GONE[typed]}\n"


def test_nothing_that_is_gone_is_still_there() -> None:
    there = {command.name for command in app.registered_commands}
    assert not there & set(GONE)


def test_a_name_that_was_a_command_may_be_a_value(cli: Cli) -> None:
    done = cli("runs", "list", "up")
    assert "any more" not in done.err
