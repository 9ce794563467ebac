"""Find out whether the cluster has room for a client actor that replaces a lost one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ray._private import state

if TYPE_CHECKING:
    from raffed.runtime.placement import PlacementPlan
    from raffed.runtime.ray_backend.transport import Handle

# Seconds for which a replacement waits for room before the other actors take over its clients, and before a
# run ends whose actors cannot do that. A cluster that grows brings a new node in minutes.
ROOM_SECONDS, ROOM_SECONDS_ALONE = 30.0, 600.0
POLL_SECONDS = 0.1


def is_placed(actor: Handle, plan: PlacementPlan) -> bool:
    """Wait until an actor has a process, and return whether it got one.

    It returns False after a while in which no node had enough free cores and GPUs, as when the node of the
    lost actor is gone and the others are full. An actor that could not start counts as placed: its next
    call reports why.
    """
    patience = ROOM_SECONDS_ALONE if plan.sticky else ROOM_SECONDS
    until = time.monotonic() + patience
    while not _begun(actor):
        if some_node_has_room(plan):
            until = time.monotonic() + patience
        elif time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _begun(actor: Handle) -> bool:
    # Ray gives an actor a process, and so a Pid, when its cores are free
    about = state.actors(actor._actor_id.hex())
    return bool(about.get("Pid", 0) > 0 or about.get("State") == "DEAD")


def some_node_has_room(plan: PlacementPlan) -> bool:
    """Return whether a client actor of the plan could be started now."""
    by_node: Callable[[], dict[str, dict[str, float]]] = state.available_resources_per_node
    return any(
        free.get("CPU", 0.0) >= plan.num_cpus and free.get("GPU", 0.0) >= plan.num_gpus
        for free in by_node().values()
    )
