"""Refuse files above 500 kB: data and records of runs do not belong in the history. Used by pre-commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT = 500_000  # bytes


def main(*names: str) -> int:
    """Look at the named files, or at all that git tracks; 1 if one is too large."""
    if not names:
        names = tuple(
            subprocess.run(
                ["git", "ls-files", "-z"], capture_output=True, text=True, check=True
            ).stdout.split("\0")
        )
    large = [name for name in names if Path(name).is_file() and Path(name).stat().st_size > LIMIT]
    for name in large:
        print(f"{name}: {Path(name).stat().st_size:,} bytes, at most {LIMIT:,} are allowed in the repository")
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
