"""The kinds of ingredients that the slots of a method can hold, with their default behaviour.

What runs inside the training loop is a dense function of tensors: it has no branch, index or shape that
depends on a tensor's value. Then the same line runs for one client and, under vmap, for many clients at once.
"""

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
    """One idea of a paper, with its own memory on the client's and on the server's side.

    Every hook has a default that does nothing: no memory, no message, no change. A subclass overrides the
    hooks that it needs.
    """

    _compare = True

    def server_init(self, w: Params, spec: Spec) -> Wire | Private | None:
        """Return the server's memory before the first round.

        Args:
            w: The initial shared parameters.
            spec: Sizes of the model and of the federation.

        Returns:
            A `Wire`, which is broadcast to the clients, or a `Private` record, which is not, or None.
        """
        return None

    def client_init(self, k: Context) -> Private | None:
        """Return a client's memory at its first participation, or None.

        Args:
            k: What the client knows before training. `k.mine` is not set yet.
        """
        return None

    def finish(self, k: Context) -> tuple[Private | None, Wire | None]:
        """Return what a client keeps and what it sends after local training.

        Args:
            k: What the client knows after training. `k.state` is the trained model.

        Returns:
            (memory to keep, message to send). Either can be None.
        """
        mine: Private | None = k.mine
        return mine, None

    def outgoing(self, w: Params, k: Context) -> Params:
        """Return the parameters that are sent in place of the trained shared parameters.

        Args:
            w: The shared parameters as trained, or as an ingredient before this one changed them.
            k: What the client knows after training.

        Returns:
            Parameters with the names and shapes of `w`.
        """
        return w

    def server_step(self, s: Any, got: Received, spec: Spec) -> Wire | Private | None:
        """Return the server's memory after a round.

        Args:
            s: The server's memory before it.
            got: What the participants sent for this ingredient.
            spec: Sizes of the model and of the federation.

        Returns:
            A `Wire`, which is broadcast in the next round, or a `Private` record, or None.
        """
        same: Wire | Private | None = s
        return same


class Term(Ingredient):
    """A term that is added to the cross-entropy in the shared objective.

    A term that overrides `draw` also sets `purpose`, which names its random stream in core/seeds.py.
    """

    def loss(self, f: Forward, k: Context) -> Tensor:
        """Return the value of the term on one batch.

        Args:
            f: The forward pass, with logits [B, C] and features [B, D].
            k: What the client knows, with this term's memory in `k.mine` and the server's message in
                `k.server`.

        Returns:
            A tensor without dimensions, [].
        """
        raise NotImplementedError

    def draw(self, batch: int, k: Context, generator: torch.Generator) -> Tensor | None:
        """Return the random numbers that this term needs for one step, or None.

        Args:
            batch: Number of samples in the batch of this step.
            k: What the client knows.
            generator: The client's own random stream for this term.

        Returns:
            A tensor of any shape that depends on `batch` alone. `loss` finds it in `k.drawn`.
        """
        return None

    purpose: ClassVar[Any] = None  # set it if `draw` is overridden

    def note(self, f: Forward, k: Context) -> Tensor | None:
        """Return a tensor that is added up over the steps of shared training, or None.

        It is called without gradient. `finish` finds the sum in `k.noted`.

        Args:
            f: The forward pass of the step.
            k: What the client knows.
        """
        return None


class Head(Ingredient):
    """A change of the logits before the loss of the shared objective.

    It is not applied at test time. A subclass implements `logits(a, k)`, which gets logits `a` [B, C] and the
    client's context `k`, and returns the changed logits [B, C].
    """

    def logits(self, a: Tensor, k: Context) -> Tensor:
        raise NotImplementedError


