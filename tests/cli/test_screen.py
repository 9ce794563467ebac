"""What a terminal, a log and a program see of runs and searches: one stream of events, three renderers."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from raffed.api.running import Run
from raffed.cli.screen import BarScreen, LineScreen, Overall, Screen, make_screen
from raffed.config.run import RunConfig

BEGIN = {"event": "begin", "title": "a run", "rounds": 2000}
ROUND = {
    "event": "round",
    "round": 1234,
    "rounds": 2000,
    "loss": 2.3014,
    "accuracy": 0.1234,
    "personal": 0.5678,
    "participants": 10,
    "seconds": 0.5,
}


def runs(number: int) -> list[Run]:
    """Runs of several seeds, which are executed at the same time."""
    return [
        Run(f"fedavg, seed {k}", RunConfig(seed=k), Path(f"out/seed-{k}"), {"method": "fedavg", "seed": k})
        for k in range(number)
    ]


def shown_twice(screen: Screen, several: list[Run]) -> None:
    """Two runs begin and do a round; the first comes to its end, and the second fails."""
    for run in several:
        screen.show({**BEGIN, "title": run.title}, run=run)
        screen.show({**ROUND, "round": 500, **run.about}, run=run)
    finished = {"folder": str(several[0].folder), "accuracy": 0.5, "personalization": None}
    screen.show({"event": "finished", **several[0].about, **finished}, run=several[0])
    screen.show({"event": "failed", **several[1].about, "message": "the loss is nan"}, run=several[1])


@pytest.mark.parametrize("width", [24, 40, 80, 120])
def test_a_narrow_terminal_keeps_the_number_of_the_round_and_drops_the_rest(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen, shown = BarScreen(), io.StringIO()
    screen.show(BEGIN)
    screen.show(ROUND)
    assert screen.bar is not None
    Console(file=shown, width=width).print(screen.bar.get_renderable())
    screen.close()
    [line] = shown.getvalue().splitlines()
    assert len(line) <= width
    assert " 1234/2000 loss" in line
    assert ("━" in line, "20 clients/s" in line) == (width >= 100, width >= 80)
    assert capsys.readouterr().out.startswith("a run\n")


@pytest.mark.parametrize("kind", [LineScreen, BarScreen])
def test_of_several_runs_at_once_each_ends_with_a_line_and_errors_go_to_stderr(
    kind: type[LineScreen], capsys: pytest.CaptureFixture[str]
) -> None:
    screen = kind()
    screen.overall = Overall(61)
    shown_twice(screen, runs(2))
    screen.close()
    told = capsys.readouterr()
    assert "fedavg, seed 0: done  aggregation 50.0 %  personalization –" in told.out
    assert "raffed: fedavg, seed 1: the loss is nan" in told.out + told.err
    assert ("fedavg, seed 0: round 500/2000  loss 2.301" in told.out) == (kind is LineScreen)
    assert screen.overall.ended == 2
    assert re.fullmatch(r"run 2 of 61, about [\d:]+ left", screen.overall.text)


def test_a_program_gets_every_event_of_the_runs_and_a_person_gets_only_folders_with_quiet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with make_screen(as_json=True) as screen:
        shown_twice(screen, runs(2))
        print("a library's notice")
    told = capsys.readouterr()
    events = [json.loads(line) for line in told.out.splitlines()]
    assert [(event["event"], event["method"], event["seed"]) for event in events] == [
        ("round", "fedavg", 0),
        ("round", "fedavg", 1),
        ("finished", "fedavg", 0),
        ("failed", "fedavg", 1),
    ]
    assert told.err.splitlines() == ["raffed: fedavg, seed 1: the loss is nan", "a library's notice"]
    shown_twice(make_screen(as_json=False, quiet=True), runs(2))
    told = capsys.readouterr()
    assert (told.out, told.err) == ("out/seed-0\n", "raffed: fedavg, seed 1: the loss is nan\n")
