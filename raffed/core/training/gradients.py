"""Gradients of a model on a client's samples, batch by batch, outside of training."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from raffed.core.context import ClientData, LogitsLoss
from raffed.core.params import Params, State
from raffed.core.training.network import Network


def batch_gradients(
    net: Network, state: State, data: ClientData, batch: int, loss: LogitsLoss
) -> Iterator[Params]:
    """Yield the gradient of the mean loss of each batch, with respect to all parameters.

    The model is in evaluation mode. Batches are in data order and without augmentation, so no random numbers
    are needed.

    Args:
        net: The network. The model in its scratch copy is not used.
        state: The model.
        data: The client's training samples.
        batch: Samples in a batch.
        loss: The loss of a batch.
    """
    for x, y in zip(torch.split(data.x, batch), torch.split(data.y, batch), strict=True):
        with torch.enable_grad():
            live = {name: t.detach().clone().requires_grad_() for name, t in state.w.tensors.items()}
            logits, _ = net.differentiable(State(Params(live), state.b), x)
            found = torch.autograd.grad(loss(logits, y), list(live.values()), materialize_grads=True)
        yield Params(dict(zip(live, found, strict=True)))
