"""What the system says about every process. Only Linux is supported; on other systems none is found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process. `state` is "Z" or "X" for one that has ended."""

    pid: int
    name: str
    state: str
    parent: int
    session: int


def processes() -> Iterator[Process]:
    for name in filter(str.isdigit, os.listdir("/proc") if Path("/proc").exists() else []):
        try:
            # The name is in brackets and may contain any character
            before, _, after = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")
        except OSError:  # the process has ended
            continue
        state, parent, _, session = after.split()[:4]
        yield Process(int(name), before.partition("(")[2], state, int(parent), int(session))
