"""Refuse files above 500 kB: data and runs do not belong in the history. Used by pre-commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath

LIMIT = 500_000  # bytes
ALLOWED = {  # packed by `python -m reproductions.pages.pack_records`; the zoo's has 455 runs
    "reproductions/records/*/records.parquet": 3_000_000,
}


def main(*names: str) -> int:
    """Look at the named files, or at all that git tracks; 1 if one is too large."""
    if not names:
        names = tuple(
            subprocess.run(
                ["git", "ls-files", "-z"], capture_output=True, text=True, check=True
            ).stdout.split("\0")
        )
    sizes = {name: Path(name).stat().st_size for name in names if Path(name).is_file()}
    large = {name: size for name, size in sizes.items() if size > allowed(name)}
    for name, size in large.items():
        print(f"{name}: {size:,} bytes, at most {allowed(name):,} are allowed in the repository")
    return 1 if large else 0


def allowed(name: str) -> int:
    """Return how many bytes a file of this name, relative to the repository, may have."""
    return next((size for pattern, size in ALLOWED.items() if PurePosixPath(name).match(pattern)), LIMIT)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
