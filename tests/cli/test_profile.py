"""`--profile`: where a round's time went, without any change of the run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Outcome

SMALL = ("--split", "p4c3", "--samples", "200", "--rounds", "3")
SERIAL = (*SMALL, "--execution", "serial")


def numbers(out: str) -> list[list[float]]:
    """The printed seconds of each round: in all, then the parts."""
    table = out[out.index("profile of") :].splitlines()
    return [[float(word) for word in line.split()[1:]] for line in table if re.match(r" +\d+ +\d", line)]


def hashes(folder: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(Path(folder, "run.json").read_text())["hashes"]
    return found


def check_table(done: Outcome) -> None:
    assert done.code == 0, done.err
    found = numbers(done.out)
    assert len(found) == 3
    for whole, *parts in found:
        assert len(parts) == 6
        assert whole == pytest.approx(sum(parts), abs=5e-4)
    table = done.out[done.out.index("profile of") :].splitlines()
    assert max(len(line.rstrip()) for line in table[: table.index(next(filter(_is_share, table)))]) <= 80


def _is_share(line: str) -> bool:
    return line.strip().startswith("share")


def test_printed_seconds_of_a_round_add_up_and_no_bit_changes(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_table(cli("run", *SERIAL, "--profile", "--out", "a"))
    plain = cli("run", *SERIAL, "--out", "b")
    assert "profile of" not in plain.out
    assert hashes("a") == hashes("b")
    assert {one.name for one in Path("a").iterdir()} == {one.name for one in Path("b").iterdir()}


def test_programs_get_an_event_for_each_method_compared(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    both = ("--method", "fedavg", "--method", "map")
    done = cli("compare", *both, *SERIAL, "--rounds", "2", "--profile", "--json", "--out", "c")
    events = [json.loads(line) for line in done.out.splitlines()]
    profiles = [event for event in events if event["event"] == "profile"]
    assert [one["method"] for one in profiles] == ["fedavg", "map"]
    for one in profiles:
        assert [found["round"] for found in one["rounds"]] == [1, 2]
        for found in one["rounds"]:
            parts = ("training", "sums", "messages", "scoring", "disk", "rest")
            assert found["seconds"] == pytest.approx(sum(found[part] for part in parts))


@pytest.mark.slow
def test_on_ray_the_seconds_add_up_too_and_messages_are_counted(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("run", *SMALL, "--actors", "2", "--profile", "--out", "a")
    check_table(done)
    assert sum(found[3] for found in numbers(done.out)) > 0
    assert cli("run", *SERIAL, "--out", "b").code == 0
    assert hashes("a") == hashes("b")
