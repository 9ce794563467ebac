"""The ingredient that replaces SGD by a rule of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from typing_extensions import TypeVar

from raffed.core.context import Context
from raffed.core.ingredients.base import Ingredient
from raffed.core.messages import Memory, Message, ServerMemory
from raffed.core.params import Params, State
from raffed.core.record import Record

Carried = TypeVar("Carried", bound=Record, default=Any)

Gradient = Callable[[State, int], tuple[Params, Params]]
"""(model, number of one of the step's batches) → (gradient of the shared objective there, BatchNorm
statistics).
"""


class LocalSolver(Ingredient[Memory, Message, ServerMemory], Generic[Carried, Memory, Message, ServerMemory]):
    """Local training by a rule other than SGD on the shared objective, as in Per-FedAvg and pFedMe.

    It steps by itself, so the run's rate, momentum, weight decay and optimiser apply only as far as it uses
    `k.lr`, `k.momentum` and `k.weight_decay`, which it declares by `follows`. `clip_norm` and `clip_value`
    apply to every gradient that it gets. A subclass implements
    `step(carried, gradient, k)`. It gets what the rule carries, a function `gradient` (see `Gradient`), and
    the client's context `k`. It returns what the rule carries to the next step, and must be a dense function
    of tensors. A rule that only chooses where the gradient is taken carries a `Descent`, which makes the step
    of SGD.

    The first type parameter is what the rule carries: a record of tensors, by default a model (`State`).
    """

    @property
    def follows(self) -> tuple[str, ...]:
        """The settings of the run that this rule uses, by their names in the section [local].

        They may be lr, momentum, weight_decay, warmup_rounds and schedule. The last two belong to whoever
        uses `k.lr` or `k.lr_fraction`. Others are reported as overridden.
        """
        return ()

    def batches(self) -> int:
        """Return how many mini-batches one step takes."""
        return 1

    def iterations(self, steps: int) -> int:
        """Return how many steps of this rule replace a number of SGD steps.

        By default these take as many mini-batches as SGD would, rounded up to whole steps.

        Args:
            steps: Steps that SGD would make.
        """
        return -(-steps // self.batches())

    def slopes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the tensors whose gradients `step` uses. By default it uses all of them.

        The others are not computed, unless `clip_norm` needs the norm of the whole gradient.

        Args:
            names: Names of the network's tensors, in their order.
        """
        return names

    def begin(self, k: Context[Memory, ServerMemory]) -> Carried:
        """Return what the rule carries into its first step: a model, or a record of tensors.

        Args:
            k: What the client knows before training.
        """
        model: Any = k.start  # a solver that carries something else overrides this and `end`
        start: Carried = model
        return start

    def step(self, carried: Carried, gradient: Gradient, k: Context[Memory, ServerMemory]) -> Carried:
        raise NotImplementedError

    def end(self, carried: Carried) -> State:
        """Return the trained model, which is sent.

        Args:
            carried: What the last step returned. Later hooks find it in `k.carried`.
        """
        model: Any = carried
        state: State = model
        return state
