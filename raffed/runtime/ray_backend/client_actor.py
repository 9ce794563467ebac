"""A client actor: clients with their private state, pinned to a share of a core or GPU. torch and data
load as it starts.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError

from raffed.runtime.json_logs import configure
from raffed.runtime.machine import begin_training, gpu_of
from raffed.runtime.ray_backend.socket_calls import Serving

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from raffed.core.aggregation.accumulator import PartialSum
    from raffed.core.messages import Broadcast
    from raffed.runtime.api import ActorShare
    from raffed.runtime.reports import Report, ScoreCounts, SurveyedClient
    from raffed.runtime.setup import Setup

MEND = (
    "; mend that where it runs (`raffed doctor` looks at a machine), then `raffed resume` continues the run"
)


def why_not_started(error: RayActorError) -> str | None:
    """What an actor raised while it was made, its type and the first line of its message; None if it ended
    otherwise.

        Ray keeps the text alone: a line `ray::Class.__init__() (pid=…)` for every error of a chain, its
        indented frames, the error.
    """
    if not error.actor_init_failed:
        return None
    lines = str(error).splitlines()
    last = max(
        (number for number, line in enumerate(lines) if "ray::" in line and "(pid=" in line), default=-1
    )
    told = [line.strip() for line in lines[last + 1 :] if line.strip() and not line[0].isspace()]
    return told[0] if told else lines[-1].strip()


@ray.remote(max_restarts=0, max_task_retries=0)
class ClientActor(Serving):
    """Answers a round it knows already from memory: a round repeated is a round done once."""

    def __init__(self, setup: Setup, vaults: str, home: tuple[int, ...]) -> None:
        began = time.perf_counter()
        configure()
        begin_training(setup.config.runtime.threads)
        from raffed.runtime.worker import ClientWorker

        self._host = ClientWorker(setup, Path(vaults), self._device(), home=frozenset(home))
        self._host.warm_up()
        self._answers: dict[tuple[int, ActorShare], tuple[PartialSum, list[Report]]] = {}
        self._seconds = time.perf_counter() - began

    def _device(self) -> str:
        """The device Ray assigned to this actor, never the one that happens to be visible."""
        assigned = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        return (
            "cuda" if assigned else "cpu"
        )  # CUDA_VISIBLE_DEVICES holds the assigned GPU alone, so it is cuda:0

    def ready(self) -> dict[str, Any]:
        """Once this returns, torch and the data are loaded. Where it runs, for run.json and the tests."""
        node, device = ray.get_runtime_context().get_node_id(), self._host.device
        return {
            "pid": os.getpid(),
            "node": node,
            "seconds": self._seconds,
            "device": str(device),
            **gpu_of(device),
        }

    def train(self, broadcast: Broadcast, share: ActorShare) -> tuple[PartialSum, list[Report]]:
        """One round of this actor's share; the broadcast is read from the object store, without a copy."""
        key = broadcast.round, share
        if key not in self._answers:
            self._answers = {
                old: answer for old, answer in self._answers.items() if old[0] == broadcast.round
            }
            self._answers[key] = self._host.train(broadcast, share)
        return self._answers[key]

    def evaluate(self, broadcast: Broadcast, chunks: range) -> dict[int, ScoreCounts]:
        return self._host.evaluate(broadcast, chunks)

    def survey(
        self, broadcast: Broadcast, whole: Broadcast | None, share: ActorShare
    ) -> list[SurveyedClient]:
        return self._host.survey(broadcast, whole, share)

    def own_layers(self, share: ActorShare) -> NDArray[np.int64] | None:
        return self._host.own_layers(share)

    def digests(self, versions: dict[int, int]) -> dict[int, str]:
        return self._host.store.digests(versions)
