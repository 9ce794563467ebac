"""All that a run goes on from, as a checkpoint holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raffed.core.messages import ServerState
from raffed.runs.best_model import BestModel


@dataclass(frozen=True)
class RunState:
    """Where a run stands after a round. The clients' states are kept by their actors.

    Attributes:
        server: The server's state.
        round_hashes: The hash of the weights after every round.
        versions: Client → number of rounds done when it last took part.
        best: The best model so far, if the run keeps it.
        past: Number → an earlier state of the server from which clients still train (config/clock.py).
    """

    server: ServerState
    round_hashes: list[str]
    versions: Mapping[int, int]
    best: BestModel | None = None
    past: Mapping[int, ServerState] = field(default_factory=dict)
