"""What a terminal, a log, a program and a page that loads itself show of runs, and the last warnings."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from rich.console import Console

from raffed.api.running import Run
from raffed.cli import checking
from raffed.cli.messages import count_warning, repeated_warnings
from raffed.cli.screen import BarScreen, LineScreen, Overall, Screen, make_screen
from raffed.config.run import RunConfig
from tests.cli.conftest import Cli

BEGIN = {"event": "begin", "title": "a run", "rounds": 2000}
ROUND = {
    **{"event": "round", "round": 1234, "rounds": 2000, "loss": 2.3014, "accuracy": 0.1234},
    **{"personal": 0.5678, "participants": 10, "seconds": 0.5},
}
ERROR = "raffed: fedavg, seed 1: the loss is nan"


def two_runs_are_shown(screen: Screen) -> None:
    """The first finishes, the second fails."""
    several = [
        Run(f"fedavg, seed {k}", RunConfig(seed=k), Path(f"out/seed-{k}"), {"method": "fedavg", "seed": k})
        for k in range(2)
    ]
    for run in several:
        screen.show({**BEGIN, "title": run.title}, run=run)
        screen.show({**ROUND, "round": 500, **run.about}, run=run)
    finished = {"folder": "out/seed-0", "accuracy": 0.5, "personalization": None}
    screen.show({"event": "finished", **several[0].about, **finished}, run=several[0])
    screen.show({"event": "failed", **several[1].about, "message": "the loss is nan"}, run=several[1])


@pytest.mark.parametrize("kind", [LineScreen, BarScreen])
def test_several_runs_end_with_a_line_each(
    kind: type[LineScreen], capsys: pytest.CaptureFixture[str]
) -> None:
    screen = kind()
    screen.overall = Overall(61)
    two_runs_are_shown(screen)
    screen.close()
    told = capsys.readouterr()
    assert "fedavg, seed 0: done  aggregation 50.0 %  personalization –" in told.out
    assert ERROR in told.out + told.err
    assert ("fedavg, seed 0: round 500/2000  loss 2.301" in told.out) == (kind is LineScreen)
    assert re.fullmatch(r"run 2 of 61, about [\d:]+ left", screen.overall.text)


def test_a_program_gets_every_event_and_a_quiet_person_folders(capsys: pytest.CaptureFixture[str]) -> None:
    with make_screen(as_json=True) as screen:
        two_runs_are_shown(screen)
        print("a library's notice")
    told = capsys.readouterr()
    events = [json.loads(line) for line in told.out.splitlines()]
    assert [(event["event"], event["method"], event["seed"]) for event in events] == [
        ("round", "fedavg", 0),
        ("round", "fedavg", 1),
        ("finished", "fedavg", 0),
        ("failed", "fedavg", 1),
    ]
    assert told.err.splitlines() == [ERROR, "a library's notice"]
    two_runs_are_shown(make_screen(as_json=False, quiet=True))
    assert capsys.readouterr() == ("out/seed-0\n", f"{ERROR}\n")


def test_warnings_of_all_processes_are_repeated_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("raffed.runs.run")
    with repeated_warnings(["compare"]):
        log.warning("only %d", 1)
        log.info("no warning")
        log.error("an error is shown by itself")
        count_warning("only 1")
        count_warning("of another process")
    last = capsys.readouterr().err.splitlines()[-3:]
    assert last == ["raffed: 3 warnings:", "  only 1 (2 times)", "  of another process"]


def test_the_page_is_written_again_and_loads_itself_until_ctrl_c(
    cli: Cli, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, page = tmp_path / "runs", tmp_path / "out" / "report.html"
    seen: list[str] = []
    steps = iter(
        [
            lambda: seen.append("a page" if page.exists() else "no page yet"),
            lambda: shutil.copytree(finished, runs / "a"),
            lambda: seen.append(page.read_text(encoding="utf-8")),
            lambda: shutil.copytree(finished, runs / "b"),
            lambda: seen.append(page.read_text(encoding="utf-8")),
            lambda: os.kill(os.getpid(), signal.SIGINT),
        ]
    )
    monkeypatch.setattr(checking, "nap", lambda _: next(steps)())
    done = cli("report", runs, "--out", tmp_path / "out", "--watch")
    assert done.code == 0, "Ctrl-C is how it ends"
    assert "Traceback" not in done.err
    assert seen[0] == "no page yet"
    assert 'data-reload="5.0"' in seen[1]
    assert "<b>1</b> run<" in seen[1]
    assert "<b>2</b> runs<" in seen[2]
    assert page.read_text(encoding="utf-8") == seen[2].replace(' data-reload="5.0"', "", 1)
    left = sorted(path.name for path in page.parent.iterdir())
    assert left == ["curves.png", "report.html", "summary.csv", "summary.md"], "nothing half-written stays"


@pytest.mark.parametrize("width", [24, 80, 120])
def test_a_narrow_terminal_keeps_the_number_of_the_round(
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
