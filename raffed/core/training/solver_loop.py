"""The training loop of a local solver, which replaces SGD by a rule of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from raffed.core.context import ClientData, Context, Forward
from raffed.core.ingredients import LocalSolver
from raffed.core.params import Params, State
from raffed.core.training.network import Network
from raffed.core.training.sgd import Augment, Trained, clipped, placed, taken


def solve(
    net: Network,
    rule: LocalSolver,
    k: Context,
    objective: Callable[[Forward, int], Tensor],
    data: ClientData,
    batches: Sequence[Tensor],
    clip_norm: float | None = None,
    augment: Augment | None = None,
) -> Trained:
    """Train by a local solver: call `rule.step` on groups of `rule.batches()` batches.

    Each batch is prepared once per step.
    """
    carried, losses, per = rule.begin(k), [], rule.batches()
    indices = placed(batches, data.y.device)
    for first in range(0, len(indices), per):
        group = [
            (taken(data.x, index), data.y.index_select(0, index)) for index in indices[first : first + per]
        ]
        ready = [(x if augment is None else augment(x), y) for x, y in group]

        def gradient(
            state: State, which: int, ready: list[tuple[Tensor, Tensor]] = ready, step: int = first // per
        ) -> tuple[Params, Params]:
            net.load(state)
            leaves = net.leaves("all")
            loss = objective(net.forward(*ready[which]), step)
            grads = list(torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True))
            losses.append(loss.detach())
            if clip_norm is not None:
                grads = clipped(grads, clip_norm)
            return Params(dict(zip(leaves, grads, strict=True))).clone(), net.snapshot().b

        carried = rule.step(carried, gradient, k)
    loss = float(torch.stack(losses).mean()) if losses else 0.0
    return Trained(rule.end(carried), loss, len(batches), carried=carried)
