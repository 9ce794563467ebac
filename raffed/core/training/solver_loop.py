"""The training loop of a local solver, which replaces SGD by a rule of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from raffed.core.context import ClientData, Context, Forward
from raffed.core.ingredients import LocalSolver
from raffed.core.params import Params, State
from raffed.core.training.network import Network
from raffed.core.training.sgd import Augment, Solver, Trained, clipped, clipped_values, placed, taken


def solve(
    net: Network,
    rule: LocalSolver,
    k: Context,
    objective: Callable[[Forward, int], Tensor],
    data: ClientData,
    batches: Sequence[Tensor],
    solver: Solver,
    *,
    augment: Augment | None = None,
    rates: Sequence[float] | None = None,
) -> Trained:
    """Train by a local solver: call `rule.step` on groups of `rule.batches()` batches.

    Each batch is prepared once per step. The rule finds the learning rate of the step in `k.lr`.

    Args:
        net: The network.
        rule: The local solver.
        k: What the client knows.
        objective: Function from (forward pass, number of the step) to the loss.
        data: The client's training samples.
        batches: Indices of the samples in each batch.
        solver: Settings, of which the limits of gradients are used.
        augment: A change of the images of a batch, or None.
        rates: Learning rate of each step of the rule, or None for the one in `k`.
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
            leaves = used(rule, net.leaves("all"), solver)
            loss = objective(net.forward(*ready[which]), step)
            grads = list(torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True))
            losses.append(loss.detach())
            if solver.clip_value is not None:
                grads = clipped_values(grads, solver.clip_value)
            if solver.clip_norm is not None:
                grads = clipped(grads, solver.clip_norm)
            return Params(dict(zip(leaves, grads, strict=True))).clone(), net.snapshot().b

        now = k if rates is None else k.replace(lr=rates[first // per])
        carried = rule.step(carried, gradient, now)
    loss = float(torch.stack(losses).mean()) if losses else 0.0
    return Trained(rule.end(carried), loss, len(batches), carried=carried)


def used(rule: LocalSolver, tensors: dict[str, Tensor], solver: Solver) -> dict[str, Tensor]:
    """Return those of a network's tensors whose gradients are computed for a local solver."""
    if solver.clip_norm is not None:  # it takes the norm of the whole gradient
        return tensors
    return {name: tensors[name] for name in rule.slopes(tuple(tensors))}
