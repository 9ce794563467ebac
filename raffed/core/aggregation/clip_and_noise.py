"""Clipped updates and noise for differential privacy (config/privacy.py), as functions of uploads."""

from __future__ import annotations

import torch
from torch import Tensor

from raffed.core.params import Params


def clip_update(w: Params, start: Params, limit: float) -> Params:
    """Return w^t + Δ · min(1, S / ‖Δ‖) for the update Δ = w − w^t.

    The norm is taken over all numbers together. If the update is short enough, `w` itself is returned.

    Args:
        w: The trained weights.
        start: The weights w^t that the client received, or 0 if it sends an update.
        limit: The largest allowed norm S.
    """
    update = w.flat.to(torch.float64) - start.flat.to(torch.float64)
    norm = float(update.norm())
    if not norm > limit:  # NaN is refused later, by the exact sums
        return w
    return Params.from_flat(
        w.layout, (start.flat.to(torch.float64) + update * (limit / norm)).to(torch.float32)
    )


def add_noise(w: Params, deviation: float, generator: torch.Generator) -> Params:
    """Return w + N(0, deviation²) on every number. Noise is drawn on the CPU, and none is drawn for 0."""
    if not deviation:
        return w

    def moved(t: Tensor) -> Tensor:
        noise = torch.randn(t.shape, generator=generator, dtype=torch.float64) * deviation
        return (t.to(torch.float64) + noise.to(t.device)).to(t.dtype)

    return Params({name: moved(t) for name, t in w.tensors.items()})
