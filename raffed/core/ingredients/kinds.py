"""The kinds of ingredients by which a method changes a client's training.

Terms, heads and corrections change the shared objective or its gradient. Descent, opening and whole solvers
change its steps. `Personal` makes a client's own model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, Self

import torch
from torch import Tensor
from typing_extensions import TypeVar

from raffed.core.context import Context, Forward
from raffed.core.ingredients.base import Ingredient
from raffed.core.losses import is_stacked
from raffed.core.messages import Memory, Message, ServerMemory
from raffed.core.params import Params, Record, State
from raffed.core.parts import Budget
from raffed.core.seeds import Purpose
from raffed.core.training.optimizers import fused_step


class Term(Ingredient[Memory, Message, ServerMemory]):
    """A term that is added to the cross-entropy in the shared objective.

    A term that overrides `draw` also sets `purpose`, which names its random stream in core/seeds.py.
    """

    def loss(self, f: Forward, k: Context[Memory, ServerMemory]) -> Tensor:
        """Return the value of the term on one batch.

        Args:
            f: The forward pass, with logits [B, C] and features [B, D].
            k: What the client knows, with this term's memory in `k.mine` and the server's message in
                `k.server`.

        Returns:
            A tensor without dimensions, [].
        """
        raise NotImplementedError

    def draw(self, batch: int, k: Context[Memory, ServerMemory], generator: torch.Generator) -> Tensor | None:
        """Return the random numbers that this term needs for one step, or None.

        Args:
            batch: Number of samples in the batch of this step.
            k: What the client knows.
            generator: The client's own random stream for this term.

        Returns:
            A tensor of any shape that depends on `batch` alone. `loss` finds it in `k.drawn`.
        """
        return None

    purpose: ClassVar[Purpose | None] = None  # set it if `draw` is overridden

    def note(self, f: Forward, k: Context[Memory, ServerMemory]) -> Tensor | None:
        """Return a tensor that is added up over the steps of shared training, or None.

        It is called without gradient. `finish` finds the sum in `k.noted`.

        Args:
            f: The forward pass of the step.
            k: What the client knows.
        """
        return None


class Head(Ingredient[Memory, Message, ServerMemory]):
    """A change of the logits before the loss of the shared objective, or another loss in its place.

    It is not applied at test time. A subclass implements `logits(a, k)`, which gets logits `a` [B, C] and the
    client's context `k`, and returns the changed logits [B, C]. Or it implements `loss`.
    """

    @property
    def smooths(self) -> bool:
        """Whether label smoothing applies to its logits. It cannot if a logit may be −∞."""
        return True

    def logits(self, a: Tensor, k: Context[Memory, ServerMemory]) -> Tensor:
        raise NotImplementedError

    def loss(self, f: Forward, k: Context[Memory, ServerMemory]) -> Tensor:
        """Return the loss of a batch, to which the terms are added.

        By default it is the cross-entropy of the changed logits. A head that overrides this has a loss of its
        own, and a run of it cannot have another (`--loss`).

        Args:
            f: The forward pass, with logits [B, C] and features [B, D].
            k: What the client knows.

        Returns:
            A tensor without dimensions, [].
        """
        return k.loss_of(self.logits(f.logits, k), f.y, self.smooths)


class UnchangedLogits(Head):
    """The head of a run with a loss of its own whose method has no head: the logits stay as they are."""

    def logits(self, a: Tensor, k: Context) -> Tensor:
        return a


class Correction(Ingredient[Memory, Message, ServerMemory]):
    """A change of the steps of shared training, by their gradient or by their result.

    A subclass implements `gradient(g, k)`, or `gradient_at` if the change also depends on the weights. It
    gets the gradient `g` of the shared parameters, after clipping, and the client's context `k`, and returns
    a gradient with the same names and shapes, along which the optimiser steps. Or the subclass implements
    `after_step`, which moves the weights once the optimiser has stepped.

    Attributes:
        plain_sgd: Whether the correction is exact only for SGD without momentum, as control variates are. A
            method with such a correction must have momentum 0 in every pass.
    """

    plain_sgd: ClassVar[bool] = True  # exact only for SGD without momentum

    def gradient(self, g: Params, k: Context[Memory, ServerMemory]) -> Params:
        return g

    def gradient_at(self, g: Params, w: Params, k: Context[Memory, ServerMemory]) -> Params:
        """Return the changed gradient, for a correction that also depends on the weights.

        Args:
            g: The gradient of the shared parameters.
            w: The weights at which it was taken.
            k: What the client knows.
        """
        return self.gradient(g, k)

    def after_step(self, w: Params, lr: float | Tensor, k: Context[Memory, ServerMemory]) -> Params:
        """Return the weights after a step, for a correction that the optimiser must not take in.

        Momentum repeats what it takes in during later steps, and adaptive optimisers scale it. By default
        the weights stay where the optimiser put them.

        Args:
            w: The shared parameters after the optimiser's step.
            lr: The learning rate η of this step: a number, or a tensor without dimensions.
            k: What the client knows.

        Returns:
            Weights with the same names and shapes.
        """
        return w


# The step of SGD as a function, for local solvers that choose where the gradient is taken.


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


# The ingredient that replaces SGD by a rule of its own.


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


# The ingredient that changes the downloaded model before a client's passes.


class Opening(LocalSolver[Carried, Memory, Message, ServerMemory]):
    """What happens after the download is joined with the client's own layers, and before the passes.

    It steps like a local solver: `begin`, `step` for each mini-batch, and `end`, which returns the model with
    which the passes begin. Without epochs, `end(begin(k))` is that model. All other ingredients find it in
    `k.start` and `k.w0`, and `finish` finds in `k.carried` what the opening ended with. Between rounds a
    client's model is the one after the opening, of which nothing is kept.

    Its steps belong to none of the passes, so they are not counted in `k.steps`, and stragglers make all of
    them.
    """

    def epochs(self, k: Context[Memory, ServerMemory]) -> float:
        """Return the number of passes over `samples`. By default it is 0.

        Args:
            k: What the client knows before training.
        """
        return 0.0

    def samples(self, n: int, generator: torch.Generator) -> Tensor:
        """Return the numbers of the training samples on which it trains. By default it is all of them.

        Args:
            n: Training samples of the client.
            generator: The client's own random stream for its opening.

        Returns:
            Numbers [m], int64, from 0 to n − 1.
        """
        return torch.arange(n)

    def loss(self, f: Forward, k: Context[Memory, ServerMemory]) -> Tensor:
        """Return the objective whose gradient `step` gets, a tensor without dimensions.

        By default it is the cross-entropy.

        Args:
            f: The forward pass on a batch.
            k: What the client knows, with the downloaded model in `k.start`.
        """
        return k.ce(f)


def in_words(name: str) -> str:
    """Return the name of a class in small letters.

    >>> in_words("IntraClass")
    'intra_class'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().lstrip("_")


