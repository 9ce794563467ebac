"""`raffed.verify`, `raffed.bundle` and `raffed.replay`: check runs, and hand them to reviewers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.api.progress import Shown, make_progress
from raffed.api.reporting import reported
from raffed.results.storage import fetched

if TYPE_CHECKING:
    from raffed.bundles.making import Bundled
    from raffed.bundles.replaying import Replay
    from raffed.runs.events import RoundEvent
    from raffed.runs.verify_files import Certificate


def bundle(place: Path | str, out: Path | str, *, license: str = "") -> Bundled:
    """Write a run, a comparison, a sweep or a reproduced table into one zip, as `raffed bundle` does.

    The zip holds configurations, partitions, measurements, hashes, the versions of all packages, the source
    code of the user's own, and, unless it is a single run, report.html. It holds no data and no weights. The
    folder of the data and the machines are left out; other texts are not searched for names or secrets. The
    same results in the same environment give the same bytes.

    Args:
        place: Folder or URL of a run, of several such as a comparison, of a sweep, or of an item of
            `raffed reproduce`; finished runs are bundled.
        out: The new file.
        license: Terms of use of the results, as a text or a URL.

    Returns:
        What was written: the file, its hash, the runs in it, and what was left out.

    Raises:
        UsageError: There are no finished runs, or `out` exists.
        RunFolderError: A run is damaged or was edited.

    Example:
        >>> raffed.bundle("runs/map", "map.zip").sha256  # doctest: +SKIP
    """
    from raffed.bundles.making import bundle as bundled

    with fetched(place, whole=True) as folder:
        return bundled(
            folder,
            Path(out),
            license,
            lambda runs, report: reported([runs], report, lambda line: None).path,
        )


def replay(
    archive: Path | str,
    out: Path | str,
    *,
    rounds: int = 0,
    only: Sequence[str] = (),
    data_root: str | None = None,
    trust_code: bool = False,
    progress: bool | Shown = True,
) -> Replay:
    """Execute the runs of a bundle again and compare them, as `raffed replay` does.

    The bundle may come from a stranger. It is checked completely before anything is written, and the runs are
    executed serially in this process. Nothing is downloaded.

    Args:
        archive: The zip that `raffed bundle` wrote.
        out: A new folder: `recorded` gets the bundle's results, `again` the new ones, and replay.json the
            outcome.
        rounds: Number of rounds to execute of each run; 0: all.
        only: Names of runs in the bundle; empty: all.
        data_root: Folder of the data sets.
        trust_code: Whether code that the bundle brings may be executed.
        progress: Whether rounds are counted on stderr or below the notebook's cell; or what counts them.

    Returns:
        All checks; `replay.ok` says whether everything has the recorded bits.

    Raises:
        UsageError: The file is not a bundle as raffed writes it, its code is not trusted, or its data are not
            here.

    Example:
        >>> raffed.replay("map.zip", "again").ok  # doctest: +SKIP
        True
    """
    from raffed.bundles.replaying import replay as replayed

    shown = make_progress(progress)

    def watch(name: str, event: RoundEvent) -> None:
        shown.say(f"{name}: executed {event.round} of {event.rounds} rounds again")

    return replayed(Path(archive), Path(out), rounds, only, data_root, trust_code, watch)


def verify(
    run: Path | str,
    rounds: int = 3,
    *,
    progress: bool | Shown = True,
    accept_changed_code: bool = False,
    author_python: str = "",
) -> Certificate:
    """Check every hash in a run's folder, and execute some of its rounds again, as `raffed verify` does.

    Args:
        run: Folder or URL of the run. Nothing in it is changed.
        rounds: Number of rounds to execute again, at least 0. As many as were run means all.
        progress: Whether the rounds are counted on stderr or below the notebook's cell; or what counts them.
        accept_changed_code: Whether own code may be another than that which the run was made with.
        author_python: Interpreter that executes an author's engine; without it: this one.

    Returns:
        All checks with their outcomes; `certificate.ok` says whether everything has the recorded bits.

    Raises:
        RunFolderError: No run can be read there.
        UsageError: The run cannot be set up here, because its data or a GPU is missing.

    Example:
        >>> raffed.verify("runs/map").ok  # doctest: +SKIP
        True
    """
    from raffed.runs.verify import verify as verified

    shown = make_progress(progress)
    with fetched(run, whole=True) as folder:

        def watch(done: int, of: int) -> None:
            shown.say(f"executed {done} of {of} rounds again")

        return verified(folder, rounds, watch, accept_changed_code, author_python)
