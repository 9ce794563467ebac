"""The serial backend: one process, and one client after the other.

It is the reference for tests and debugging, and fast enough for very small runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from raffed.core.aggregation.uploads import PartialSum
from raffed.core.measures.scores import ScoreCounts
from raffed.core.messages import Broadcast
from raffed.runtime.api import Asked, RoundOrder, ServerWork
from raffed.runtime.client_data import PARTS, chunks
from raffed.runtime.machine import gpu_of, keep_freed_memory, set_threads
from raffed.runtime.reports import Report, SurveyedClient
from raffed.runtime.setup import Setup
from raffed.runtime.worker import ClientWorker, total

T = TypeVar("T")


class SerialBackend:
    """A `Backend` in this process. Work is done when its result is requested.

    The calling thread uses the run's number of torch threads, and gets its own number back on `close`. Other
    threads of the program keep theirs. Freed memory is kept (runtime/machine.py).
    """

    def __init__(self, setup: Setup, states_folder: Path | None = None) -> None:
        self._before, self._threads = torch.get_num_threads(), setup.config.runtime.threads
        set_threads(self._threads)
        keep_freed_memory()
        self._worker = ClientWorker(
            setup, states_folder, "cuda" if setup.config.runtime.gpu_fraction else "cpu"
        )
        self._chunks = {part: chunks(setup.data, part) for part in PARTS}

    def train(self, order: RoundOrder) -> Asked[tuple[PartialSum, list[Report]]]:
        def trained() -> tuple[PartialSum, list[Report]]:
            set_threads(self._threads)  # the caller may have changed it between rounds
            return self._worker.train(order.broadcast, order.share(order.stacks))

        return trained

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Asked[ScoreCounts]:
        return lambda: total(self._worker.evaluate(broadcast, self._chunks[part]))

    def losses(self, order: RoundOrder) -> list[float]:
        found = self._worker.losses(order.broadcast, order.share(order.stacks))
        return [found[client] for client in order.participants]

    def survey(self, order: RoundOrder, whole: Broadcast | None) -> list[SurveyedClient]:
        return self._worker.survey(order.broadcast, whole, order.share(order.stacks))

    def own_layers(self, order: RoundOrder) -> list[NDArray[np.int64]]:
        found = self._worker.own_layers(order.share(order.stacks))
        return [] if found is None else [found]

    def client_state_digests(self, versions: dict[int, int]) -> dict[int, str]:
        return self._worker.store.digests(versions)

    @property
    def apart(self) -> bool:
        return self._worker.device.type != "cpu"

    def server_work(self, work: ServerWork[T]) -> T:
        return self._worker.server_work(work)

    def placement(self) -> dict[str, object]:
        return {"execution": "serial", "threads": torch.get_num_threads(), **gpu_of(self._worker.device)}

    def close(self) -> None:
        set_threads(self._before)
