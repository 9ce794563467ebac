"""BatchNorm statistics that are recomputed from a client's own data."""

from __future__ import annotations

import torch
from torch import Tensor

from raffed.core.params import State
from raffed.core.training.network import Network


def reestimated(net: Network, state: State, x: Tensor, batch: int) -> State:
    """Return the model with BatchNorm statistics that are recomputed by one pass over x.

    Source: docs/papers/map.md §3.3. Without BatchNorm the model itself is returned. Batch j has momentum B_j
    / Σ_{i≤j} B_i. So the running mean becomes the exact mean over x, and the running variance becomes the
    size-weighted mean of the batch variances. The batches are fixed, in data order and without augmentation,
    so no random numbers are needed. The authors' code goes through its training loader instead, which
    shuffles and augments.

    Args:
        net: The network. The model in its scratch copy is overwritten.
        state: The model.
        x: Prepared inputs [n, ...].
        batch: Samples in a batch.
    """
    if not net.norms:
        return state
    # Reset first, because 0 · NaN would survive a first momentum of 1
    net.load(State(state.w, state.b.zeros()))
    usual = [norm.momentum for norm in net.norms]
    net.module.eval()  # only BatchNorm is in train mode; dropout would draw random numbers
    for norm in net.norms:
        norm.train()
    seen = 0
    with torch.no_grad():
        for part in torch.split(x, batch):
            seen += len(part)
            for norm in net.norms:
                norm.momentum = len(part) / seen
            net.module(part)
    for norm, momentum in zip(net.norms, usual, strict=True):
        norm.momentum = momentum
    net.train()
    return State(state.w, net.statistics())
