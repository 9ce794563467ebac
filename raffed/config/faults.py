"""Planned faults of a federation, as plain data of the run. This module imports no torch.

Faults are part of the model of the federation, so they change its result. They do so in the same way wherever
the run is executed and after any resume. A process that dies is a different matter: it changes no bit of the
result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, get_args

from raffed.config.attacks import Attacks
from raffed.config.validation import Doc, Range, check_fields
from raffed.errors import UsageError, check_choice

FaultKind = Literal["drop", "late", "corrupt", "straggle"]
KINDS: tuple[str, ...] = get_args(FaultKind)
Probability = Annotated[float, Range(0.0, 1.0)]
FaultOutcome = Literal["dropped", "late", "refused", "counted"]


class ParticipantFault(NamedTuple):
    """What happens to a drawn client in one round.

    Attributes:
        outcome: What becomes of its upload: "counted", "late", "refused", or "dropped" if it does nothing at
            all.
        completed_fraction: Fraction of the steps of shared training that the client makes, in (0, 1].
    """

    outcome: FaultOutcome = "counted"
    completed_fraction: float = 1.0


NO_FAULT = ParticipantFault()


@dataclass(frozen=True)
class Faults(Attacks):
    """Which faults happen in a run, at random or at listed rounds, and which clients attack.

    Every probability is per drawn client and round. The kinds are drawn independently of each other. If
    several kinds strike one client in one round, "drop" goes before "late", and "late" before "corrupt".

    The aggregation weights p_i are computed over the clients whose uploads count. If no upload counts in a
    round, the server's step changes nothing.

    Raises:
        UsageError: A value is outside its range, or `at` cannot be read.
    """

    drop: Annotated[
        Probability,
        Doc(
            "Probability that a client does not answer. It neither receives, trains nor sends, and its "
            "client state stays as it was."
        ),
    ] = 0.0
    late: Annotated[
        Probability,
        Doc(
            "Probability that an upload misses its round. The client has trained and keeps its private "
            "state. The server discards the upload and does not apply it in a later round either, because "
            "the messages of methods have no meaning for a server that has moved on."
        ),
    ] = 0.0
    corrupt: Annotated[
        Probability,
        Doc(
            "Probability that an upload arrives damaged. The server refuses the whole upload and counts it "
            "as refused. The client is not told and keeps its private state."
        ),
    ] = 0.0
    straggle: Annotated[
        Probability,
        Doc(
            "Probability that a client makes only a part of its steps of shared training. Private training "
            "is complete, because nobody waits for it. The upload counts with the client's usual weight."
        ),
    ] = 0.0
    straggle_share: Annotated[
        float,
        Range(0.0, 1.0, open_low=True),
        Doc(
            "Fraction of the steps that such a client makes in every shared pass, rounded up to whole steps."
        ),
    ] = 0.5
    corrupt_kind: Annotated[
        Literal["nan", "range"],
        Doc(
            "How an upload is damaged. `nan` puts a NaN into it, and `range` a number outside the range of "
            "exact sums."
        ),
    ] = "nan"
    at: Annotated[
        str,
        Doc(
            "Further faults at chosen places, such as `drop 3@2, corrupt 7@5-9`. They are written as KIND "
            "CLIENT@ROUND or KIND CLIENT@FROM-TO and separated by commas. Clients are numbered from 0 and "
            "rounds from 1."
        ),
    ] = ""

    def __post_init__(self) -> None:
        check_fields("faults", self)
        list(self._listed())
        self.listed_attackers()

    @property
    def any(self) -> bool:
        """Whether this plan contains any fault. An attack is not one of them."""
        return bool(self.at) or any(getattr(self, kind) for kind in KINDS)

    @property
    def last_client(self) -> int:
        """The largest client number in `at`, or -1 if `at` is empty."""
        return max((client for _, client, _, _ in self._listed()), default=-1)

    @property
    def last_begin(self) -> int:
        """The last round, counted from 1, in which an entry of `at` begins, or 0 if `at` is empty."""
        return max((first for _, _, first, _ in self._listed()), default=0)

    @property
    def takes_all(self) -> bool:
        """Whether a probability of 1 prevents every upload from counting."""
        return 1.0 in (self.drop, self.late, self.corrupt)

    def listed(self, round: int, client: int) -> set[str]:
        """Return the kinds of fault that `at` lists for a client in a round.

        Args:
            round: Number of the round, counted from 0.
            client: Number of the client, counted from 0.
        """
        return {
            kind for kind, who, first, last in self._listed() if who == client and first <= round + 1 <= last
        }

    def fault_of(self, round: int, client: int, dice: tuple[float, float, float, float]) -> ParticipantFault:
        """Decide what happens to a drawn client in a round.

        Args:
            round: Number of the round, counted from 0.
            client: Number of the client, counted from 0.
            dice: Four random numbers in [0, 1), one for each of `KINDS` in that order.
        """
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
        """Yield every entry of `at` as (kind, client, first round, last round)."""
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
