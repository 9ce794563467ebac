"""Which code in folders of runs this user has written, so that nobody else's is executed unasked.

A run's folder may come from a stranger. It may hold the code of a notebook, and it names files that `resume`
and `verify` would execute. So the hashes of a notebook's code and of single files are noted in a file of this
user when a run begins, and only such code is executed later, unless the user says otherwise. Packages count
as trusted, because the user has installed them.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def trust(digest: str) -> None:
    """Note that this user has written code with this SHA-256. A home that cannot be written is no error."""
    if trusted(digest):
        return
    with contextlib.suppress(OSError):
        place = _place()
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8") as stream:
            stream.write(digest + "\n")


def trusted(digest: str) -> bool:
    """Return whether this user has written code with this SHA-256, as far as is known."""
    try:
        return digest in _place().read_text(encoding="utf-8").split()
    except OSError:
        return False


def _place() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "raffed" / "own-code"


__all__ = ["trust", "trusted"]
