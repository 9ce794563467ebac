"""What goes wrong in a federation on purpose: a plan as plain data of the run. Imports no torch.

These faults are part of the model of the federation, so they change its result, the same way wherever it runs
and after any resume. (A process that dies is another matter: it changes no bit.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from raffed.errors import UsageError, check_choice, check_range

FaultKind = Literal["drop", "late", "corrupt", "straggle"]
KINDS: tuple[str, ...] = get_args(FaultKind)
DAMAGES = ("nan", "range")
FaultOutcome = Literal["dropped", "late", "refused", "counted"]


class ParticipantFault(NamedTuple):
    """What becomes of a drawn client in a round. completed_fraction: the share of its shared steps that
    it makes, in (0, 1].
    """

    outcome: FaultOutcome = "counted"
    completed_fraction: float = 1.0


NO_FAULT = ParticipantFault()


@dataclass(frozen=True)
class Faults:
    """The plan. Probabilities are per drawn client and round, independent of each other; of two, the earlier
    line holds.

        drop: the client answers nothing: it receives, trains, sends and keeps nothing; its vault stays as it
        was. late: its upload misses the round. It has trained and keeps its private state; the server drops
        the upload
          (it is not applied in a later round: the methods' messages have no meaning for a server that has
          moved on).
        corrupt: its upload arrives damaged, "nan": a number in it is none, or "range": it is outside the
          range of exact sums. The server refuses the upload whole and counts it; the client does not hear of
          it and keeps its private state.
        straggle: it makes straggle_share of the steps of every shared pass, rounded up; private training is
          whole, since nobody waits for it. The upload counts, by the client's samples as ever.
        at: listed faults besides, "drop 3@2, corrupt 7@5-9": KIND CLIENT@ROUND, rounds counted from 1.

        The weights p_i are those of the clients whose uploads count. Without any the server's round changes
        nothing.
    """

    drop: float = 0.0
    late: float = 0.0
    corrupt: float = 0.0
    straggle: float = 0.0
    straggle_share: float = 0.5
    corrupt_kind: str = "nan"
    at: str = ""

    def __post_init__(self) -> None:
        for kind in KINDS:
            check_range(f"faults.{kind}", getattr(self, kind), 0.0, 1.0)
        check_range("faults.straggle_share", self.straggle_share, 0.0, 1.0, open_low=True)
        check_choice("faults.corrupt_kind", self.corrupt_kind, DAMAGES)
        list(self._listed())

    @property
    def any(self) -> bool:
        """Whether anything can go wrong at all."""
        return bool(self.at) or any(getattr(self, kind) for kind in KINDS)

    @property
    def last_client(self) -> int:
        """The largest client number in `at`; -1 without any."""
        return max((client for _, client, _, _ in self._listed()), default=-1)

    @property
    def last_begin(self) -> int:
        """The last round, counted from 1, in which an entry of `at` begins; 0 without any."""
        return max((first for _, _, first, _ in self._listed()), default=0)

    @property
    def takes_all(self) -> bool:
        """Whether no upload can ever count."""
        return 1.0 in (self.drop, self.late, self.corrupt)

    def listed(self, round: int, client: int) -> set[str]:
        """The kinds that `at` lists for a client in a round, counted from 0."""
        return {
            kind for kind, who, first, last in self._listed() if who == client and first <= round + 1 <= last
        }

    def fate(self, round: int, client: int, dice: tuple[float, float, float, float]) -> ParticipantFault:
        """A drawn client's fate from four numbers of [0, 1), in the order of KINDS."""
        struck = {kind for kind, number in zip(KINDS, dice, strict=True) if number < getattr(self, kind)}
        struck |= self.listed(round, client)
        outcome: FaultOutcome = (
            "dropped"
            if "drop" in struck
            else "late"
            if "late" in struck
            else "refused"
            if "corrupt" in struck
            else "counted"
        )
        return ParticipantFault(outcome, self.straggle_share if "straggle" in struck else 1.0)

    def _listed(self) -> Iterator[tuple[str, int, int, int]]:
        """(kind, client, first round, last round) of every entry."""
        for entry in filter(None, (one.strip() for one in self.at.split(","))):
            found = re.fullmatch(r"([a-z]+) +(\d+)@(\d+)(?:-(\d+))?", entry)
            if found is None:
                raise UsageError(
                    f"faults.at: {entry!r} is not KIND CLIENT@ROUND or KIND CLIENT@FROM-TO, as in 'drop 3@2'"
                )
            kind, client, first, last = found.groups()
            check_choice("faults.at", kind, KINDS)
            if not 1 <= int(first) <= int(last or first):
                raise UsageError(
                    f"faults.at: {entry!r}: rounds are counted from 1, the first before the last"
                )
            yield kind, int(client), int(first), int(last or first)
