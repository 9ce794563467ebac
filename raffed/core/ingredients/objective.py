"""Ingredients that change the shared objective or its gradient: terms, heads and corrections."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.ingredients.base import Ingredient
from raffed.core.messages import Memory, Message, ServerMemory
from raffed.core.params import Params
from raffed.core.seeds import Purpose


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
