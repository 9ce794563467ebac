"""The ingredient that makes a client's own model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.ingredients.base import Ingredient
from raffed.core.messages import Memory, Message, ServerMemory
from raffed.core.params import Params, State
from raffed.core.parts import Budget


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
