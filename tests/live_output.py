"""Reading from a process that goes on, and from the same process until it ends.

`process.stdout.readline()` takes from the pipe all that is there, up to 8 KiB, and keeps what follows the
line. `process.communicate()` with a time limit reads the pipe itself and never sees what was kept. A test
that uses both loses the second line if it comes early.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator


def next_line(process: subprocess.Popen[str]) -> str:
    """Return the next line of a process's output, and leave the rest in the pipe.

    Args:
        process: It writes its standard output to a pipe, and nobody has read with `process.stdout`.

    Returns:
        The line with its end; what there is of it, or nothing, where the output ends.
    """
    assert process.stdout is not None
    line = bytearray()
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    return line.decode()


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Give the lines of a process's output as they come, and leave what follows the last one in the pipe."""
    while line := next_line(process):
        yield line
