"""Where training finds the kept state of a client's optimiser, and where it puts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raffed.core.training.optimizer_state import OptimizerMemory, OptimizerState
from raffed.core.training.task import Views

SLOT = "optimizer"  # of `Method.optimizer`
PRIVATE = "private"  # the phase of private training; passes are "pass-0", "pass-1", …


def begun(views: Views, phase: str) -> OptimizerState | None:
    """Return the state with which a phase begins, or None if the client has none yet."""
    if SLOT not in views:
        return None
    memory = views[SLOT].mine
    assert isinstance(memory, OptimizerMemory)
    return memory.phases.get(phase)


def keep(views: Sequence[Views], ended: Sequence[Mapping[str, OptimizerState]]) -> None:
    """Put the states with which phases ended into the memories of the clients.

    Args:
        views: What the ingredients of each client know. The one of the optimiser is replaced.
        ended: For each client, phase → state.
    """
    for own, states in zip(views, ended, strict=True):
        if SLOT in own and states:
            memory = own[SLOT].mine
            own[SLOT] = own[SLOT].replace(mine=OptimizerMemory({**memory.phases, **states}))


def without_optimizer(views: Views) -> Views:
    """Return the views that an objective sees, which never reads the state of the optimiser."""
    return {slot: view for slot, view in views.items() if slot != SLOT} if SLOT in views else views
