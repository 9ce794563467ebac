"""The driver actor.

It owns the client actors, holds the server's state, aggregates, and writes the run's files.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from raffed.runtime.json_logs import configure, run_id
from raffed.runtime.machine import begin_training
from raffed.runtime.ray_backend.client_actor import ClientActor

if TYPE_CHECKING:
    from raffed.runtime.placement import PlacementPlan
    from raffed.runtime.ray_backend.actor_pool import RayPool
    from raffed.runtime.setup import Setup

Conduct = Callable[..., Iterator[Any]]


def start_actor(setup_ref: Any, plan: PlacementPlan, actor: int, vaults: Path) -> Any:
    """Create client actor number `actor` of the plan.

    It returns at once, and the actor loads in the background.
    """
    options: dict[str, Any] = {"num_cpus": plan.num_cpus, "num_gpus": plan.num_gpus}
    return ClientActor.options(**options).remote(setup_ref, str(vaults), plan.homes[actor])  # type: ignore[attr-defined]


@ray.remote(max_restarts=0, max_task_retries=0)
class Driver:
    """Conducts a run in an actor.

    It starts its client actors before it imports torch itself, so that everything loads at the same time. It
    is created with max_concurrency=2, so that `stop`, `cut` and `missing` are answered while `rounds` runs.

    Args:
        setup_ref: A list that holds the reference to the setup. In a list, Ray passes on the reference and
            not the value.
        plan: Which actor trains which clients.
        path: The run's folder.
        vaults: The folder of client states.
    """

    def __init__(self, setup_ref: list[Any], plan: PlacementPlan, path: str, vaults: str) -> None:
        self._ref, self._plan, self._path, self._vaults = setup_ref[0], plan, Path(path), Path(vaults)
        self._actors = [start_actor(self._ref, plan, actor, self._vaults) for actor in range(len(plan.homes))]
        self._ready = [actor.__ray_ready__.remote() for actor in self._actors]
        self._stop = threading.Event()
        self._pool: RayPool | None = None
        configure()

    def stop(self) -> None:
        """End the run after the current round. It can be resumed."""
        self._stop.set()

    def cut(self) -> None:
        """End the run now.

        The current round is dropped, and the rounds before it are kept in a checkpoint.
        """
        self._stop.set()
        if self._pool is not None:
            self._pool.cut()

    def missing(self) -> int:
        """Return how many client actors have not started yet."""
        return len(ray.wait(self._ready, num_returns=len(self._ready), timeout=0, fetch_local=False)[1])

    def rounds(self, conduct: Conduct, resumed: bool) -> Iterator[Any]:
        """Yield the events of the run, one per round.

        `conduct` runs the rounds on a backend (experiments/run.py). It is an argument because this layer may
        not import that one.
        """
        setup: Setup = ray.get(self._ref)
        begin_training(setup.config.runtime.threads)
        from raffed.runtime.ray_backend.actor_pool import RayPool
        from raffed.runtime.ray_backend.metrics import RunMetrics

        told: RunMetrics | None = None
        pool = self._pool = RayPool(setup, self._ref, self._plan, self._vaults, self._actors, start_actor)
        with contextlib.suppress(KeyboardInterrupt):  # raised by `cut`; Ray would report it as an error
            for event in conduct(setup, self._path, resumed, pool, self._stop.is_set):
                if told is None:
                    told = RunMetrics(run_id())
                told(event)
                yield event
