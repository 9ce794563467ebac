"""Settings of the optimiser in one training phase, and the weights of one client that it steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from raffed.core.training.optimizer_state import OptimizerState
from raffed.core.training.optimizers import Optimizer, SgdRule


@dataclass(frozen=True)
class Solver:
    """Settings of the optimiser in one training phase.

    Attributes:
        lr: Learning rate η of its steps, where a phase does not have a rate for each step.
        momentum: Momentum ρ of SGD. The velocity is zero at the start of the phase. There is no dampening.
        weight_decay: Weight decay wd.
        clip_norm: Largest norm of a gradient, or None.
        clip_value: Largest absolute value of a number of a gradient, or None. It is applied first.
        optimizer: The optimiser, or None for SGD with this momentum.
        label_smoothing: ε of the cross-entropy, in [0, 1].
        kept: Whether the state of the optimiser is returned at the end.
    """

    lr: float
    momentum: float
    weight_decay: float
    clip_norm: float | None = None
    clip_value: float | None = None
    optimizer: Optimizer | None = None
    label_smoothing: float = 0.0
    kept: bool = False

    @property
    def rule(self) -> Optimizer:
        """The optimiser."""
        return SgdRule(self.momentum) if self.optimizer is None else self.optimizer


class Stepper:
    """The weights of one client with the optimiser that steps them.

    Args:
        solver: Settings of the optimiser.
        weights: The weights, which are changed in place.
        names: A name for each of them.
        begun: State of the optimiser from which it goes on, or None to begin anew.
        moments: Moments of zero to begin with, which are changed in place, or None to make some.
    """

    def __init__(
        self,
        solver: Solver,
        weights: list[Tensor],
        names: Sequence[str],
        begun: OptimizerState | None,
        moments: Mapping[str, list[Tensor]] | None = None,
    ) -> None:
        self._rule, self._decay = solver.rule, solver.weight_decay
        self._weights, self._names = weights, names
        self._count = 0 if begun is None else int(begun.count)
        if begun is not None:
            self._moments = begun.loaded(self._rule.moments, names)
        else:
            self._moments = self._rule.begin(weights) if moments is None else dict(moments)

    def begin(self) -> None:
        """Count a step. It is done before every step, because a recorded one does not come here again."""
        self._count += 1

    def step(self, grads: list[Tensor], lr: float) -> None:
        """Move the weights along the gradients at the rate `lr`, after `begin`."""
        self._rule.step(
            self._weights, grads, self._moments, lr, self._decay, self._count, fresh=self._count == 1
        )

    def state(self) -> OptimizerState:
        """Return the state of the optimiser after the steps so far."""
        return OptimizerState.of(self._count, self._names, self._moments)
