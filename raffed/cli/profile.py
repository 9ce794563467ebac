"""`--profile`: where the time of a run's rounds went, as a table after the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from raffed.api.progress import Shown
from raffed.cli.tables import show
from raffed.errors import UsageError

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent
    from raffed.runtime.reports import RoundProfile

Profile = Annotated[
    bool,
    typer.Option(
        "--profile",
        help="Show after the run where the time of its rounds went: training, sums, messages, scoring, disk.",
    ),
]
PARTS = ("training", "sums", "messages", "scoring", "disk", "rest")
MOST = 20  # lines of the table; with more rounds a line is the mean of several
NOTE = (
    "In seconds per round. training: the slowest actor's; messages: what the driver\n"
    "waits for its actors beyond their work; disk: rows, client states, checkpoints."
)


def check_profile(profile: bool, quiet: bool) -> None:
    """Refuse a table that nobody would see.

    Raises:
        UsageError: Both options are given.
    """
    if profile and quiet:
        raise UsageError("--profile prints a table and --quiet prints only the folder; leave one of them out")


class RoundTimes:
    """Collects the profile of each round of one run. It is a watcher of the run."""

    def __init__(self) -> None:
        self._found: list[tuple[int, RoundProfile]] = []

    def __call__(self, event: RoundEvent) -> None:
        if event.profile is not None:
            self._found.append((event.round, event.profile))

    def show(self, shown: Shown, method: str) -> None:
        """Show the table, or print the event `profile` for programs."""
        if self._found:  # else the run was finished before
            rounds = [{"round": number, "seconds": one.total, **one._asdict()} for number, one in self._found]
            shown.show({"event": "profile", "method": method, "rounds": rounds}, profiles=self._found)


def show_profile(method: str, found: Sequence[tuple[int, RoundProfile]]) -> None:
    """Print the table of a run's rounds."""
    titles = ("round", "seconds", *PARTS)
    show(titles, profile_lines(found), title=f"profile of {method}", right="|".join(titles))
    print(NOTE)


def profile_lines(found: Sequence[tuple[int, RoundProfile]]) -> list[list[str]]:
    """Return the lines of the table: at most 20 of rounds, then their mean and each part's share of it.

    Args:
        found: Number and profile of each round, at least one. If there are more than 20, a line is the mean
            of several rounds that follow one another.
    """
    size = math.ceil(len(found) / MOST)
    blocks = [found[start : start + size] for start in range(0, len(found), size)]
    lines = [_line(_numbers(block), block) for block in blocks]
    if len(found) > 1:
        lines.append(_line("mean", found))
    means = _means(found)
    whole = sum(means) or 1.0
    return [*lines, ["share", "100 %", *(f"{100 * mean / whole:.0f} %" for mean in means)]]


def _numbers(block: Sequence[tuple[int, RoundProfile]]) -> str:
    first, last = block[0][0], block[-1][0]
    return f"{first}" if first == last else f"{first}-{last}"


def _line(name: str, block: Sequence[tuple[int, RoundProfile]]) -> list[str]:
    """Return a line whose numbers add up as they are printed."""
    parts = [round(mean, 3) for mean in _means(block)]
    return [name, f"{sum(parts):.3f}", *(f"{part:.3f}" for part in parts)]


def _means(block: Sequence[tuple[int, RoundProfile]]) -> list[float]:
    return [sum(one) / len(block) for one in zip(*(profile for _, profile in block), strict=True)]
