"""The reference execution: one client after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from raffed.core.context import Forward
from raffed.core.params import Params
from raffed.core.training.network import Network
from raffed.core.training.sgd import Beside, Trained, sgd
from raffed.core.training.solver_loop import solve
from raffed.core.training.task import (
    Augmentation,
    ClientTask,
    TrainingPhase,
    add_notes,
    draws_of,
    name_of,
    notes_of,
    with_draws,
)

NO_NUMBERS: Mapping[str, Tensor] = {}


def one_by_one(
    net: Network, task: ClientTask, phases: Sequence[TrainingPhase], augmentation: Augmentation | None
) -> list[Trained]:
    """Train each client's phase on its own, one after the other."""
    return [_alone(net, task, one, augmentation) for one in phases]


def _alone(net: Network, task: ClientTask, own: TrainingPhase, augmentation: Augmentation | None) -> Trained:
    views, correct, after_step = own.views, task.correct, task.after_step
    generator = own.augment
    augment = None if augmentation is None or generator is None else lambda x: augmentation(x, generator)
    net.noise.generator = own.dropout
    noted: dict[str, Tensor] = {}

    def objective(f: Forward, step: int, drawn: Mapping[str, Tensor] = NO_NUMBERS) -> Tensor:
        if task.notes:
            add_notes(noted, notes_of(task, f, views))
        return task.objective(f, with_draws(views, drawn))

    def draw(batch: int) -> dict[str, Tensor]:
        return draws_of(task, own, batch)

    if task.rule is not None:
        return solve(
            net,
            task.rule,
            views[task.slot],
            lambda f, step: objective(f, step, draw(len(f.y))),
            own.data,
            own.batches,
            task.solver,
            augment=augment,
            rates=own.rates,
            repeats=name_of(task, [own]),
        )
    beside = None if own.own is None else Beside(own.own, task.gates, task.update_gates, task.jointly)
    live = net.leaves(task.part)

    def corrected(g: Params) -> Params:
        assert correct is not None
        return correct(g, Params({name: t.detach() for name, t in live.items()}), views)

    done = sgd(
        net,
        own.start,
        objective,
        own.data,
        own.batches,
        task.solver,
        draw=draw if task.draws else None,
        part=task.part,
        correct=None if correct is None else corrected,
        after_step=None if after_step is None else lambda w, lr: after_step(w, lr, views),
        augment=augment,
        beside=beside,
        cross_entropy_only=task.cross_entropy_only,
        rates=own.rates,
        begun=own.optimizer,
        repeats=name_of(task, [own]),
    )
    return replace(done, noted=noted)
