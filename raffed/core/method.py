"""A federated-learning algorithm as a recipe: a frozen record of named slots filled with ingredients  (style.md §3-4).

Hooks are named after lines of the papers' algorithm boxes. What runs inside the training loop (`loss`, `logits`, `gradient`,
`private_loss`) is a dense function of tensors, so that the same line runs for one client and, under vmap, for many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from raffed.core.boundary import Private, Summable, Wire
from raffed.core.errors import UsageError
from raffed.core.frozen import Frozen
from raffed.core.params import Params, State
from raffed.core.parts import SHARE_ALL as SHARE_ALL
from raffed.core.parts import Part as Part
from raffed.core.parts import Pass as Pass
from raffed.core.parts import Split as Split
from raffed.core.parts import in_part as in_part
from raffed.core.server import Assign, Mean, ServerRule

if TYPE_CHECKING:
    from raffed.core.context import Context, Forward

@dataclass(frozen=True)
class Spec:
    """What an ingredient may know of the model and the federation."""

    num_classes: int
    feature_dim: int
    num_clients: int
    expected_visits: int  # max(int(Q·T), 1): how often a client is expected to take part in the whole run
    rounds: int = 1  # T, the rounds of the whole run
    samples: int = 1  # training samples of all clients together
    turn: int = 1  # rounds that visit every stage once: M where stages take turns, else 1


class Received(Frozen):
    """What the server got for one ingredient in one round: a sum of Summable Wires, or each Wire in client order."""

    count: int
    sum: Summable | None = None
    each: tuple[Wire, ...] = ()


class Ingredient(Frozen):
    """One idea of a paper, with its own memory on each side. Every default is the identity: no memory, no message."""

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
        """What this term adds up over the steps of shared training, without gradient; the sum is `k.noted` in `finish`."""
        return None


class Head(Ingredient):
    """Logits [B, C] → logits, before the loss of the shared objective; never at test time."""

    def logits(self, a: Tensor, k: Context) -> Tensor:
        raise NotImplementedError


class Correction(Ingredient):
    """Gradient → gradient, after clipping and before the step."""

    plain_sgd: ClassVar[bool] = True  # whether it is exact for SGD without momentum alone, as control variates are

    def gradient(self, g: Params, k: Context) -> Params:
        raise NotImplementedError

    def gradient_at(self, g: Params, w: Params, k: Context) -> Params:
        """The same for a correction that also depends on the weights w of this step."""
        return self.gradient(g, k)


Gradient = Callable[[State, int], tuple[Params, Params]]
"""(a model, the number of one of the step's batches) → (gradient of the shared objective there, BatchNorm's statistics)."""


class LocalSolver(Ingredient):
    """Local training by a rule of its own in place of SGD on the shared objective (Per-FedAvg, pFedMe).

    `step` is a dense function of tensors. Momentum and weight decay of the run do not apply; clip_norm does.
    """

    def batches(self) -> int:
        """How many mini-batches one step takes."""
        return 1

    def iterations(self, steps: int) -> int:
        """Its own steps where SGD would make `steps`; by default those that take as many mini-batches, rounded up."""
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


@dataclass(frozen=True)
class Budget:
    """Private training after the shared one: how long, what moves, and what it changes in the run's solver (None: nothing).

    steps, or epochs over the client's data if given. lr: a rate of its own, not lr_scale times the round's. shared_batches: the
    batches (and dropout, augmentation) of the first shared pass instead of its own.
    """

    steps: int = 0
    lr_scale: float = 1.0
    momentum: float | None = None
    epochs: float | None = None
    lr: float | None = None
    weight_decay: float | None = None
    part: Part = "all"
    shared_batches: bool = False


class Personal(Ingredient):
    """The client's own model, for evaluation; may train it privately, and may add a term to the shared objective.

    Training is declared (`start`, `budget`, `private_loss`), not called, so that any execution can carry it out.
    """

    def loss(self, f: Forward, k: Context) -> Tensor | None:
        """An addition to the *shared* objective (FedPHP), or None."""
        return None

    def companion(self, k: Context) -> Params | None:
        """Parameters of its own that are trained beside the shared ones in every shared pass, or None.

        Same batches, same solver, clipped apart (`clips_jointly`). They enter `loss` as `f.own`; after training they are `k.own`.
        """
        return None

    @property
    def clips_jointly(self) -> bool:
        """Whether the companion's gradient is clipped with the shared model's, by one norm of both."""
        return False

    dials: ClassVar[tuple[str, ...]] = ()  # companions that `turn` moves instead of the solver

    def turn(self, dials: Params, slope: Params, lr: float, step: Tensor) -> Params:
        """The dials after step number `step` [] of a pass, from their gradient; dense, a function of tensors."""
        return dials

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
    """What gives the personalised model between rounds, when the server's model has moved on: the memory and that model alone,
    private training from that model, or a whole round whose outcome is thrown away."""
    private_scored: ClassVar[bool] = False  # whether the privately trained model is scored beside `model`, which is another
    predicts: ClassVar[bool] = False  # whether `predict` makes the personal scores: more than one model is at work

    def predict(self, x: Tensor, k: Context) -> Tensor:
        """Logits [B, C] of the personalised model in evaluation mode."""
        return k.net(self.model(k), x)[0]


@dataclass(frozen=True)
class Method:
    """A federated-learning algorithm as a recipe. Plain data: no tensor, no device, no Ray."""

    name: str
    terms: tuple[Term, ...] = ()
    head: Head | None = None
    correction: Correction | None = None
    solver: LocalSolver | None = None  # None: SGD
    message: Ingredient | None = None  # what is sent besides or in place of the trained weights; no part of the objective
    split: Split = SHARE_ALL
    passes: tuple[Pass, ...] = (Pass(),)
    personal: Personal | None = None
    mean: Mean = field(default_factory=Mean)
    server: ServerRule = field(default_factory=Assign)
    strengths: tuple[tuple[str, float], ...] = field(default=(), compare=False)  # to be smaller where training diverges

    def __post_init__(self) -> None:
        names = [type(t).__name__ for t in self.terms]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"{self.name}: two terms of class {name}; their memories would share one slot")
        if self.solver is not None and any(type(term).note is not Term.note for term in self.terms):
            rule = type(self.solver).__name__
            raise UsageError(f"{self.name}: a term that notes something at every step needs SGD, not {rule}")
        if self.correction is not None and self.correction.plain_sgd and any(p.momentum != 0.0 for p in self.passes):
            raise UsageError(
                f"{self.name}: {type(self.correction).__name__} needs plain SGD (momentum 0 in every pass): its control "
                "variates divide the displacement by the summed learning rates, which momentum breaks"
            )

    @property
    def has_global(self) -> bool:
        """Whether the server holds a whole model; without one there is no accuracy on the global test set."""
        return self.split.personal == "none"

    @cached_property
    def keeps_state(self) -> bool:
        """Whether clients keep anything between rounds: own layers, own buffers, or an ingredient's memory."""
        own = self.split.personal != "none" or self.split.buffers == "local"
        return own or any(type(one).client_init is not Ingredient.client_init for _, one in self.ingredients())

    def ingredients(self) -> tuple[tuple[str, Ingredient], ...]:
        """(slot name, ingredient); the slot name is the key of its memory and messages everywhere."""
        return self._ingredients

    @cached_property
    def _ingredients(self) -> tuple[tuple[str, Ingredient], ...]:
        slots: tuple[tuple[str, Ingredient | None], ...] = (
            ("head", self.head), ("correction", self.correction), ("solver", self.solver), ("message", self.message),
            ("personal", self.personal),
        )  # fmt: skip
        terms = tuple((f"term-{type(term).__name__}", term) for term in self.terms)
        return *((slot, one) for slot, one in slots if one is not None), *terms


Factory = Callable[..., Method]
