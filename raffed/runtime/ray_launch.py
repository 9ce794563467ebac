"""From this process to the driver actor: place the run, watch it, and take it up again if the driver dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from raffed.core.errors import ActorsLostError, ActorStartError, RaffedError
from raffed.runtime.patience import Patience
from raffed.runtime.placement import Plan, Resources, make_plan
from raffed.runtime.process import free_memory
from raffed.runtime.ray_actor import MEND, why_not_started
from raffed.runtime.ray_driver import Conduct, Driver
from raffed.runtime.ray_nodes import beside_this_process, check_shared
from raffed.runtime.setup import Setup

POLL_SECONDS = 0.2  # how often `stop` is asked while a round is under way
log = logging.getLogger(__name__)


def launched(
    setup: Setup, path: Path, vaults: Path, resumed: bool, conduct: Conduct, stop: Callable[[], bool]
) -> Iterator[Any]:
    """The events of a run in a driver actor. A driver that dies is replaced and resumes from its checkpoint. Ray is up."""
    path, vaults = path.resolve(), vaults.resolve()  # actors on other nodes have another working folder
    plan = make_plan(setup.config, setup.partition.num_clients, available())
    if setup.method.keeps_state:
        check_shared(path, f"{setup.method.name}, whose clients keep private state,")
    reference = ray.put(setup)
    attempts = setup.config.runtime.max_restarts + 1
    for attempt in range(attempts):
        try:
            yield from _watch(plan, reference, path, vaults, resumed or attempt > 0, conduct, stop)
            return
        except RayActorError as error:
            if (why := why_not_started(error)) is not None:
                raise ActorStartError(f"the driver actor could not start: {why}{MEND}") from error
            if attempt + 1 == attempts:
                raise ActorsLostError(
                    f"the driver actor died {attempts} times ({str(error).splitlines()[0]}); `raffed resume {path}` continues"
                ) from error


def available() -> Resources:
    """Cores, GPUs and memory of the Ray cluster, or of the placement group this process is in (a trial of a sweep); memory is
    what is free on this machine if it is the only node."""
    found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    group = ray.util.get_current_placement_group()
    if group is not None:
        found |= {kind: sum(bundle.get(kind, 0.0) for bundle in group.bundle_specs) for kind in ("CPU", "GPU")}
    memory = float(found.get("memory", 0.0))
    if len(ray.nodes()) == 1:  # type: ignore[no-untyped-call]
        memory = free_memory() or memory
    return Resources(float(found.get("CPU", 1.0)), float(found.get("GPU", 0.0)), memory)


def _awaited(driver: Any, plan: Plan) -> str | None:
    """What keeps the first round from beginning: actors without a place. None where all work, or the driver has ended."""
    asked = driver.missing.remote()
    if not ray.wait([asked], timeout=1.0, fetch_local=False)[0]:
        return "the driver actor to start"
    try:
        missing: int = ray.get(asked)
    except RayError:
        return None  # what it died of is told where its events are waited for
    if not missing:
        return None
    free, each = ray.available_resources(), f"{plan.num_cpus:g} cores"  # type: ignore[no-untyped-call]
    each += f" and {plan.num_gpus:g} GPUs" if plan.num_gpus else ""
    has = f"{free.get('CPU', 0.0):g} cores" + (f" and {free.get('GPU', 0.0):g} GPUs" if plan.num_gpus else "")
    return f"{missing} of {len(plan.homes)} client actors to start, of {each} each; free are {has}"


def _watch(
    plan: Plan, reference: Any, path: Path, vaults: Path, resumed: bool, conduct: Conduct, stop: Callable[[], bool]
) -> Iterator[Any]:
    options = {"num_cpus": 0, "max_concurrency": 2, **beside_this_process()}
    driver = Driver.options(**options).remote([reference], plan, str(path), str(vaults))  # type: ignore[attr-defined]
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
        ray.kill(driver, no_restart=True)
