"""The commit of the source code that runs: of a checkout, or the one from which a wheel was built."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

RECORDED: Final = "_commit.txt"  # beside raffed/__init__.py in a wheel (.ci/build_backend.py)
_PACKAGE = Path(__file__).resolve().parents[1]


def commit(package: Path = _PACKAGE) -> str | None:
    """Return the commit of the source tree, with a + if it was changed.

    Args:
        package: The folder of the package raffed.

    Returns:
        The commit; of an installed wheel the one that it was built from. None if nothing records it.
    """
    if (package.parent / ".git").exists():
        return _of_checkout(package.parent)
    try:
        return (package / RECORDED).read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def _of_checkout(where: Path) -> str | None:
    try:
        git = ["git", "-C", str(where)]
        head, dirty = (  # a file's name may contain any bytes
            subprocess.run(
                [*git, *words],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=True,
                timeout=10,
            )
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


__all__ = ["commit"]
