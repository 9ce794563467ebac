"""An interruption while Python executes a text ends the command with raffed's exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import raffed.cli.app
from raffed import cli

def interrupted(*_, **__):
    exec("raise KeyboardInterrupt")  # as dataclass executes texts while a command is loaded

raffed.cli.app.app = interrupted
cli.main(["run"])
"""


def test_an_interruption_while_a_text_is_executed_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "command.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "command"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == "raffed: stopped before anything was written"
    assert done.returncode == 130  # Python's own would be -2, that of a process which SIGINT has killed
