"""What a federation asks of whoever carries it out: train these clients, evaluate this model, keep the vaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from raffed.core.boundary import Broadcast
from raffed.core.fold import Partial

Row = tuple[int, float, int]  # client, p_i, version of its vault


@dataclass(frozen=True)
class Job:
    """One round's work.

    `weights`: p_i of each participant. `versions`: the version of each participant's vault, which is the number of rounds
    that were done when it last took part, 0 for never. `measure`: score the participants' models as well. `stacks`: the
    participants in groups that are trained together, the same wherever they are trained; of one client each unless the
    run says cohort.
    """

    broadcast: Broadcast
    participants: tuple[int, ...]
    weights: tuple[float, ...]
    versions: tuple[int, ...]
    measure: bool
    stacks: tuple[tuple[int, ...], ...]

    @property
    def round(self) -> int:
        return self.broadcast.round

    def share(self, stacks: Sequence[tuple[int, ...]]) -> Share:
        """The part of the job with these stacks; the broadcast travels on its own."""
        rows = {row[0]: row for row in zip(self.participants, self.weights, self.versions, strict=True)}
        return Share(tuple(tuple(rows[client] for client in stack) for stack in stacks), self.measure)


@dataclass(frozen=True)
class Share:
    """One actor's part of a job."""

    stacks: tuple[tuple[Row, ...], ...]
    measure: bool


@dataclass(frozen=True)
class Tally:
    """correct and total samples per class, and Σ loss in nats: plain numbers, so that it travels cheaply."""

    correct: tuple[int, ...]
    total: tuple[int, ...]
    loss: float

    @property
    def n(self) -> int:
        return sum(self.total)

    @property
    def accuracy(self) -> float:
        return sum(self.correct) / self.n if self.n else float("nan")


@dataclass(frozen=True)
class Report:
    """What a client tells of its round besides the upload: metrics only. Bytes are what the *method* sends.

    `scores`: on its local test part, of the downloaded ("global"), trained ("local") and "personal" model.
    `validation`: of the personal model on its validation part, None where there is none.
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


class Runtime(Protocol):
    """Serial, or Ray. Every implementation gives the same bits."""

    def train(self, job: Job) -> tuple[Partial, list[Report]]:
        """Train the participants; partial sums, and the reports in the order of the participants."""
        ...

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Tally:
        """Score the global model on the global test set, or with `part="val"` on all clients' validation parts."""
        ...

    def vault_digests(self, versions: dict[int, int]) -> dict[int, str]:
        """Client → SHA-256 of its vault of that version, for every client that keeps anything."""
        ...

    def placement(self) -> dict[str, object]:
        """How the work is placed, for run.json."""
        ...

    def close(self) -> None: ...
