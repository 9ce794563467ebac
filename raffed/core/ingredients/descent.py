"""The step of SGD as a function, for local solvers that choose where the gradient is taken."""

from __future__ import annotations

from typing import Self

from raffed.core.context import Context
from raffed.core.losses import is_stacked
from raffed.core.params import Params, State
from raffed.core.record import Record
from raffed.core.training.step_arithmetic import fused_step

SGD_SETTINGS = ("lr", "momentum", "weight_decay", "warmup_rounds", "schedule")
"""The settings of the run that `Descent.along` uses (`LocalSolver.follows`)."""


class Descent(Record):
    """A model that is trained by SGD, and its velocity."""

    model: State
    velocity: Params

    @classmethod
    def begun(cls, model: State) -> Self:
        """Return the model with the velocity 0, as every training phase begins."""
        return cls(model, model.w.zeros())

    def along(self, slope: Params, b: Params, k: Context) -> Self:
        """Return v ← ρ v + g + wd·w and w ← w − η v, with the run's η, ρ and wd in this step.

        A client that is trained alone gets the bits that SGD would give. A solver that uses this sets
        `needs_sgd`, so that a run with another optimiser has SGD's momentum.

        Args:
            slope: The gradient g.
            b: BatchNorm statistics of the next model.
            k: What the client knows in this step.
        """
        w = self.model.w
        if is_stacked(next(iter(w.tensors.values()))):
            moved = slope + w * k.weight_decay if k.weight_decay else slope
            velocity = self.velocity * k.momentum + moved if k.momentum else self.velocity
            return type(self)(State(w - (velocity if k.momentum else moved) * k.lr, b), velocity)
        after, velocity = w.clone(), self.velocity.clone() if k.momentum else self.velocity
        fused_step(
            list(after.tensors.values()),
            list(slope.tensors.values()),
            list(velocity.tensors.values()) if k.momentum else [],
            k.lr,
            k.momentum,
            k.weight_decay,
        )
        return type(self)(State(after, b), velocity)


__all__ = ["SGD_SETTINGS", "Descent"]
