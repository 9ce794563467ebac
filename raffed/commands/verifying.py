"""`raffed.verify`: check a run and execute some of its rounds again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from raffed.commands.progress import make_progress
from raffed.results.storage import fetched

if TYPE_CHECKING:
    from raffed.experiments.certificate import Certificate


def verify(run: Path | str, rounds: int = 3, *, progress: bool = True) -> Certificate:
    """Check every hash in a run's folder, and execute some of its rounds again, as `raffed verify` does.

    Args:
        run: Folder or URL of the run. Nothing in it is changed.
        rounds: Number of rounds to execute again, at least 0. As many as were run means all.
        progress: Whether the rounds are counted on stderr or below the notebook's cell.

    Returns:
        All checks with their outcomes; `certificate.ok` says whether everything has the recorded bits.

    Raises:
        RunFolderError: No run can be read there.
        UsageError: The run cannot be set up here, because its data or a GPU is missing.

    Example:
        >>> raffed.verify("runs/map").ok  # doctest: +SKIP
        True
    """
    from raffed.experiments.verify import verify as verified

    shown = make_progress(progress)
    with fetched(run, whole=True) as folder:
        return verified(folder, rounds, lambda done, of: shown.say(f"executed {done} of {of} rounds again"))


__all__ = ["verify"]
