"""What the round loop asks of a backend: train these clients, evaluate this model, keep the client states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from raffed.config.faults import NO_FAULT, ParticipantFault
from raffed.core.aggregation.uploads import PartialSum
from raffed.core.measures.scores import ScoreCounts
from raffed.core.messages import Broadcast
from raffed.runtime.reports import Report, SurveyedClient

if TYPE_CHECKING:
    from raffed.core.training.network import Network
    from raffed.runtime.setup import Setup

T = TypeVar("T")
Asked = Callable[[], T]
"""Work that was requested.

It may already be running in the background. Calling this once waits for the result and returns it.
"""
ServerWork = Callable[["Network", "Setup"], T]
"""Work that the server does with a network. It can be pickled, and what it returns lies on the CPU."""


class ParticipantOrder(NamedTuple):
    """One client in the work of a round.

    Attributes:
        client: Number of the client.
        weight: Its weight p_i, or 0 if its upload does not count.
        version: Version of its client state.
        fault: What happens to it by the plan of faults.
    """

    client: int
    weight: float
    version: int
    fault: ParticipantFault = NO_FAULT


@dataclass(frozen=True)
class RoundOrder:
    """The work of one round.

    Attributes:
        broadcast: What the server sends.
        participants: Numbers of the clients that train.
        weights: Weight p_i of each participant.
        versions: Version of each participant's client state. It is the number of rounds that were done when
            the client last took part, and 0 if it never did.
        measure: Whether the participants' models are scored as well.
        stacks: The participants in groups that are trained together. The groups are the same wherever they
            are trained. Each holds one client unless the run sets a cohort.
        faults: What happens to each participant by the plan of faults. Nobody here is "dropped". Empty if
            there are no faults.
        peers: The clients that agree on masks, which are all whose uploads count. Empty without masks.
    """

    broadcast: Broadcast
    participants: tuple[int, ...]
    weights: tuple[float, ...]
    versions: tuple[int, ...]
    measure: bool
    stacks: tuple[tuple[int, ...], ...]
    faults: tuple[ParticipantFault, ...] = ()
    peers: tuple[int, ...] = ()

    @property
    def round(self) -> int:
        return self.broadcast.round

    def share(self, stacks: Sequence[tuple[int, ...]]) -> ActorShare:
        """Return the part of the work with these stacks. The broadcast is sent separately."""
        entries = self._entries
        return ActorShare(
            tuple(tuple(entries[client] for client in stack) for stack in stacks), self.measure, self.peers
        )

    @cached_property
    def _entries(self) -> dict[int, ParticipantOrder]:
        faults = self.faults or (NO_FAULT,) * len(self.participants)
        rows = zip(self.participants, self.weights, self.versions, faults, strict=True)
        return {row[0]: ParticipantOrder(*row) for row in rows}


@dataclass(frozen=True)
class ActorShare:
    """The part of a round's work that one actor gets.

    It is sent as plain tuples, because Ray's pickler needs twenty times as long for entries of their own
    class.
    """

    stacks: tuple[tuple[ParticipantOrder, ...], ...]
    measure: bool
    peers: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _share, (tuple(tuple(map(_plain, stack)) for stack in self.stacks), self.measure, self.peers)


def _plain(entry: ParticipantOrder) -> tuple[Any, ...]:
    return (*entry[:3], *entry.fault)


def _share(stacks: tuple[tuple[Any, ...], ...], measure: bool, peers: tuple[int, ...]) -> ActorShare:
    made = (
        tuple(
            ParticipantOrder(client, weight, version, ParticipantFault(*fault))
            for client, weight, version, *fault in stack
        )
        for stack in stacks
    )
    return ActorShare(tuple(made), measure, peers)


class Backend(Protocol):
    """What carries out the rounds: the serial backend, or the Ray one. All backends give the same bits."""

    def train(self, order: RoundOrder) -> Asked[tuple[PartialSum, list[Report]]]:
        """Train the participants.

        Returns:
            The partial sums, and the reports in the order of the participants.
        """
        ...

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Asked[ScoreCounts]:
        """Score the global model on the global test set.

        With `part="val"` it is scored on all clients' validation parts, with "train" on their training
        samples, and with "attack" on the images by which a backdoor is measured.
        """
        ...

    def losses(self, order: RoundOrder) -> list[float]:
        """Return the mean cross-entropy of the broadcast model on the training samples of each participant.

        The model is completed by the layers that the client keeps. Nothing is trained.
        """
        ...

    def survey(self, order: RoundOrder, whole: Broadcast | None) -> list[SurveyedClient]:
        """Score the participants between rounds, in their order.

        Args:
            order: The clients to score.
            whole: The server's model with all its layers, or None if the server does not have all of them.
        """
        ...

    def own_layers(self, order: RoundOrder) -> list[NDArray[np.int64]]:
        """Return exact sums whose total is Σ p_i v_i over the layers that the participants keep.

        Only the simulator may look at them.
        """
        ...

    def client_state_digests(self, versions: dict[int, int]) -> dict[int, str]:
        """Return client → SHA-256 of its state of the given version, if it keeps anything."""
        ...

    @property
    def apart(self) -> bool:
        """Whether clients train on another device than the CPU, where the server is."""
        ...

    def server_work(self, work: ServerWork[T]) -> T:
        """Do work of the server with a network of the device where clients train."""
        ...

    def placement(self) -> dict[str, object]:
        """Return how the work is placed, for run.json."""
        ...

    def close(self) -> None: ...
