"""What the server makes of uploads whose clients began with models of different ages (config/clock.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from raffed.config.clock import Clock
from raffed.core.messages import ServerState
from raffed.core.params import Params
from raffed.runs.participation import RoundPlan


def is_plain_mean(plan: RoundPlan, clock: Clock) -> bool:
    """Return whether the weights of a round are those of a mean, with nothing stale."""
    return all(start == plan.number for start in plan.starts) and clock.mixing * clock.discount(0) == 1.0


def completed(
    sums: tuple[Params, Params],
    server: ServerState,
    plan: RoundPlan,
    clock: Clock,
    past: Mapping[int, ServerState],
) -> tuple[Params, Params]:
    """Return the weights and statistics that take the place of the mean of a round.

    With p_i the weight of an upload, α or η and s(τ) included, they are

    FedBuff: w + Σ p_i (w_i − w^{t_i}), where t_i is the number of the model with which client i began;
    FedAsync: (1 − Σ p_i) w + Σ p_i w_i, which is also what BatchNorm's statistics become with both.

    Args:
        sums: Σ p_i w_i of the weights, and of BatchNorm's statistics.
        server: The server's state before the step, with the weights w.
        plan: The step.
        clock: The run's virtual clock.
        past: Number → the server's state of that time, for everything stale.
    """
    w, b = sums
    if is_plain_mean(plan, clock):
        return w, b
    rest = 1.0 - math.fsum(plan.weights)
    if clock.server == "fedasync":
        return _plus(w, [(rest, server.w)]), _plus(b, [(rest, server.b)])
    shares: dict[int, list[float]] = {}
    for start, weight in zip(plan.starts, plan.weights, strict=True):
        shares.setdefault(start, []).append(weight)
    begun = [(-math.fsum(parts), (past.get(start) or server).w) for start, parts in sorted(shares.items())]
    if rest < 0.0:  # η above 1: statistics are the mean of those of the uploads, and go no further
        b, rest = b / (1.0 - rest), 0.0
    return _plus(w, [(1.0, server.w), *begun]), _plus(b, [(rest, server.b)])


def _plus(total: Params, more: list[tuple[float, Params]]) -> Params:
    """Return a sum of points, added up in float64."""
    if not len(total):
        return total
    wide = total.flat.to(torch.float64)
    for factor, point in more:
        wide = wide + factor * point.flat.to(device=wide.device, dtype=torch.float64)
    return Params.from_flat(total.layout, wide.to(total.dtype))
