"""The reference execution: one client after the other."""

from __future__ import annotations

from collections.abc import Sequence

from raffed.core.training.network import Network
from raffed.core.training.sgd import SgdPhase
from raffed.core.training.solver_loop import solve
from raffed.core.training.task import Augmentation, ClientTask, Trained, TrainingPhase


def one_by_one(
    net: Network, task: ClientTask, phases: Sequence[TrainingPhase], augmentation: Augmentation | None
) -> list[Trained]:
    """Train each client's phase on its own, one after the other."""
    ended = []
    for phase in phases:
        alone = SgdPhase(net, task, phase, augmentation) if task.rule is None else None
        ended.append(solve(net, task, phase, augmentation) if alone is None else alone.run())
    return ended
