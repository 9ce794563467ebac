"""Runs of a method whose meaning has changed since: they are neither continued nor verified."""

from __future__ import annotations

from pathlib import Path

from raffed.errors import RunFolderError
from raffed.methods import METHODS


def revision_of(method: str) -> int:
    """Return the present revision of a method; 1 for a method that is not registered."""
    info = METHODS.get(method)
    return 1 if info is None else info.revision


def check_revision(path: Path, then: int, method: str) -> None:
    """Refuse a run that was begun with another revision of its method.

    Args:
        path: The run's folder, for the message.
        then: The revision in its run.json.
        method: Name of the method.

    Raises:
        RunFolderError: The revisions differ.
    """
    now = revision_of(method)
    if then != now:
        raise RunFolderError(
            f"{path}: was begun with revision {then} of {method}, and this raffed has revision {now}, which "
            f"gives another result; use the raffed that began it (`versions` and `commit` in its run.json), "
            f"or start a new run"
        )
