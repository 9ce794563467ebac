"""What clients report after training and evaluation: scores, losses, bytes and times."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from raffed.core.measures.scores import NO_SCORES, ClientScores

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
        self._spent: dict[Part, float] = {
            "training": 0.0,
            "sums": 0.0,
            "messages": 0.0,
            "scoring": 0.0,
            "disk": 0.0,
        }

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
    for one in set(shares):
        before = workers.get(one.process, NOT_TIMED)
        workers[one.process] = ShareSeconds(
            one.process, *(a + b for a, b in zip(before[1:], one[1:], strict=True))
        )
    return max(workers.values(), key=lambda one: one.total, default=NOT_TIMED)


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
