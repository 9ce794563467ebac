"""What is known of a table that other people printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
        repeats: Name of a source in the csv → number of runs behind each of its numbers. The printed
            deviations of a source that is not here are not used, because their number of runs is unknown.
    """

    source: str
    protocol: str
    needs: str
    cost: str
    defects: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    may_differ: tuple[str, ...] = ()
    repeats: Mapping[str, int] = field(default_factory=dict)

    def stated(self) -> list[str]:
        """Return lines that say before anything runs what the table needs, costs and leaves out."""
        return [
            f"needs {self.needs}; {self.cost}",
            *(f"not to be had here: {what}" for what in self.lacks),
            *(f"defect of the printed table: {what}" for what in self.defects),
            *(f"row {row} is absent: {why}" for row, why in self.absent.items()),
        ]


__all__ = ["Published"]
