"""Runs of a method whose meaning has changed since: they are neither continued nor verified."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from raffed.errors import RunFolderError
from raffed.methods import METHODS
from raffed.results.json_files import Json

KEY = "method_revision"


def recorded_revision(method: str) -> dict[str, int]:
    """Return the method's revision for run.json. The first one is not recorded, as in older runs."""
    info = METHODS.get(method)
    return {KEY: info.revision} if info is not None and info.revision > 1 else {}


def check_revision(path: Path, about: Mapping[str, Json], method: str) -> None:
    """Refuse a run that was begun with another revision of its method.

    Args:
        path: The run's folder, for the message.
        about: Contents of its run.json.
        method: Name of the method.

    Raises:
        RunFolderError: The revisions differ.
    """
    then, now = about.get(KEY, 1), recorded_revision(method).get(KEY, 1)
    if then != now:
        raise RunFolderError(
            f"{path}: was begun with revision {then} of {method}, and this raffed has revision {now}, which "
            f"gives another result; use the raffed that began it (`versions` and `commit` in its run.json), "
            f"or start a new run"
        )
