"""What can go wrong, by whose hand. Every message says what, where, got, wanted, and what to do.

RaffedError                     exit code 1: the run could not go on
├── UsageError                  exit code 2: raised before any work starts
│   ├── UnknownNameError        a name that no registry holds; lists the nearest
│   ├── DataFileError           a data file that is missing or damaged
│   └── RunFolderError          an output folder that cannot take this run
├── BoundaryError               private state on its way out, or a value that may not travel
├── NumericsError               a loss or a weight that is not a number, or outside the exact range
├── StagePassedError            data of a stage that clients have left behind
├── DiskFullError               no space, or no quota, is left for a run's files
├── FolderLostError             a run's folder was removed, renamed or closed to it while the run went on
├── RayLostError                a process that Ray cannot do without has died
├── ActorsLostError             client actors died more often than the run tolerates
└── ActorStartError             an actor raised an error while it started, as it would again
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal, get_args

Preset = Literal["original", "authors"]


class RaffedError(Exception):
    """Base of everything raffed raises on purpose."""


class UsageError(RaffedError, ValueError):
    """The request cannot be carried out as written; nothing has been started."""


class UnknownNameError(UsageError):
    """A name is in no registry. The message lists the nearest names, or all of them."""

    def __init__(self, kind: str, got: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(got.lower(), names, n=3, cutoff=0.5)
        hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(names) or 'none'}"
        super().__init__(f"unknown {kind} {got!r}; {hint}")

    def __reduce__(self) -> tuple[type[UsageError], tuple[object, ...]]:
        return UsageError, self.args  # pickled as its message: the registry stays behind


class DataFileError(UsageError):
    """A data file is missing or is not the published one."""


class RunFolderError(UsageError):
    """The output folder holds another run, or none where one is needed."""


class BoundaryError(RaffedError, TypeError):
    """Something tried to cross between client and server that is not a Wire."""


class NumericsError(RaffedError, ArithmeticError):
    """A number left the range in which results mean anything."""


class StagePassedError(RaffedError):
    """A client was asked for data of a stage that has passed: without replay they are gone."""


class DiskFullError(RaffedError, OSError):
    """A file of the run could not be written for want of space or quota."""


class FolderLostError(RaffedError, OSError):
    """A run could not go on writing in its folder: it was removed, renamed, or its permissions were taken
    away.
    """


class RayLostError(RaffedError):
    """Ray's head process or node process has died, and the run with it."""


class ActorsLostError(RaffedError):
    """Client actors were lost more often than `max_restarts` allows."""


class ActorStartError(RaffedError):
    """An actor could not start. Its error is no loss of an actor: a replacement would raise it again."""


def check_range(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> float:
    """Return `value` if it lies in [low, high] (or (low, high]); otherwise raise a UsageError that says
    so.
    """
    inside = (low < value if open_low else low <= value) and value <= high
    if not inside:
        raise UsageError(f"{name} = {value} is outside {'(' if open_low else '['}{low}, {high}]")
    return value


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise raise a UsageError that lists the nearest."""
    known = list(choices)
    if value not in known:
        raise UnknownNameError(name, value, known)
    return value


def check_permitted(path: object, error: Exception) -> None:
    """Raise a RunFolderError if a file could not be read for want of permission alone: nothing else is
    wrong with it.
    """
    if isinstance(error, PermissionError):
        raise RunFolderError(
            f"{path}: cannot be read ({error.strerror}); ask for the permission (chmod, chown)"
        ) from error


def by_authors(preset: str) -> bool:
    """Whether a method is to compute as MAP's released code does ("authors"), not as first published
    ("original").

        Raises UnknownNameError for any other name.
    """
    return check_choice("preset", preset, get_args(Preset)) == "authors"