class Correction(Ingredient):
    """A change of the gradient, after clipping and before the step.

    A subclass implements `gradient(g, k)`, or `gradient_at` if the change also depends on the weights.
    `gradient` gets the gradient `g` of the shared parameters and the client's context `k`, and returns a
    gradient with the same names and shapes.

    Attributes:
        plain_sgd: Whether the correction is exact only for SGD without momentum, as control variates are. A
            method with such a correction must have momentum 0 in every pass.
    """

    plain_sgd: ClassVar[bool] = True  # exact only for SGD without momentum

    def gradient(self, g: Params, k: Context) -> Params:
        raise NotImplementedError

    def gradient_at(self, g: Params, w: Params, k: Context) -> Params:
        """Return the changed gradient, for a correction that also depends on the weights.

        Args:
            g: The gradient of the shared parameters.
            w: The weights at which it was taken.
            k: What the client knows.
        """
        return self.gradient(g, k)


Gradient = Callable[[State, int], tuple[Params, Params]]
"""(model, number of one of the step's batches) → (gradient of the shared objective there, BatchNorm
statistics).
"""


class LocalSolver(Ingredient):
    """Local training by a rule other than SGD on the shared objective, as in Per-FedAvg and pFedMe.

    The run's momentum and weight decay do not apply to it, but `clip_norm` does. A subclass implements
    `step(carried, gradient, k)`. It gets what the rule carries, a function `gradient` (see `Gradient`), and
    the client's context `k`. It returns what the rule carries to the next step, and must be a dense function
    of tensors.
    """

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

    def begin(self, k: Context) -> Any:
        """Return what the rule carries into its first step: a model, or a record of tensors.

        Args:
            k: What the client knows before training.
        """
        return k.start

    def step(self, carried: Any, gradient: Gradient, k: Context) -> Any:
        raise NotImplementedError

    def end(self, carried: Any) -> State:
        """Return the trained model, which is sent.

        Args:
            carried: What the last step returned. Later hooks find it in `k.carried`.
        """
        state: State = carried
        return state


class Personal(Ingredient):
    """How the client's own model for evaluation is made.

    It may train that model privately, and it may add a term to the shared objective. Training is declared
    (`start`, `budget`, `private_loss`) and not called, so that any way of execution can carry it out.

    Attributes:
        gates: Names of the companion's parameters that `update_gates` moves instead of SGD. Default: none.
        between: What is needed to get the personalised model between rounds.
        private_scored: Whether the privately trained model is scored in addition to `model`, because the two
            differ.
        predicts: Whether the personal scores come from `predict`, because more than one model is involved.
    """

    def loss(self, f: Forward, k: Context) -> Tensor | None:
        """Return a term that is added to the shared objective, as in FedPHP, or None.

        Args:
            f: The forward pass on a batch.
            k: What the client knows.

        Returns:
            A tensor without dimensions, [], or None.
        """
        return None

    def companion(self, k: Context) -> Params | None:
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
            lr: The learning rate of the step.
            step: Number of the step in its pass, counted from 0, a tensor without dimensions.
        """
        return gates

    def start(self, k: Context) -> State:
        """Return the model with which private training begins. By default it is the trained shared model.

        Args:
            k: What the client knows after shared training.
        """
        return k.state

    def budget(self, k: Context) -> Budget | None:
        """Return how long private training lasts, or None if there is no private training.

        Args:
            k: What the client knows after shared training.
        """
        return None

    def private_loss(self, f: Forward, k: Context) -> Tensor:
        """Return the objective of private training on a batch, a tensor without dimensions.

        By default it is the cross-entropy.

        Args:
            f: The forward pass of the model that is trained privately.
            k: What the client knows.
        """
        return k.ce(f)

    def model(self, k: Context) -> State:
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
    private_scored: ClassVar[bool] = False  # the privately trained model differs from `model`
    predicts: ClassVar[bool] = False  # more than one model is involved

    def predict(self, x: Tensor, k: Context) -> Tensor:
        """Return logits [B, C] of the personalised model in evaluation mode.

        Args:
            x: Inputs [B, ...].
            k: What the client knows.
        """
        return k.net(self.model(k), x)[0]
