"""Calling the command line as a person does, in this process where streams and signals allow it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
import typer.main

import raffed
from raffed.cli import main
from tests.runtime.conftest import small
from tests.warm import python

QUICK = ["--execution", "serial", "--epochs", "1", "--split", "p4c5"]
FEW = [*QUICK, "--samples", "300"]
command_tree = functools.cache(typer.main.get_command)  # made once a process: it takes 40 ms


class Outcome(NamedTuple):
    """What a command left: its exit code and its two streams."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Outcome]
Damage = Callable[[Path], object]  # of a run's folder


def told_once(done: Outcome, name: str) -> bool:
    """Whether a command was refused with one line that names a file, beside those that say what it is
    about to do.
    """
    lines = [line for line in done.err.splitlines() if name in line and line.startswith("raffed: ")]
    said = done.err + done.out
    return (done.code, len(lines)) == (2, 1) and "Traceback" not in said and "VERIFIED" not in done.out


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """cli("run --rounds 2", "--out", folder) calls `raffed` in this process; the first text may be several
    words.
    """
    monkeypatch.setattr(typer.main, "get_command", command_tree)

    def call(first: str, *more: object) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main([*first.split(), *map(str, more)])
        code = ended.value.code
        captured = capsys.readouterr()
        return Outcome(0 if code is None else int(code), captured.out, captured.err)

    return call


def shell(*argv: object, cwd: Path | None = None, fresh: bool = False) -> subprocess.CompletedProcess[str]:
    """`python -m raffed ...` in a process of its own: forked from a warm one, or a fresh one."""
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    words = ["-m", "raffed", *map(str, argv)]
    if not fresh:
        return python(words, env=environment, cwd=cwd)
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, cwd=cwd)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of MAP, 5 rounds, checkpoints after 2, 4 and 5. Not to be changed: see `copied`."""
    folder = tmp_path_factory.mktemp("cli") / "finished"
    words = ("run", "--method", "map", "--rounds", "5", "--checkpoint-every", "2", "--local-test", "0.2")
    with pytest.raises(SystemExit) as ended:
        main([*words, "--quiet", *FEW, "--out", str(folder)])
    assert ended.value.code == 0
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copied"))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`finished` and `stopped`, after two of four rounds, of one configuration. To be read only."""
    folder = tmp_path_factory.mktemp("runs")
    raffed.run(small(), folder / "finished")
    seen = list[object]()
    raffed.run(small(), folder / "stopped", watch=seen.append, stop=lambda: len(seen) == 2)
    return folder


@pytest.fixture
def whole(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "finished", tmp_path / "whole"))


@pytest.fixture
def stopped(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "stopped", tmp_path / "stopped"))


SECONDS = 60.0  # no input may keep raffed busy for longer; the machine may be slow


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """A command that waits for something fails."""
    with in_time():
        yield
