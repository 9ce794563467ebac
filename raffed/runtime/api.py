"""What a federation asks of whoever carries it out: train these clients, evaluate this model, keep the
vaults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from raffed.config.faults import NO_FAULT, ParticipantFault
from raffed.core.aggregation.accumulator import PartialSum
from raffed.core.messages import Broadcast
from raffed.runtime.reports import Report, ScoreCounts, SurveyedClient

T = TypeVar("T")
Asked = Callable[[], T]
"""Work that was asked for: it may go on by itself, and calling this once waits for what comes of it."""


class ParticipantOrder(NamedTuple):
    """A client in a job. weight: p_i, 0 if its upload does not count; version: of its vault."""

    client: int
    weight: float
    version: int
    fate: ParticipantFault = NO_FAULT


@dataclass(frozen=True)
class RoundOrder:
    """One round's work.

    `weights`: p_i of each participant. `versions`: the version of each participant's vault, which is the
    number of rounds that were done when it last took part, 0 for never. `measure`: score the participants'
    models as well. `stacks`: the participants in groups that are trained together, the same wherever they are
    trained; of one client each unless the run says cohort. `fates`: of each participant, none of them
    dropped; empty where nothing goes wrong. `peers`: the clients that agree on masks, all whose uploads
    count; empty without masks.
    """

    broadcast: Broadcast
    participants: tuple[int, ...]
    weights: tuple[float, ...]
    versions: tuple[int, ...]
    measure: bool
    stacks: tuple[tuple[int, ...], ...]
    fates: tuple[ParticipantFault, ...] = ()
    peers: tuple[int, ...] = ()

    @property
    def round(self) -> int:
        return self.broadcast.round

    def share(self, stacks: Sequence[tuple[int, ...]]) -> ActorShare:
        """The part of the job with these stacks; the broadcast travels on its own."""
        entries = self._entries
        return ActorShare(
            tuple(tuple(entries[client] for client in stack) for stack in stacks), self.measure, self.peers
        )

    @cached_property
    def _entries(self) -> dict[int, ParticipantOrder]:
        fates = self.fates or (NO_FAULT,) * len(self.participants)
        rows = zip(self.participants, self.weights, self.versions, fates, strict=True)
        return {row[0]: ParticipantOrder(*row) for row in rows}


@dataclass(frozen=True)
class ActorShare:
    """One actor's part of a job. Travels as plain tuples: entries of their own class take Ray's pickler
    twenty times as long.
    """

    stacks: tuple[tuple[ParticipantOrder, ...], ...]
    measure: bool
    peers: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _share, (tuple(tuple(map(_plain, stack)) for stack in self.stacks), self.measure, self.peers)


def _plain(entry: ParticipantOrder) -> tuple[Any, ...]:
    return (*entry[:3], *entry.fate)


def _share(stacks: tuple[tuple[Any, ...], ...], measure: bool, peers: tuple[int, ...]) -> ActorShare:
    made = (
        tuple(
            ParticipantOrder(client, weight, version, ParticipantFault(*fate))
            for client, weight, version, *fate in stack
        )
        for stack in stacks
    )
    return ActorShare(tuple(made), measure, peers)


class Backend(Protocol):
    """Serial, or Ray. Every implementation gives the same bits."""

    def train(self, job: RoundOrder) -> Asked[tuple[PartialSum, list[Report]]]:
        """Train the participants; partial sums, and the reports in the order of the participants."""
        ...

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Asked[ScoreCounts]:
        """Score the global model on the global test set, or with `part="val"` on all clients' validation
        parts.
        """
        ...

    def survey(self, job: RoundOrder, whole: Broadcast | None) -> list[SurveyedClient]:
        """Score the job's participants between rounds, in their order, and `whole`, the server's model
        with all its layers.
        """
        ...

    def own_layers(self, job: RoundOrder) -> list[NDArray[np.int64]]:
        """Exact sums whose total is Σ p_i v_i over the layers that the participants keep: for the
        simulator's eyes alone.
        """
        ...

    def vault_digests(self, versions: dict[int, int]) -> dict[int, str]:
        """Client → SHA-256 of its vault of that version, for every client that keeps anything."""
        ...

    def placement(self) -> dict[str, object]:
        """How the work is placed, for run.json."""
        ...

    def close(self) -> None: ...
