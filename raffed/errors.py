"""The errors that raffed raises, sorted by who can remedy them, and the checks that raise the simplest ones.

Every message says what is wrong, where, what was given, what was wanted, and what to do.

RaffedError                     exit code 1: the run could not continue
├── UsageError                  exit code 2: raised before any work starts
│   ├── UnknownNameError        a name that is not registered; lists the nearest names
│   ├── DataFileError           a data file that is missing or damaged
│   └── RunFolderError          an output folder that cannot take this run
├── BoundaryError               private state, or another value that must not travel, was about to be sent
├── NumericsError               a loss or a weight that is not finite, or outside the range of exact sums
├── StagePassedError            data of a stage that clients have left behind
├── DiskFullError               no space, or no quota, is left for a run's files
├── FolderLostError             a run's folder was removed, renamed or made unwritable during the run
├── RayLostError                a process that Ray cannot do without has died
├── ActorsLostError             client actors died more often than the run tolerates
└── ActorStartError             an actor raised an error while it started, and would raise it again
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

FEW: Final = 8  # so many names are listed in full beside the nearest ones


class RaffedError(Exception):
    """Base class of every error that raffed raises on purpose.

    The command line ends with exit code 1 and prints the message in one line.
    """


class UsageError(RaffedError, ValueError):
    """The request cannot be carried out as written. Nothing has been started.

    The command line ends with exit code 2.
    """


class UnknownNameError(UsageError):
    """A name is not registered. The message lists the nearest names, or all names if none is near.

    If there are only a few names, it lists all of them as well.

    Args:
        kind: What the name should be a name of, such as "method" or "data set".
        got: The name that was given.
        known: All names that would be accepted.
    """

    def __init__(self, kind: str, got: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(str(got).lower(), names, n=3, cutoff=0.5)
        hint = f"known: {', '.join(names) or 'none'}"
        if near:
            others = f" ({hint})" if len(near) < len(names) <= FEW else ""
            hint = f"nearest: {', '.join(near)}{others}"
        super().__init__(f"unknown {kind} {got!r}; {hint}")

    def __reduce__(self) -> tuple[type[UsageError], tuple[object, ...]]:
        return UsageError, self.args  # only the message is pickled, without the registry


class DataFileError(UsageError):
    """A data file is missing, or its contents are not those that were published."""


class RunFolderError(UsageError):
    """The output folder holds another run, no run where one is needed, or cannot be read or written."""


class FolderInUseError(RunFolderError):
    """Another process works in the folder at the moment."""


class BoundaryError(RaffedError, TypeError):
    """Something that is not a `Wire` was about to cross between client and server."""


class NumericsError(RaffedError, ArithmeticError):
    """A number left the range in which results are meaningful, usually because training diverged."""


class StagePassedError(RaffedError):
    """A client was asked for data of a stage that has passed. Without replay such data are gone."""


class DiskFullError(RaffedError, OSError):
    """A file of the run could not be written, because the disk or the user's quota is full."""


class FolderLostError(RaffedError, OSError):
    """The run's folder was removed or renamed during the run, or its permissions were taken away."""


class RayLostError(RaffedError):
    """Ray's head process or node process has died, so the run cannot continue."""


class ActorsLostError(RaffedError):
    """Client actors were lost more often than `Runtime.max_restarts` allows."""


class ActorStartError(RaffedError):
    """An actor could not start. It is not replaced, because a replacement would raise the same error."""


def check_range(name: str, value: float, low: float, high: float) -> float:
    """Return `value` if it lies in the allowed range.

    Args:
        name: What the message calls the value, such as "local.lr".
        value: The number to check.
        low: Lower end of the range.
        high: Upper end of the range, which is allowed.

    Returns:
        `value`, unchanged.

    Raises:
        UsageError: The value is outside [low, high].
    """
    if not low <= value <= high:
        raise UsageError(f"{name} = {value} is outside [{low}, {high}]")
    return value


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`.

    Args:
        name: What the message calls the value, such as "federation.weighting".
        value: The name to check.
        choices: The accepted names.

    Returns:
        `value`, unchanged.

    Raises:
        UnknownNameError: The value is not a choice. The message lists the nearest choices.
    """
    known = list(choices)
    if value not in known:
        raise UnknownNameError(name, value, known)
    return value


def check_permitted(path: object, error: Exception) -> None:
    """Raise an error that says so if a file could not be read only because a permission is missing.

    Args:
        path: The file, for the message.
        error: The error that reading it raised.

    Raises:
        RunFolderError: `error` is a PermissionError. Any other error is left to the caller.
    """
    if isinstance(error, PermissionError):
        raise RunFolderError(
            f"{path}: cannot be read ({error.strerror}); ask for the permission (chmod, chown)"
        ) from error


def check_new_file(path: Path, option: str = "--out") -> None:
    """Refuse the name of a file that is there already.

    Args:
        path: The file.
        option: The word for what chose it.

    Raises:
        RunFolderError: Something is there.
    """
    if path.exists() or path.is_symlink():
        raise RunFolderError(f"{path} exists already; choose another {option}")


@contextlib.contextmanager
def writing(path: Path, option: str = "--out") -> Iterator[None]:
    """Within the block `path`, or something below it, is written. If that fails, one line says why.

    Args:
        path: The file or folder.
        option: The word for what chose the place.

    Raises:
        RunFolderError: The operating system refused. The message says what to do.
    """
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"{path}: cannot be written ({error.strerror}); mend that, or choose another {option}"
        ) from error
