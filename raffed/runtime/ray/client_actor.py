"""A client actor: clients with their private state, on a share of a core or GPU.

It loads torch and the data when it starts.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import ray

from raffed.runtime.bits import begin_bits
from raffed.runtime.machine import begin_training, gpu_of
from raffed.runtime.ray.node_sums import add_here
from raffed.runtime.ray.nodes import check_same
from raffed.runtime.ray.serving import Serving

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from ray import ObjectRef

    from raffed.core.aggregation.uploads import PartialSum
    from raffed.core.measures.scores import ScoreCounts
    from raffed.core.messages import Broadcast
    from raffed.runtime.api import ActorShare, ServerWork
    from raffed.runtime.ray.node_sums import NodeSum, Trained
    from raffed.runtime.ray.nodes import CodeVersions
    from raffed.runtime.reports import Report, SurveyedClient
    from raffed.runtime.setup import Setup

MEND = (
    "; mend that where it runs (`raffed doctor` looks at a machine), then `raffed resume` continues the run"
)

T = TypeVar("T")
Place = dict[str, str | int | float]  # where an actor runs, for run.json


@ray.remote(max_restarts=0, max_task_retries=0)
class ClientActor(Serving):
    """Trains clients in an actor.

    If a round is requested again, the answer is taken from memory: a round is only computed once.

    Args:
        setup_ref: A list that holds the reference to the setup. It is read once the code is known to be the
            same, because other code may not be able to read it.
        states_folder: The folder of client states.
        home: The clients whose states the actor keeps.
        sent: The code of the process that sends the work; None if it cannot differ.
    """

    def __init__(
        self,
        setup_ref: list[ObjectRef[Setup]],
        states_folder: str,
        home: tuple[int, ...],
        sent: CodeVersions | None = None,
    ) -> None:
        began = time.perf_counter()
        check_same(sent)
        setup: Setup = ray.get(setup_ref[0])
        begin_training(setup.config.runtime.threads)
        begin_bits(setup.config.numerics)
        from raffed.runtime.worker import ClientWorker

        self._worker = ClientWorker(setup, Path(states_folder), self._device(), home=frozenset(home))
        self._worker.warm_up()
        self._answers: dict[tuple[int, ActorShare], tuple[PartialSum, list[Report]]] = {}
        self._seconds = time.perf_counter() - began

    def _device(self) -> str:
        """Return the device that Ray assigned to this actor, never one that just happens to be visible."""
        assigned = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        # CUDA_VISIBLE_DEVICES holds only the assigned GPU, so its name is cuda:0
        return "cuda" if assigned else "cpu"

    def ready(self) -> Place:
        """Return where the actor runs, for run.json and the tests, once torch and the data are loaded."""
        node, device = ray.get_runtime_context().get_node_id(), self._worker.device
        return {
            "pid": os.getpid(),
            "node": node,
            "seconds": self._seconds,
            "device": str(device),
            **gpu_of(device),
        }

    def train(self, broadcast: Broadcast, share: ActorShare) -> tuple[PartialSum, list[Report]]:
        """Train this actor's share of a round. The broadcast is read from the object store without a copy."""
        key = broadcast.round, share
        if key not in self._answers:
            self._answers = {
                old: answer for old, answer in self._answers.items() if old[0] == broadcast.round
            }
            self._answers[key] = self._worker.train(broadcast, share)
        return self._answers[key]

    def add_here(self, asked: list[ObjectRef[Trained]]) -> NodeSum:
        """Add the answers of the actors of this node to a round, which this actor has trained before."""
        return add_here(asked)

    def evaluate(self, broadcast: Broadcast, chunks: range) -> dict[int, ScoreCounts]:
        return self._worker.evaluate(broadcast, chunks)

    def losses(self, broadcast: Broadcast, share: ActorShare) -> dict[int, float]:
        return self._worker.losses(broadcast, share)

    def survey(
        self, broadcast: Broadcast, whole: Broadcast | None, share: ActorShare
    ) -> list[SurveyedClient]:
        return self._worker.survey(broadcast, whole, share)

    def own_layers(self, share: ActorShare) -> NDArray[np.int64] | None:
        return self._worker.own_layers(share)

    def server_work(self, work: ServerWork[T]) -> T:
        return self._worker.server_work(work)

    def digests(self, versions: dict[int, int]) -> dict[int, str]:
        return self._worker.store.digests(versions)
