"""A few steps of a network, as raffed trains it: alone, and stacked with an equal one."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from raffed.core.losses import cross_entropy
from raffed.core.seeds import forked
from raffed.core.stacked.forward import StackedForward
from raffed.core.training.network import Network
from raffed.models.net import Net
from raffed.models.own.heads import one_tensor, own_errors

Pass = tuple[Tensor, dict[str, Tensor]]  # the loss of a batch, and its gradients by name


class NetworkTrial:
    """A copy of a network on which steps are tried.

    Each step begins from the same weights, and raffed's own random numbers are the same in each.

    Args:
        net: The network. It is not changed.
        title: How messages name it.
        double: Whether to compute in float64.
    """

    def __init__(self, net: Net, title: str, *, double: bool = False) -> None:
        self.title = title
        with own_errors(title):
            made = copy.deepcopy(net)
            self.network = Network(
                made.double() if double else made, kernels=net.rewritable, constants=net.constants
            )

    def scores(self, x: Tensor, training: bool) -> Tensor:
        """Return the scores of a batch in training or evaluation mode."""
        module = self.network.module
        self.network.noise.generator = torch.Generator().manual_seed(0)
        with torch.no_grad(), forked(0), own_errors(self.title):
            try:
                scores = module.train(training)(self.network.arranged(x))[0]
            finally:
                module.train()
                self.network.load(self.network.initial)
        return one_tensor(scores, self.title)

    def trained(self, x: Tensor, y: Tensor, seed: int) -> Pass:
        """Return the loss of a batch and its gradients. Random numbers of raffed's are the same each time.

        Those of torch's global generator depend on `seed`.
        """
        self.network.load(self.network.initial)
        self.network.noise.generator = torch.Generator().manual_seed(0)
        leaves = self.network.leaves("all")
        with forked(seed), own_errors(self.title):
            loss = cross_entropy(self.network.forward(x, y).logits, y)
            gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        self.network.load(self.network.initial)
        return loss.detach(), dict(zip(leaves, gradients, strict=True))

    def stacked(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Return the gradients of two clients with equal weights and batches, [2, ...] each."""
        state, forward = self.network.initial, StackedForward(self.network)
        w = {name: t.expand(2, *t.shape).clone().requires_grad_() for name, t in state.w.tensors.items()}
        b = {name: t.expand(2, *t.shape).clone() for name, t in state.b.tensors.items()}
        generator = torch.Generator().manual_seed(0)
        self.network.leaves("all")
        uniform = [torch.rand(shape, generator=generator) for shape in self.network.noise_shapes(x)]

        def loss(w: dict[str, Tensor], b: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(forward.of_one(w, b, x, y, uniform).logits, y)

        together: Callable[..., Tensor] = vmap(loss)
        losses = together(w, b, torch.stack([x, x]), torch.stack([y, y]))
        gradients = torch.autograd.grad(losses.sum(), list(w.values()), materialize_grads=True)
        return dict(zip(w, gradients, strict=True))


def as_double(x: Tensor) -> Tensor:
    """Return floats as float64, and ids as they are."""
    return x.double() if x.is_floating_point() else x


__all__ = ["NetworkTrial", "as_double"]
