"""The driver actor.

It owns the client actors, holds the server's state, aggregates, and writes the run's files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import ray

from raffed.runtime.bits import begin_bits
from raffed.runtime.machine import begin_training
from raffed.runtime.ray.client_actor import ClientActor
from raffed.runtime.ray.nodes import check_same
from raffed.runtime.ray.transport import Call, RayCalls

if TYPE_CHECKING:
    from ray import ObjectRef

    from raffed.runtime.placement import PlacementPlan
    from raffed.runtime.ray.actor_pool import RayPool
    from raffed.runtime.ray.nodes import CodeVersions
    from raffed.runtime.ray.transport import Handle
    from raffed.runtime.setup import Setup

E = TypeVar("E")  # the event of a round, whose class is in a higher layer
# Runs the rounds: the setup, the run's folder, whether it is resumed, the backend, and whether to stop
Conduct = Callable[["Setup", Path, bool, "RayPool", Callable[[], bool]], Iterator[E]]


class ActorsStarting(NamedTuple):
    """How many of the client actors are ready."""

    ready: int
    total: int


def start_actor(
    setup_ref: ObjectRef[Setup],
    plan: PlacementPlan,
    actor: int,
    states_folder: Path,
    sent: CodeVersions | None = None,
) -> Handle:
    """Create client actor number `actor` of the plan, which must have the code `sent`.

    It returns at once, and the actor loads in the background.
    """
    options = {"num_cpus": plan.num_cpus, "num_gpus": plan.num_gpus}
    made: Handle = ClientActor.options(**options).remote(  # type: ignore[attr-defined]
        [setup_ref], str(states_folder), plan.homes[actor], sent
    )
    return made


@ray.remote(max_restarts=0, max_task_retries=0)
class Driver:
    """Conducts a run in an actor.

    It starts its client actors before it imports torch itself, so that everything loads at the same time. It
    is created with max_concurrency=2, so that `stop` and `starting` are answered while `rounds` runs.

    Args:
        setup_ref: A list that holds the reference to the setup. In a list, Ray passes on the reference and
            not the value.
        plan: Which actor trains which clients.
        path: The run's folder.
        states_folder: The folder of client states.
        sent: The code of the command, which this actor and its client actors must have; None if it cannot
            differ.
    """

    def __init__(
        self,
        setup_ref: list[ObjectRef[Setup]],
        plan: PlacementPlan,
        path: str,
        states_folder: str,
        sent: CodeVersions | None = None,
    ) -> None:
        check_same(sent)
        self._start = partial(start_actor, sent=sent)
        self._ref, self._plan, self._path, self._states_folder = (
            setup_ref[0],
            plan,
            Path(path),
            Path(states_folder),
        )
        self._actors = [
            self._start(self._ref, plan, actor, self._states_folder) for actor in range(len(plan.homes))
        ]
        through_ray = RayCalls(dict(enumerate(self._actors)))
        loaded = Call[bool]("__ray_ready__")  # a method of Ray's
        self._ready = [through_ray.call(actor, loaded).reference for actor in range(len(self._actors))]
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the run after the current round. It can be resumed."""
        self._stop.set()

    def starting(self) -> ActorsStarting:
        """Return how many client actors are ready."""
        total = len(self._ready)
        ready = len(ray.wait(self._ready, num_returns=total, timeout=0, fetch_local=False)[0])
        return ActorsStarting(ready, total)

    def rounds(self, conduct: Conduct[E], resumed: bool) -> Iterator[E]:
        """Yield the events of the run, one per round.

        `conduct` runs the rounds on a backend (runs/run.py). It is an argument because this layer may
        not import that one.
        """
        setup: Setup = ray.get(self._ref)
        begin_training(setup.config.runtime.threads)
        begin_bits(setup.config)
        from raffed.runtime.ray.actor_pool import RayPool

        pool = RayPool(setup, self._ref, self._plan, self._states_folder, self._actors, self._start)
        yield from conduct(setup, self._path, resumed, pool, self._stop.is_set)
