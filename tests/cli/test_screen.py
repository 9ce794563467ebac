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
from raffed.errors import RaffedError, UsageError

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


def test_of_several_runs_each_says_which_it_is_and_the_time_left_once_one_has_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = LineScreen()
    screen.overall = Overall(3)
    for name in ("a", "b", "c"):
        screen.show({**BEGIN, "title": name})
        screen.show({"event": "finished", "folder": name})
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "run 1 of 3: a"
    assert re.fullmatch(r"run 2 of 3, about \d+:\d\d left: b", second)
    assert re.fullmatch(r"run 3 of 3, about \d+:\d\d left: c", third)
    screen.overall = Overall(1)
    screen.show({**BEGIN, "title": "alone"})
    assert capsys.readouterr().out == "alone\n"


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


def test_a_terminal_shows_the_trials_of_a_search_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    screen = BarScreen()
    for number, state in enumerate(("done", "running")):
        trial = {"name": f"mu={number}", "state": state, "rounds": 2, "seconds": 61.0, "score": 0.5}
        screen.show({"event": "trial", "method": "fedprox", **trial}, rounds=2, warnings=())
    screen.close()
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "mu=" in line][-2:]
    assert [row[1:3] for row in rows] == [["mu=1", "running"], ["mu=0", "done"]]
    assert rows[1][-3:] == ["50.0", "%", "1:01"]


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("not possible"), 2), (RaffedError("not complete"), 1), (SystemExit(130), 0)],
)
def test_an_error_is_an_event_of_every_command_and_an_exit_is_none(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(type(error)), make_screen(as_json=True):
        raise error
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    about = {"event": "error", "kind": type(error).__name__, "message": str(error), "exit_code": code}
    assert events == ([about] if code else [])
