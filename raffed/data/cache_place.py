"""Where this user's cache of raffed is. This module imports nothing heavy."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = "RAFFED_CACHE"


def cache_folder() -> Path:
    """Return the folder of the cache: $RAFFED_CACHE, or `raffed` in the user's folder for caches."""
    if given := os.environ.get(FOLDER):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "raffed"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "raffed" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raffed"


__all__ = ["FOLDER", "cache_folder"]
