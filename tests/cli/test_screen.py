"""What a terminal shows of a run, however narrow it is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from raffed.cli.screen import BarScreen
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
