"""The ingredient that changes the downloaded model before a client's passes."""

from __future__ import annotations

import torch
from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.ingredients.solver import Carried, LocalSolver
from raffed.core.messages import Memory, Message, ServerMemory


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
