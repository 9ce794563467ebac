"""Commands for which the disk is full from some write on, or the clock is set back (shim.c, built by gcc)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.warm import python

PROGRAM = """
import atexit, ctypes, sys
shim = ctypes.CDLL(None)
shim.shim_{what}({below!r}.encode(), ctypes.c_long({writes}){more})
from raffed.cli import main
try:
    main({words!r})
finally:
    with open({counted!r}, "w") as file:
        file.write(str(shim.shim_count()))
"""


@cache
def shim() -> Path | None:
    """The library, or None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    made = Path(tempfile.mkdtemp(prefix="raffed-shim-")) / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


def preload() -> None:
    """Let the processes that are forked from now on have the library. Before the first of them."""
    if (made := shim()) is not None:
        os.environ["LD_PRELOAD"] = str(made)


def on_full_disk(words: list[str], below: Path, writes: int) -> tuple[subprocess.CompletedProcess[str], int]:
    """A command of raffed that can write so often below a folder, and how often it did or tried to."""
    return _with("disk", words, below, writes, "")


def with_clock_set_back(
    words: list[str], below: Path, writes: int, seconds: int
) -> tuple[subprocess.CompletedProcess[str], int]:
    """A command of raffed for which the clock is set back after so many writes."""
    return _with("clock", words, below, writes, f", ctypes.c_long({-seconds})")


def _with(
    what: str, words: list[str], below: Path, writes: int, more: str
) -> tuple[subprocess.CompletedProcess[str], int]:
    counted = below.with_name("writes")
    counted.unlink(missing_ok=True)
    program = PROGRAM.format(
        what=what, below=str(below), writes=writes, more=more, words=words, counted=str(counted)
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = python(["-c", program], env=environment, timeout=600)
    return done, int(counted.read_text()) if counted.exists() else 0
