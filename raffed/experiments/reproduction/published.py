"""What is known of a table that other people printed, and how a number is judged against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Band:
    """How far from the printed number a mean may lie.

    With a printed m ± s of n runs and our r ± t of k runs, the band is b = max(least, 2 √(s²/n + t²/k)). The
    number agrees if |r − m| ≤ b and differs if |r − m| > 2b; otherwise the question is open. Where several
    sources print the number, their range widened by `least` stands for m.

    Attributes:
        least: The noise b₀ in points that is assumed at least.
        repeats: Number n of runs behind the printed number.
        spread: The deviation s, if the printed ± is something else; None: the printed ±, or 0.5 if none or
            0.00 is printed.
        witnesses: Where other sources print the same number: column → value of the csv, as `Cell.printed`.
    """

    least: float
    repeats: int = 3
    spread: float | None = None
    witnesses: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True)
class Published:
    """A table that other people printed.

    Attributes:
        source: Who printed it, and the commit of the code that was read.
        protocol: Which number of a run is printed, and of how many runs.
        needs: Machine and data that the runs need.
        cost: Steps and estimated time of a run.
        defects: What is known to be wrong or unknown about the table, one sentence or two each.
        absent: Printed row → why it is not among the item's rows.
        lacks: What neither raffed nor this repository has and the exact table would need.
        may_differ: Fields of the configuration in which rows of a column differ on purpose, such as
            "local.lr".
    """

    source: str
    protocol: str
    needs: str
    cost: str
    defects: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    may_differ: tuple[str, ...] = ()

    def stated(self) -> list[str]:
        """Return lines that say before anything runs what the table needs, costs and leaves out."""
        return [
            f"needs {self.needs}; {self.cost}",
            *(f"not to be had here: {what}" for what in self.lacks),
            *(f"defect of the printed table: {what}" for what in self.defects),
            *(f"row {row} is absent: {why}" for row, why in self.absent.items()),
        ]


__all__ = ["Band", "Published"]
