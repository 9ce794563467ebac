"""Signals that are ignored, and those that come when a command has said how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NoReturn

import pytest
import typer

from raffed.cli.signals import StopSignals
from tests.cli.conftest import Cli


def test_nohup_is_respected() -> None:
    code = (
        "import os, signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom raffed.cli.signals import "
        "StopSignals\n"
        "with StopSignals(lambda: None) as s:\n  os.kill(os.getpid(), signal.SIGHUP)\n  assert s.code == 0\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_second_signal_after_the_run_said_its_end_adds_no_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that comes while Ray ends."""

    def app(args: list[str], prog_name: str) -> NoReturn:
        with StopSignals(lambda: None) as signals:
            signals.round_done()
            os.kill(os.getpid(), signal.SIGTERM)
            print("raffed: stopped; continue with: x", file=sys.stderr)
        try:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
            except KeyboardInterrupt as error:
                raise typer.Abort from error
        except typer.Abort:
            sys.exit(1)  # as Typer does

    monkeypatch.setattr("raffed.cli.app.app", app)
    done = cli("run")
    assert (done.code, done.err) == (143, "raffed: stopped; continue with: x\n")
