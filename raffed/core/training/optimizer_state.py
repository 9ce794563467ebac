"""What a client keeps of its optimiser from one round to the next, as the memory of an ingredient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.core.ingredients import Ingredient
from raffed.core.messages import Private
from raffed.core.params import Params


class OptimizerState(Private):
    """The state of an optimiser after a training phase.

    Attributes:
        count: Number of steps that it has made, [] int64.
        moments: Its moments, each named `moment.weight`.
    """

    count: Tensor
    moments: Params

    @staticmethod
    def of(count: int, names: Sequence[str], moments: Mapping[str, Sequence[Tensor]]) -> OptimizerState:
        """Return a state as own copies.

        Args:
            count: Number of steps that the optimiser has made.
            names: Names of the weights.
            moments: Name of a moment → a tensor for each weight.
        """
        flat = {
            f"{moment}.{name}": tensor
            for moment, tensors in moments.items()
            for name, tensor in zip(names, tensors, strict=True)
        }
        return OptimizerState(torch.tensor(count), Params(flat).clone())

    def loaded(self, moments: Sequence[str], names: Sequence[str]) -> dict[str, list[Tensor]]:
        """Return copies of the moments, which may be changed, as name of a moment → a tensor for each weight.

        Args:
            moments: Names of the moments.
            names: Names of the weights.
        """
        return {moment: [self.moments[f"{moment}.{name}"].clone() for name in names] for moment in moments}


class OptimizerMemory(Private):
    """The states of a client's optimiser, by training phase."""

    phases: dict[str, OptimizerState]


class KeptOptimizer(Ingredient[OptimizerMemory]):
    """The optimiser of local training keeps its state from round to round (`Local.keep_optimizer`).

    Each pass of shared training and private training have their own state. The state begins with the
    client's first participation and never leaves the client.
    """

    def client_init(self, k: Context) -> OptimizerMemory:
        return OptimizerMemory({})