class Personal(Ingredient[Memory, Message, ServerMemory]):
    """How the client's own model for evaluation is made.

    It may train that model privately, and it may add a term to the shared objective. Training is declared
    (`start`, `budget`, `private_loss`) and not called, so that any way of execution can carry it out.

    Attributes:
        gates: Names of the companion's parameters that `update_gates` moves instead of SGD. Default: none.
        between: What is needed to get the personalised model between rounds.
        private_scored: Whether the privately trained model is scored in addition to `model`, because the two
            differ.
        plain_sgd: Whether its budget sets the learning rate itself and trains by plain SGD (momentum and
            weight decay 0), whatever the run says.
        predicts: Whether the personal scores come from `predict`, because more than one model is involved.
        trains_alone: Whether the shared model is trained to classify by itself. It is not if it is only
            trained within a mixture with a private model.
        apart: Whether `loss` gives the shared model no gradient, as in APFL.
    """

    def loss(self, f: Forward, k: Context[Memory, ServerMemory]) -> Tensor | None:
        """Return a term that is added to the shared objective, as in FedPHP, or None.

        Args:
            f: The forward pass on a batch.
            k: What the client knows.

        Returns:
            A tensor without dimensions, [], or None.
        """
        return None

    def loss_parts(self, f: Forward, k: Context[Memory, ServerMemory]) -> Mapping[str, Tensor]:
        """Return the parts of `loss` by name, each with its weight, whose strengths are measured one by one.

        By default there is one part, called after the class. An ingredient whose loss is a sum of several
        terms overrides this. Names have small letters, digits and _.

        Args:
            f: The forward pass on a batch.
            k: What the client knows.
        """
        whole = self.loss(f, k)
        return {} if whole is None else {in_words(type(self).__name__): whole}

    def companion(self, k: Context[Memory, ServerMemory]) -> Params | None:
        """Return parameters that are trained together with the shared ones in every shared pass, or None.

        They see the same batches and are stepped by the same solver. They are clipped separately, unless
        `clips_jointly` says otherwise. `loss` finds them in `f.own`, and later hooks find the trained ones in
        `k.own`.

        Args:
            k: What the client knows before training.
        """
        return None

    @property
    def clips_jointly(self) -> bool:
        """Whether the companion's gradient and the shared model's are clipped by one norm of both."""
        return False

    gates: ClassVar[tuple[str, ...]] = ()  # parameters of the companion

    def update_gates(self, gates: Params, slope: Params, lr: float, step: Tensor) -> Params:
        """Return the gates after one step. It must be a dense function of tensors.

        Args:
            gates: The parameters named in `self.gates`, before the step.
            slope: Their gradient.
            lr: The learning rate of the step. In a stack whose clients have different rates it is a tensor
                without dimensions.
            step: Number of the step in its pass, counted from 0, a tensor without dimensions.
        """
        return gates

    def start(self, k: Context[Memory, ServerMemory]) -> State:
        """Return the model with which private training begins. By default it is the trained shared model.

        Args:
            k: What the client knows after shared training.
        """
        return k.state

    def budget(self, k: Context[Memory, ServerMemory]) -> Budget | None:
        """Return how long private training lasts, or None if there is no private training.

        Args:
            k: What the client knows after shared training.
        """
        return None

    def private_loss(self, f: Forward, k: Context[Memory, ServerMemory]) -> Tensor:
        """Return the objective of private training on a batch, a tensor without dimensions.

        By default it is the cross-entropy.

        Args:
            f: The forward pass of the model that is trained privately.
            k: What the client knows.
        """
        return k.ce(f)

    def model(self, k: Context[Memory, ServerMemory]) -> State:
        """Return the personalised model.

        Args:
            k: What the client knows, with this ingredient's memory after `finish` in `k.mine`.
        """
        raise NotImplementedError

    between: ClassVar[Literal["memory", "private", "round"]] = "memory"
    """What is needed to get the personalised model between rounds, when the server's model has moved on.

    "memory": the client's memory and that model are enough. "private": private training must be repeated from
    that model. "round": a whole round must be computed, and its result is then discarded.
    """
    plain_sgd: ClassVar[bool] = False
    private_scored: ClassVar[bool] = False  # the privately trained model differs from `model`
    predicts: ClassVar[bool] = False  # more than one model is involved
    trains_alone: ClassVar[bool] = True  # the shared model learns to classify without a private one
    apart: ClassVar[bool] = False  # `loss` gives the shared model no gradient

    @property
    def acts_last(self) -> bool:
        """Whether the personal model is finished by the run's last round only, as by fine-tuning."""
        return False

    def predict(self, x: Tensor, k: Context[Memory, ServerMemory]) -> Tensor:
        """Return logits [B, C] of the personalised model in evaluation mode.

        Args:
            x: Inputs [B, ...].
            k: What the client knows.
        """
        return k.net(self.model(k), x)[0]
