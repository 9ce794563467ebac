"""The forward pass of stacked clients, whose weights are arguments and not those of the network."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from raffed.core.context import Forward
from raffed.core.params import Params
from raffed.core.training.network import Network
from raffed.errors import UsageError


class StackedForward:
    """The training pass of a network for clients whose weights are arguments.

    Args:
        net: The network. Its own weights are not used.

    Raises:
        UsageError: The network has recurrent layers of torch, which `vmap` cannot compute.
    """

    def __init__(self, net: Network) -> None:
        if (recurrent := net.recurrent) is not None:
            raise UsageError(
                f"torch cannot stack networks with a layer of type {type(recurrent).__name__}; use cohort = 0"
            )
        self._pass = net.functional

    def of_all(self, w: dict[str, Tensor], x: Tensor) -> tuple[Tensor, ...]:
        """Return (logits [g, B, C], z [g, B, D]) of g clients' batches x [g, B, ...], computed outside vmap.

        The result is () if the network is not a chain of linear layers.
        """
        chain = self._pass.chain
        if chain is None:
            return ()
        with self._pass.cast():
            logits, z = chain.stacked(w, x)
        return self._pass.full(logits, z)

    def gradients_of_all(
        self, w: dict[str, Tensor], x: Tensor, y: Tensor, names: Collection[str]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return cross-entropies [g] of g clients, and gradients for their weights [g, ...].

        It may be called if the network is `written_out`. The batches are x [g, B, ...] and y [g, B].
        """
        assert self._pass.chain is not None
        return self._pass.chain.stacked_gradients(w, x, y, names)

    def of_one(
        self,
        w: dict[str, Tensor],
        b: dict[str, Tensor],
        x: Tensor,
        y: Tensor,
        drawn: list[Tensor],
        rested: Tensor | None = None,
        entrance: str = "",
        made: tuple[Tensor, ...] = (),
    ) -> Forward:
        """Make one client's training pass, inside vmap. BatchNorm updates `b` in place.

        Args:
            w: Weights by name.
            b: Buffers by name.
            x: Inputs [B, ...].
            y: Labels [B].
            drawn: Uniform random numbers of the dropout layers, in the order of `Network.noise_shapes`.
            rested: What the layers below `entrance` have made of x, or None.
            entrance: Where the pass enters the network.
            made: (logits, z) from `of_all`, or () if they have to be computed.
        """
        if made:
            logits, z = made
        elif rested is None:
            logits, z = self._pass.called({**w, **b}, x, drawn)
        else:
            with self._pass.cast():
                logits, z = self._pass.entered(rested, entrance, w)
            logits, z = self._pass.full(logits, z)
        return Forward(x, y, z, logits, Params(w), through=lambda other: self._pass.again(other, b, x, drawn))
