"""Warnings are counted while a command works, and repeated at its end: each text once, and how often."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from raffed.cli.messages import count_warning, repeated_warnings
from tests.cli.conftest import Cli

log = logging.getLogger("raffed.runs.run")
# SCAFFOLD has its own weight decay
ONE = "run --method scaffold --momentum 0 --weight-decay 0.01 --split p4c3 --samples 200 --rounds 1"
TEXT = "SCAFFOLD overrides local.weight_decay = 0.01"


def test_warnings_of_this_process_and_of_others_are_repeated_and_other_records_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with repeated_warnings(["compare"]):
        log.warning("only %d", 1)
        log.info("no warning")
        log.error("an error is shown by itself")
        count_warning("only 1")
        count_warning("of another process")
    assert capsys.readouterr().err.splitlines()[-3:] == [
        "raffed: 3 warnings:",
        "  only 1 (2 times)",
        "  of another process",
    ]


def test_the_run_ends_with_its_warnings_and_an_error_stays_last(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("runs") / "a"
    done = cli(ONE, "--execution", "serial", "--out", place)
    header, text = done.err.splitlines()[-2:]
    assert (done.code, header) == (0, "raffed: 1 warning:")
    assert text.startswith(f"  {TEXT}")
    again = cli(ONE, "--execution", "serial", "--out", place)
    assert again.code == 2
    assert place.name in again.err.splitlines()[-1]


def test_without_a_terminal_a_warning_is_also_shown_when_it_comes() -> None:
    script = (
        "import logging; from raffed.cli.messages import repeated_warnings\n"
        "with repeated_warnings(['run']):\n"
        "    logging.getLogger('raffed.x').warning('once'); print('between', file=__import__('sys').stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["once", "between", "raffed: 1 warning:", "  once"]


@pytest.mark.slow
def test_runs_side_by_side_show_a_warning_once_and_count_each_run(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = cli(ONE, "--seeds", "2", "--out", tmp_path_factory.mktemp("s"))
    lines = [line for line in done.err.splitlines() if TEXT in line]
    assert done.code == 0, done.err
    assert len(lines) == 2
    assert lines[1].endswith("(2 times)")
