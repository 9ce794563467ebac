"""The report after every round, for the watchers of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class RoundEvent:
    """What a watcher receives after a round.

    `accuracy` is that of the global model on the global test set. `personal` is the mean over the
    participants of the accuracy of their personalised models on their local test parts. `val` and
    `val_personal` are the same two on the clients' validation parts. All are fractions, and None if they were
    not measured. Bytes are those of all participants together. `straggling` counts the participants that made
    fewer steps because of the plan of faults.
    `metrics` holds the user's own metrics, "MODEL SPLIT METRIC" → value, such as "global test top2".
    """

    round: int  # number of rounds done
    rounds: int
    loss: float
    accuracy: float | None
    personal: float | None
    participants: int
    bytes_up: int
    bytes_down: int
    seconds: float
    val: float | None = None
    val_personal: float | None = None
    straggling: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, int | float | None]:
        """Return the fields by name. The user's own metrics stand beside them under their own names."""
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "metrics"}
        return {**named, **self.metrics}
