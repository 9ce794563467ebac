"""What is reported after every round to whoever watches a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class RoundEvent:
    """What a watcher sees of a round. accuracy: global model on the global test set; personal: mean over
    participants of the personalised models on their local test parts; val, val_personal: the same two on the
    clients' validation parts; all fractions, None where not measured. Bytes: of all participants. straggling:
    participants that made fewer steps by the plan of faults.
    """

    round: int  # rounds done
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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
