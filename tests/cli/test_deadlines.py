"""A command ends in time even where its main thread never runs a handler of Python's again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest
import typer

from raffed.cli import execution
from raffed.cli.screen import Screen
from raffed.cli.signals import StopSignals, innermost
from raffed.commands.running import Run
from raffed.config.run import RunConfig
from tests.cli.conftest import Cli
from tests.live_output import next_line

HUNG = """
import ctypes, signal, sys, threading
from raffed.cli import deadlines
from raffed.cli.signals import StopSignals
deadlines.EARLY, deadlines.LIMIT, deadlines.GRACE = 0.3, 0.6, 0.3
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and raffed leaves it so
sys.modules["ray"] = sys  # as where Ray is in use
with deadlines.Deadlines(), StopSignals(lambda: None, lambda: print("continue with: x")) as signals:
    if sys.argv[1] == "begun":
        signals.round_done()
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    print("hung", flush=True)
    lock(mutex)  # for ever, and no signal ends it
"""


def wait_until_it_sleeps(pid: int) -> None:
    """Between its last print and the lock a process still runs Python, which would take the signal."""
    while Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)


@pytest.mark.parametrize("when", ["new", "begun"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_hangs_says_its_last_words_and_ends_with_the_signal_s_code(
    number: signal.Signals, when: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", HUNG, when], stdout=subprocess.PIPE, text=True) as process:
        assert next_line(process) == "hung\n"
        wait_until_it_sleeps(process.pid)
        os.kill(process.pid, number)
        try:
            rest, _ = process.communicate(timeout=60)
        finally:
            process.kill()  # for leaving the block waits for it
    assert (process.returncode, rest) == (128 + number, "continue with: x\n")


BUSY = """
import os, signal, time
from raffed.cli import deadlines
from raffed.cli.signals import StopSignals
deadlines.GRACE = 0.2
with deadlines.Deadlines(), StopSignals(lambda: print("asked", flush=True)) as signals:
    signals.round_done()
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        time.sleep(60)  # a round that takes too long
    except KeyboardInterrupt:
        print("dropped", signals.code, flush=True)
"""


def test_a_round_that_takes_longer_than_a_signal_leaves_is_dropped() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "asked\ndropped 143\n")


def test_nohup_is_respected() -> None:
    code = (
        "import os, signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom raffed.cli.signals import "
        "StopSignals\n"
        "with StopSignals(lambda: None) as s:\n  os.kill(os.getpid(), signal.SIGHUP)\n  assert s.code == 0\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_the_command_that_continues_is_named_before_anything_that_may_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that must end has a second for its last words, and a busy machine needs it for the rest."""
    said: list[str] = []
    monkeypatch.setattr(execution, "ended_here", lambda folder: said.append(capsys.readouterr().err))
    (tmp_path / "run.json").touch()

    def work(**hooks: object) -> NoReturn:
        about = innermost()
        assert about is not None
        assert about.part is not None
        about.part()
        raise KeyboardInterrupt

    with pytest.raises(SystemExit):
        execution.execute(work, Run("", RunConfig(), tmp_path, {"method": "fedavg"}), Screen())
    assert said == [f"raffed: stopped; continue with: raffed resume {tmp_path}\n"]


def test_a_second_signal_after_the_run_said_its_end_adds_no_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine Ray takes longer to end than the first signal leaves."""

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
