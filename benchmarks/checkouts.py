"""Projects that are no packages: a checkout that an environment variable names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CHECKOUTS = {"PFLlib": "RAFFED_PFLLIB", "FL-bench": "RAFFED_FLBENCH"}  # project → variable


class AbsentError(Exception):
    """What a contestant needs is not here; the message says what."""


def checkout(project: str) -> Path:
    """The checkout of a project.

    Raises:
        AbsentError: Its variable is not set, or names no folder.
    """
    variable = CHECKOUTS[project]
    given = os.environ.get(variable, "")
    if not given or not Path(given).is_dir():
        raise AbsentError(f"{variable} names no checkout of {project}")
    return Path(given).resolve()


def commits() -> dict[str, str]:
    """The commits of those that are here."""
    found = {}
    for project in CHECKOUTS:
        try:
            command = ["git", "-C", str(checkout(project)), "rev-parse", "HEAD"]
            found[project] = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout.strip()
        except (AbsentError, OSError, subprocess.CalledProcessError):
            continue
    return found
