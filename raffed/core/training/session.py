"""What stays the same from round to round while clients train, and which clients take part in one round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raffed.config.training import Local
from raffed.config.validation import Value
from raffed.core.context import ClientData, Spec
from raffed.core.messages import ClientState
from raffed.core.parts import Pass
from raffed.core.training.network import Network
from raffed.core.training.optimizers import make_optimizer
from raffed.core.training.sgd import SgdPhase, solve
from raffed.core.training.task import Augmentation, ClientTask, Execute, Solver, Trained, TrainingPhase

# The reference execution: one client after the other.


def one_by_one(
    net: Network, task: ClientTask, phases: Sequence[TrainingPhase], augmentation: Augmentation | None
) -> list[Trained]:
    """Train each client's phase on its own, one after the other."""
    ended = []
    for phase in phases:
        alone = SgdPhase(net, task, phase, augmentation) if task.rule is None else None
        ended.append(solve(net, task, phase, augmentation) if alone is None else alone.run())
    return ended


@dataclass(frozen=True)
class TrainingSession:
    """What does not change from round to round.

    Attributes:
        net: The network.
        local: How clients train.
        seed: Seed of the run.
        spec: Sizes of the model and of the federation.
        augment: The augmentation, or None.
        execute: How training phases are executed: one by one, or stacked.
    """

    net: Network
    local: Local
    seed: int
    spec: Spec
    augment: Augmentation | None = None
    execute: Execute = one_by_one


@dataclass(frozen=True)
class Participant:
    """A client that takes part in a round.

    Attributes:
        client: Number of the client.
        client_state: Its client state, or None before its first participation.
        data: Its training samples.
        completed_fraction: Fraction of its steps of shared training that it makes, in (0, 1].
    """

    client: int
    client_state: ClientState | None
    data: ClientData
    completed_fraction: float = 1.0

    def steps(self, local: Local, epochs: float | None) -> int:
        """Return its number of steps in a shared pass. A straggler makes the first of them, at least one."""
        return completed_steps(local.steps(self.data.n, epochs), self.completed_fraction)


def completed_steps(steps: int, fraction: float) -> int:
    """Return how many steps of a pass a client makes that makes a fraction of them, at least one."""
    return (steps if fraction == 1.0 else math.ceil(round(fraction * steps, 6))) or 1


def solver_for(local: Local, one: Pass, lr: float, sgd: bool = False) -> Solver:
    """Return the settings of the optimiser in a phase.

    Args:
        local: The run's settings.
        one: What the phase overrides. A momentum there means SGD with this momentum.
        lr: Learning rate.
        sgd: Whether the phase needs SGD whose velocity begins at zero, whatever optimiser the run has.
    """
    keeps = local.keep_optimizer and not sgd
    sgd = sgd or one.momentum is not None
    other = sgd and local.optimizer != "sgd"
    name: str = "sgd" if other else local.optimizer
    given: Mapping[str, Value] = {} if other else local.optimizer_args
    momentum = (local.momentum if name == "sgd" else 0.0) if one.momentum is None else one.momentum
    decay = local.weight_decay if one.weight_decay is None else one.weight_decay
    optimizer = make_optimizer(name, given, momentum)
    return Solver(
        lr,
        momentum,
        decay,
        local.clip_norm,
        local.clip_value,
        optimizer,
        local.label_smoothing,
        keeps and bool(optimizer.moments),
    )
