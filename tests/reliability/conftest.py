"""The Ray of tests/runtime, and commands that are struck."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reliability.commands import Begin, Command
from tests.runtime.conftest import carrier, ray_here

__all__ = ["begin", "carrier", "ray_here"]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    made: list[Command] = []

    def start(words: list[str]) -> Command:
        made.append(Command(words, tmp_path))
        return made[-1]

    yield start
    for command in made:
        command.end()
