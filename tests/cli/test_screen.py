"""What a terminal shows of a run, however narrow it is."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from raffed.cli.board import Board, make_board
from raffed.cli.pace import Overall
from raffed.cli.runs_board import BarRuns
from raffed.cli.screen import BarScreen, LineScreen, Screen, make_screen
from raffed.commands.seeds import SeedRun
from raffed.config.run import RunConfig
from raffed.errors import RaffedError, UsageError
from raffed.experiments.events import RoundEvent


@pytest.mark.parametrize("width", [24, 40, 80, 120])
def test_a_narrow_terminal_keeps_the_number_of_the_round_and_drops_the_rest(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen, shown = BarScreen(), io.StringIO()
    screen.start("a run", "fedavg", 2000)
    screen.round(RoundEvent(1234, 2000, 2.3014, 0.1234, 0.5678, 10, 1, 1, 0.5))
    assert screen.bar is not None
    Console(file=shown, width=width).print(screen.bar.get_renderable())
    screen.close()
    [line] = shown.getvalue().splitlines()
    assert len(line) <= width
    assert " 1234/2000 loss" in line
    assert ("━" in line, "20 clients/s" in line) == (width >= 100, width >= 80)
    assert capsys.readouterr().out.startswith("a run\n")


def test_several_runs_have_a_line_each_when_they_end_and_errors_go_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    board = BarRuns()
    runs = [SeedRun("fedavg", RunConfig(seed=k), Path(f"out/seed-{k}")) for k in range(2)]
    for run in runs:
        board.started(run)
        board.heard(run, {"event": "round", "round": 1, "rounds": 20, "loss": 2.3, "accuracy": None})
    board.heard(runs[0], {"event": "finished", "accuracy": 0.5, "personalization": None})
    board.heard(runs[1], {"event": "failed", "message": "the loss is nan"})
    board.close()
    told = capsys.readouterr()
    assert "fedavg, seed 0: done  aggregation 50.0 %  personalization –" in told.out
    assert "raffed: fedavg, seed 1: the loss is nan" in told.out + told.err


def test_of_several_runs_each_says_which_it_is_and_the_time_left_once_one_has_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = LineScreen()
    screen.overall = Overall(3)
    for name in ("a", "b", "c"):
        screen.start(name, "fedavg", 2)
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "run 1 of 3: a"
    assert re.fullmatch(r"run 2 of 3, about \d+:\d\d left: b", second)
    assert re.fullmatch(r"run 3 of 3, about \d+:\d\d left: c", third)
    screen.overall = Overall(1)
    screen.start("alone", "fedavg", 2)
    assert capsys.readouterr().out == "alone\n"


def test_runs_at_the_same_time_have_a_bar_of_all_of_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    board = BarRuns()
    board.overall = Overall(61, at_once=True)
    runs = [SeedRun("fedavg", RunConfig(seed=k), Path(f"out/seed-{k}")) for k in range(2)]
    for run in runs:
        board.started(run)
    board.heard(runs[0], {"event": "finished", "accuracy": 0.5, "personalization": None})
    assert board.overall.ended == 1
    assert re.fullmatch(r"run 2 of 61, about [\d:]+ left", board.overall.text)
    board.close()
    assert "all" in capsys.readouterr().out


@pytest.mark.parametrize("shown", [lambda: make_screen(True, False), lambda: make_board(True)])
@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("not possible"), 2), (RaffedError("not complete"), 1), (SystemExit(130), 0)],
)
def test_an_error_is_an_event_of_every_command_and_an_exit_is_none(
    shown: Callable[[], Screen | Board],
    error: BaseException,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(type(error)), shown():
        raise error
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    about = {"event": "error", "kind": type(error).__name__, "message": str(error), "exit_code": code}
    assert events == ([about] if code else [])
