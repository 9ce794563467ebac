"""`raffed.iterate`: a run round by round, with the bits of `raffed.run`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import raffed
from raffed.results.runfile import read_run
from raffed.runs.events import RoundEvent
from raffed.runs.run import RunResult
from tests.runtime.conftest import small

CONFIG = small("map", rounds=3)


def exhausted(rounds: Generator[RoundEvent, None, RunResult]) -> tuple[list[int], RunResult]:
    """The numbers of all rounds, and what the generator returned."""
    seen = []
    while True:
        try:
            seen.append(next(rounds).round)
        except StopIteration as end:
            return seen, end.value


def test_iterating_yields_every_round_and_ends_in_the_bits_of_run(tmp_path: Path) -> None:
    seen, result = exhausted(raffed.iterate(CONFIG, tmp_path / "a"))
    assert seen == [1, 2, 3]
    assert (result.state, result.folder) == ("finished", tmp_path / "a")
    assert result.hashes == raffed.run(CONFIG).hashes


def test_leaving_the_loop_stops_the_run_and_resume_ends_in_the_same_bits(tmp_path: Path) -> None:
    rounds = raffed.iterate(CONFIG, tmp_path / "a")
    assert next(rounds).round == 1
    rounds.close()
    assert read_run(tmp_path / "a")["state"] == "stopped"
    assert raffed.resume(tmp_path / "a").hashes == raffed.run(CONFIG).hashes
