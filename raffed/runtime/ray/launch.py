"""Start the driver actor from this process: place the run, watch it, and continue it if the driver dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray import ObjectRef
from ray.exceptions import RayActorError, RayError, RayTaskError

from raffed.budget import free_memory
from raffed.errors import ActorsLostError, ActorStartError, RaffedError, RayLostError
from raffed.runtime.placement import PlacementPlan, Resources, make_plan
from raffed.runtime.ray.client_actor import MEND, why_not_started
from raffed.runtime.ray.driver import Conduct, Driver
from raffed.runtime.ray.nodes import beside_this_process, check_shared, versions_to_send
from raffed.runtime.ray.own_ray import Patience, lost
from raffed.runtime.setup import Setup

E = TypeVar("E")  # the event of a round
POLL_SECONDS = 0.2  # seconds between two calls of `stop` during a round
log = logging.getLogger(__name__)


def launched(
    setup: Setup,
    path: Path,
    states_folder: Path,
    resumed: bool,
    conduct: Conduct[E],
    stop: Callable[[], bool],
) -> Iterator[E]:
    """Yield the events of a run in a driver actor. Ray must be running.

    A driver that dies is replaced, and resumes from its checkpoint. The events end early and without an error
    if `stop` asks for it.

    Raises:
        RayLostError: A process that Ray cannot do without has died.
        ActorsLostError: Actors kept dying.
        ActorStartError: An actor could not start.
    """
    # Actors on other nodes have a different working folder
    path, states_folder = path.resolve(), states_folder.resolve()
    plan = plan_of(setup, path)
    reference = ray.put(setup)
    attempts = setup.config.runtime.max_restarts + 1
    for attempt in range(attempts):
        try:
            yield from _watch(plan, reference, path, states_folder, resumed or attempt > 0, conduct, stop)
            return
        except RayActorError as error:
            if stop():  # the signal has reached the driver as well
                return
            _check_ray(path)
            if (why := why_not_started(error)) is not None:
                raise ActorStartError(f"the driver actor could not start: {why}{MEND}") from error
            if attempt + 1 == attempts:
                raise ActorsLostError(
                    f"the driver actor died {attempts} times ({str(error).splitlines()[0]}); `raffed resume "
                    f"{path}` continues"
                ) from error
            log.warning(
                "the driver actor was lost and is replaced (replacement %d of %d); rounds after the last "
                "checkpoint are computed again",
                attempt + 1,
                attempts - 1,
            )


def plan_of(setup: Setup, path: Path) -> PlacementPlan:
    """Return where the clients of a run live. Ray must be running.

    Raises:
        UsageError: What the run asks for does not fit the cluster, or its nodes do not see the run's folder.
    """
    if setup.method.keeps_state:
        check_shared(path, f"{setup.method.name}, whose clients keep private state,")
    return make_plan(setup.config, setup.partition.num_clients, available())


def _check_ray(path: Path) -> None:
    """Raise a RayLostError if this process's own Ray has died. The run in `path` can go on later."""
    if (what := lost()) is not None:
        raise RayLostError(f"{what} died, and the run with it; `raffed resume {path}` continues it")


def available() -> Resources:
    """Return cores, GPUs and memory of the Ray cluster.

    In a placement group (a trial of a sweep), only the group's resources count.

    If the cluster has only one node, memory is what is free on this machine.
    """
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    group = ray.util.get_current_placement_group()
    if group is not None:
        for kind in ("CPU", "GPU"):
            resources[kind] = sum(bundle.get(kind, 0.0) for bundle in group.bundle_specs)
    memory = float(resources.get("memory", 0.0))
    if len(ray.nodes()) == 1:  # type: ignore[no-untyped-call]
        memory = free_memory() or memory
    return Resources(float(resources.get("CPU", 1.0)), float(resources.get("GPU", 0.0)), memory)


def _awaited(driver: Any, plan: PlacementPlan) -> str | None:
    """Return in words what keeps the first round from beginning.

    Returns None if all actors work, or if the driver has ended.
    """
    asked = driver.starting.remote()
    if not ray.wait([asked], timeout=1.0, fetch_local=False)[0]:
        return "the driver actor to start"
    try:
        now = ray.get(asked)
    except RayError:
        return None  # the cause is reported by whoever waits for its events
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    if now.ready == now.total:
        return None
    each, has = f"{plan.num_cpus:g} cores", f"{free.get('CPU', 0.0):g} cores"
    if plan.num_gpus:
        each += f" and {plan.num_gpus:g} GPUs"
        has += f" and {free.get('GPU', 0.0):g} GPUs"
    return (
        f"{now.total - now.ready} of {now.total} client actors, of {each} each, to find room or to load; "
        f"free are {has}"
    )


def _watch(
    plan: PlacementPlan,
    reference: ObjectRef[Setup],
    path: Path,
    states_folder: Path,
    resumed: bool,
    conduct: Conduct[E],
    stop: Callable[[], bool],
) -> Iterator[E]:
    options = {"num_cpus": 0, "max_concurrency": 2, **beside_this_process()}
    folders = str(path), str(states_folder)
    driver = Driver.options(**options).remote([reference], plan, *folders, versions_to_send())  # type: ignore[attr-defined]
    events = driver.rounds.options(num_returns="streaming").remote(conduct, resumed)
    asked, begun, patience = False, False, Patience()
    try:
        while True:
            ready, _ = ray.wait([events], timeout=POLL_SECONDS, fetch_local=False)
            if not begun and (waited := patience.due()) and (what := _awaited(driver, plan)):
                log.warning("waiting for %s, %s", what, waited)
            if not asked and stop():
                driver.stop.remote()
                asked = True
            if lost() is not None:
                if asked:  # the signal has reached Ray as well
                    return
                _check_ray(path)
            if ready:
                begun = True
                yield ray.get(next(events))
    except StopIteration:
        return
    except RayTaskError as error:
        if isinstance(error.cause, RaffedError):
            raise error.cause from error
        raise
    finally:
        if lost() is None:
            ray.kill(driver, no_restart=True)
