"""The kinds of ingredients that a method's slots can hold, with their default behaviour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from raffed.core.context import Context, Forward, Received, Spec
from raffed.core.messages import Private, Wire
from raffed.core.params import Params, State
from raffed.core.parts import Budget
from raffed.core.record import Record


class Ingredient(Record):
    """One idea of a paper, with its own memory on each side. Every default is the identity: no memory, no
    message.
    """

    _compare = True

    def server_init(self, w: Params, spec: Spec) -> Wire | Private | None:
        """The server's memory before round 0; a Wire is broadcast, a Private is not."""
        return None

    def client_init(self, k: Context) -> Private | None:
        """A client's memory at its first participation."""
        return None

    def finish(self, k: Context) -> tuple[Private | None, Wire | None]:
        """After local training: (memory to keep, message to send)."""
        mine: Private | None = k.mine
        return mine, None

    def outgoing(self, w: Params, k: Context) -> Params:
        """What is sent in place of the trained shared parameters."""
        return w

    def server_step(self, s: Any, got: Received, spec: Spec) -> Wire | Private | None:
        """The server's memory after a round, from its own and what the participants sent."""
        same: Wire | Private | None = s
        return same


class Term(Ingredient):
    """Added to the cross-entropy of the shared objective."""

    def loss(self, f: Forward, k: Context) -> Tensor:
        """A 0-d tensor."""
        raise NotImplementedError

    def draw(self, batch: int, k: Context, generator: torch.Generator) -> Tensor | None:
        """Random numbers for one step with this batch size, if this term needs any; arrives as `k.drawn`."""
        return None

    purpose: ClassVar[Any] = None  # a Purpose of core/seeds.py if `draw` is used

    def note(self, f: Forward, k: Context) -> Tensor | None:
        """What this term adds up over the steps of shared training, without gradient; the sum is
        `k.noted` in `finish`.
        """
        return None


class Head(Ingredient):
    """Logits [B, C] → logits, before the loss of the shared objective; never at test time."""

    def logits(self, a: Tensor, k: Context) -> Tensor:
        raise NotImplementedError


class Correction(Ingredient):
    """Gradient → gradient, after clipping and before the step."""

    plain_sgd: ClassVar[bool] = (
        True  # whether it is exact for SGD without momentum alone, as control variates are
    )

    def gradient(self, g: Params, k: Context) -> Params:
        raise NotImplementedError

    def gradient_at(self, g: Params, w: Params, k: Context) -> Params:
        """The same for a correction that also depends on the weights w of this step."""
        return self.gradient(g, k)


Gradient = Callable[[State, int], tuple[Params, Params]]
"""(a model, the number of one of the step's batches) → (gradient of the shared objective there,
BatchNorm's statistics).
"""


class LocalSolver(Ingredient):
    """Local training by a rule of its own in place of SGD on the shared objective (Per-FedAvg, pFedMe).

    `step` is a dense function of tensors. Momentum and weight decay of the run do not apply; clip_norm does.
    """

    def batches(self) -> int:
        """How many mini-batches one step takes."""
        return 1

    def iterations(self, steps: int) -> int:
        """Its own steps where SGD would make `steps`; by default those that take as many mini-batches,
        rounded up.
        """
        return -(-steps // self.batches())

    def begin(self, k: Context) -> Any:
        """What the rule carries from step to step: a model, or a record of tensors."""
        return k.start

    def step(self, carried: Any, gradient: Gradient, k: Context) -> Any:
        raise NotImplementedError

    def end(self, carried: Any) -> State:
        """The trained model, which is sent; what was carried is `k.carried`."""
        state: State = carried
        return state


class Personal(Ingredient):
    """The client's own model, for evaluation; may train it privately, and may add a term to the shared
    objective.

        Training is declared (`start`, `budget`, `private_loss`), not called, so that any execution can carry
        it out.
    """

    def loss(self, f: Forward, k: Context) -> Tensor | None:
        """An addition to the *shared* objective (FedPHP), or None."""
        return None

    def companion(self, k: Context) -> Params | None:
        """Parameters of its own that are trained beside the shared ones in every shared pass, or None.

        Same batches, same solver, clipped apart (`clips_jointly`). They enter `loss` as `f.own`; after
        training they are `k.own`.
        """
        return None

    @property
    def clips_jointly(self) -> bool:
        """Whether the companion's gradient is clipped with the shared model's, by one norm of both."""
        return False

    gates: ClassVar[tuple[str, ...]] = ()  # companions that `update_gates` moves instead of the solver

    def update_gates(self, gates: Params, slope: Params, lr: float, step: Tensor) -> Params:
        """The gates after step number `step` [] of a pass, from their gradient; dense, a function of
        tensors.
        """
        return gates

    def start(self, k: Context) -> State:
        """Where private training begins."""
        return k.state

    def budget(self, k: Context) -> Budget | None:
        """How long private training lasts; None: there is none."""
        return None

    def private_loss(self, f: Forward, k: Context) -> Tensor:
        """The objective of private training; plain cross-entropy unless said otherwise."""
        return k.ce(f)

    def model(self, k: Context) -> State:
        """The personalised model, given this ingredient's memory after `finish` in `k.mine`."""
        raise NotImplementedError

    between: ClassVar[Literal["memory", "private", "round"]] = "memory"
    """What gives the personalised model between rounds, when the server's model has moved on: the memory and
    that model alone, private training from that model, or a whole round whose outcome is thrown away.
    """
    private_scored: ClassVar[bool] = (
        False  # whether the privately trained model is scored beside `model`, which is another
    )
    predicts: ClassVar[bool] = (
        False  # whether `predict` makes the personal scores: more than one model is at work
    )

    def predict(self, x: Tensor, k: Context) -> Tensor:
        """Logits [B, C] of the personalised model in evaluation mode."""
        return k.net(self.model(k), x)[0]
