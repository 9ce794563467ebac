"""What the round loop asks of a backend: train these clients, evaluate this model, keep the client states.

Also what it gets: reports, scores and times.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from raffed.config.faults import NO_FAULT, ParticipantFault
from raffed.core.aggregation.uploads import PartialSum
from raffed.core.measures.scores import NO_SCORES, ClientScores, ScoreCounts
from raffed.core.messages import Broadcast

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

    @staticmethod
    def alone(
        broadcast: Broadcast, clients: Sequence[int], versions: Sequence[int], measure: bool
    ) -> RoundOrder:
        """Return the order to look at clients one by one. Their weights are 0, since nothing is uploaded."""
        stacks = tuple((client,) for client in clients)
        weights = (0.0,) * len(clients)
        return RoundOrder(broadcast, tuple(clients), weights, tuple(versions), measure, stacks)

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
    orders = (
        tuple(
            ParticipantOrder(client, weight, version, ParticipantFault(*fault))
            for client, weight, version, *fault in stack
        )
        for stack in stacks
    )
    return ActorShare(tuple(orders), measure, peers)


# What clients report after training and evaluation: scores, losses, bytes and times.
# Where the time of a round goes: measured by workers and by the round loop, and never part of a result.


Part = Literal["training", "sums", "messages", "scoring", "disk"]


class RoundProfile(NamedTuple):
    """Seconds of a round by what they were spent on. Their sum is the time from the round before to this one.

    Attributes:
        training: Local training. With several actors it is that of the slowest one.
        sums: Adding up uploads and the server's own step.
        messages: What the driver waits for its actors beyond their work: packing, sending, and merging their
            sums. Nothing is sent inside one process.
        scoring: Scores of the global model and of the clients' models, and surveys.
        disk: Client states, rows, and the checkpoint after the round before.
        rest: Everything else, such as drawing participants, loading data, and what receives the events.
    """

    training: float
    sums: float
    messages: float
    scoring: float
    disk: float
    rest: float

    @property
    def total(self) -> float:
        """Seconds of the whole round."""
        return sum(self)


class ShareSeconds(NamedTuple):
    """Seconds that a worker spent on its share of a round, in all and by part.

    `process` is the worker's process id.
    """

    process: int
    training: float
    sums: float
    scoring: float
    disk: float
    total: float


NOT_TIMED = ShareSeconds(0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Stopwatch:
    """Adds up seconds by part. Parts must not be nested, so that no second is counted twice."""

    def __init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self._began = time.perf_counter()
        self._spent: dict[Part, float] = dict.fromkeys(get_args(Part), 0.0)

    @contextlib.contextmanager
    def part(self, name: Part) -> Iterator[None]:
        """Count the time inside the block for a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - began)

    def add(self, name: Part, seconds: float) -> None:
        """Count seconds for a part."""
        self._spent[name] += seconds

    def waited(self, seconds: float, shares: Iterable[ShareSeconds]) -> None:
        """Count the time that was waited for the workers' shares of a round.

        Where the slowest worker began before the waiting did, each of its parts counts in proportion.
        """
        slowest = slowest_worker(shares)
        counted = min(seconds, slowest.total)
        scale = counted / slowest.total if slowest.total > 0 else 0.0
        self.add("training", scale * slowest.training)
        self.add("sums", scale * slowest.sums)
        self.add("scoring", scale * slowest.scoring)
        self.add("disk", scale * slowest.disk)
        if slowest.process != os.getpid():  # nothing crosses a border inside one process
            self.add("messages", seconds - counted)

    def share(self) -> ShareSeconds:
        """Return what this process has spent so far, as a worker."""
        spent, total = self._spent, time.perf_counter() - self._began
        return ShareSeconds(
            os.getpid(), spent["training"], spent["sums"], spent["scoring"], spent["disk"], total
        )

    def lap(self) -> RoundProfile:
        """Return the profile of the round that ends now, and begin the next one."""
        spent = self._spent
        rest = max(time.perf_counter() - self._began - sum(spent.values()), 0.0)
        self._restart()
        return RoundProfile(**spent, rest=rest)


def slowest_worker(shares: Iterable[ShareSeconds]) -> ShareSeconds:
    """Return the seconds of the worker that took longest. Several shares of one worker are added up.

    Args:
        shares: The share of each client that was trained; clients that were trained together have one.
    """
    workers: dict[int, ShareSeconds] = {}
    for share in set(shares):
        before = workers.get(share.process, NOT_TIMED)
        workers[share.process] = ShareSeconds(
            share.process, *(a + b for a, b in zip(before[1:], share[1:], strict=True))
        )
    return max(workers.values(), key=lambda share: share.total, default=NOT_TIMED)


class Report(NamedTuple):
    """What a client reports about its round, in addition to its upload. These are metrics only.

    Attributes:
        client: Number of the client.
        n: Its number of training samples.
        loss: Mean loss over the samples seen in shared training.
        steps: Number of steps of shared training.
        bytes_up: Bytes that the method sends to the server.
        bytes_down: Bytes that the method sends to the client.
        seconds: Duration of its local round, without scoring, keeping and sending. Clients of a stack have
            equal shares.
        scores: What was measured of its models.
        share: Seconds of all the work that its worker did for this round, the same for all clients of it.
        idle: Names of the user's own terms whose value had no gradient at this client.
        numbers: What the method's ingredients report of it.
    """

    client: int
    n: int
    loss: float
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float
    scores: ClientScores = NO_SCORES
    share: ShareSeconds = NOT_TIMED
    idle: tuple[str, ...] = ()
    numbers: Mapping[str, float] = {}


class SurveyedClient(NamedTuple):
    """A client that was scored between rounds.

    Its scored models are "global", the server's model with all its layers, and "personal", the client's own
    model (`between_rounds` in core/round.py).
    """

    client: int
    scores: ClientScores


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
