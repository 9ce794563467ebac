"""What a federation asks of whoever carries it out: train these clients, evaluate this model, keep the vaults."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from raffed.core.boundary import Broadcast
from raffed.core.faults import SPARED, Fate
from raffed.core.fold import Partial

T = TypeVar("T")
Asked = Callable[[], T]
"""Work that was asked for: it may go on by itself, and calling this once waits for what comes of it."""


class Entry(NamedTuple):
    """A client in a job. weight: p_i, 0 if its upload does not count; version: of its vault."""

    client: int
    weight: float
    version: int
    fate: Fate = SPARED


@dataclass(frozen=True)
class Job:
    """One round's work.

    `weights`: p_i of each participant. `versions`: the version of each participant's vault, which is the number of rounds
    that were done when it last took part, 0 for never. `measure`: score the participants' models as well. `stacks`: the
    participants in groups that are trained together, the same wherever they are trained; of one client each unless the
    run says cohort. `fates`: of each participant, none of them dropped; empty where nothing goes wrong. `peers`: the
    clients that agree on masks, all whose uploads count; empty without masks.
    """

    broadcast: Broadcast
    participants: tuple[int, ...]
    weights: tuple[float, ...]
    versions: tuple[int, ...]
    measure: bool
    stacks: tuple[tuple[int, ...], ...]
    fates: tuple[Fate, ...] = ()
    peers: tuple[int, ...] = ()

    @property
    def round(self) -> int:
        return self.broadcast.round

    def share(self, stacks: Sequence[tuple[int, ...]]) -> Share:
        """The part of the job with these stacks; the broadcast travels on its own."""
        entries = self._entries
        return Share(tuple(tuple(entries[client] for client in stack) for stack in stacks), self.measure, self.peers)

    @cached_property
    def _entries(self) -> dict[int, Entry]:
        fates = self.fates or (SPARED,) * len(self.participants)
        rows = zip(self.participants, self.weights, self.versions, fates, strict=True)
        return {row[0]: Entry(*row) for row in rows}


@dataclass(frozen=True)
class Share:
    """One actor's part of a job. Travels as plain tuples: entries of their own class take Ray's pickler twenty times as long."""

    stacks: tuple[tuple[Entry, ...], ...]
    measure: bool
    peers: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _share, (tuple(tuple(map(_plain, stack)) for stack in self.stacks), self.measure, self.peers)


def _plain(entry: Entry) -> tuple[Any, ...]:
    return (*entry[:3], *entry.fate)


def _share(stacks: tuple[tuple[Any, ...], ...], measure: bool, peers: tuple[int, ...]) -> Share:
    made = (
        tuple(Entry(client, weight, version, Fate(*fate)) for client, weight, version, *fate in stack) for stack in stacks
    )
    return Share(tuple(made), measure, peers)


@dataclass(frozen=True)
class Tally:
    """core.evaluate.Score as plain numbers, so that it travels cheaply; parts of a test set add up."""

    correct: tuple[int, ...]
    total: tuple[int, ...]
    predicted: tuple[int, ...]
    loss: float
    observed: int

    @property
    def n(self) -> int:
        return sum(self.total)

    @property
    def accuracy(self) -> float:
        return sum(self.correct) / self.n if self.n else float("nan")

    @property
    def accuracy_observed(self) -> float:
        """The fraction when only classes of the client's training data may be the answer."""
        return self.observed / self.n if self.n else float("nan")

    @property
    def macro_f1(self) -> float:
        """Mean of 2·correct / (predicted + total) over the classes that are present or were predicted; NaN without samples."""
        sums = [p + t for p, t in zip(self.predicted, self.total, strict=True)]
        scores = [2 * c / both for c, both in zip(self.correct, sums, strict=True) if both]
        return sum(scores) / len(scores) if scores else float("nan")

    def __add__(self, other: Tally) -> Tally:
        def both(mine: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(a + b for a, b in zip(mine, theirs, strict=True))

        return Tally(
            both(self.correct, other.correct), both(self.total, other.total), both(self.predicted, other.predicted),
            self.loss + other.loss, self.observed + other.observed,
        )  # fmt: skip

    def __sub__(self, part: Tally) -> Tally:
        """What is left of a test set without a part of it."""

        def left(mine: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(a - b for a, b in zip(mine, theirs, strict=True))

        return Tally(
            left(self.correct, part.correct), left(self.total, part.total), left(self.predicted, part.predicted),
            self.loss - part.loss, self.observed - part.observed,
        )  # fmt: skip


class Extra(NamedTuple):
    """A number that a run was asked to measure besides (`federation.measures`), and how many it is the mean of."""

    value: float
    n: int


class Marks(NamedTuple):
    """The last four fields of a Report."""

    scores: dict[str, Tally]
    validation: Tally | None
    stages: tuple[Tally, ...]
    extra: dict[str, Extra]


NO_MARKS = Marks({}, None, (), {})


@dataclass(frozen=True)
class Report:
    """What a client tells of its round besides the upload: metrics only. Bytes are what the *method* sends.

    `scores`: on its local test part, of the downloaded ("global"), trained ("local") and "personal" model, and of the privately
    trained one where that is yet another ("private").
    `validation`: of the personal model on its validation part, None where there is none. `stages`: where the data come in
    stages, of the personal model on the test part of each stage so far. `extra`: metric → number, of the trained model.
    `seconds`: of its local round alone, without scoring, keeping and sending; of a stack an equal share.
    """

    client: int
    n: int
    loss: float
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float
    scores: dict[str, Tally] = field(default_factory=dict)
    validation: Tally | None = None
    stages: tuple[Tally, ...] = ()
    extra: dict[str, Extra] = field(default_factory=dict)


class Reports(list[Report]):
    """Reports that travel as plain tuples, for the reason that a Share does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _reports, (list(map(_FIELDS, self)),)


_FIELDS = operator.attrgetter(*(one.name for one in fields(Report)))


def _reports(rows: list[tuple[Any, ...]]) -> Reports:
    return Reports(Report(*row) for row in rows)


@dataclass(frozen=True)
class Standing:
    """A client between rounds: `scores` on its local test part of "global", the server's model with all its layers, and of
    "personal", its own (core/round.py, `resting`)."""

    client: int
    scores: dict[str, Tally]


class Runtime(Protocol):
    """Serial, or Ray. Every implementation gives the same bits."""

    def train(self, job: Job) -> Asked[tuple[Partial, list[Report]]]:
        """Train the participants; partial sums, and the reports in the order of the participants."""
        ...

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Asked[Tally]:
        """Score the global model on the global test set, or with `part="val"` on all clients' validation parts."""
        ...

    def survey(self, job: Job, whole: Broadcast | None) -> list[Standing]:
        """Score the job's participants between rounds, in their order, and `whole`, the server's model with all its layers."""
        ...

    def own_layers(self, job: Job) -> list[NDArray[np.int64]]:
        """Exact sums whose total is Σ p_i v_i over the layers that the participants keep: for the simulator's eyes alone."""
        ...

    def vault_digests(self, versions: dict[int, int]) -> dict[int, str]:
        """Client → SHA-256 of its vault of that version, for every client that keeps anything."""
        ...

    def placement(self) -> dict[str, object]:
        """How the work is placed, for run.json."""
        ...

    def close(self) -> None: ...
