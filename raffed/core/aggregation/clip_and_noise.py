"""Clipped updates, noise and pairwise masks: what config/privacy.py asks for, as functions of uploads."""

from __future__ import annotations

import torch
from torch import Tensor

from raffed.core.params import Params


def clip_update(w: Params, start: Params, limit: float) -> Params:
    """w^t + Δ · min(1, S / ‖Δ‖) with Δ = w − w^t, the norm over all numbers together; w itself if it is
    short enough.
    """
    update = w.flat.to(torch.float64) - start.flat.to(torch.float64)
    norm = float(update.norm())
    if not norm > limit:  # NaN is left to the check of the sums
        return w
    return Params.from_flat(
        w.layout, (start.flat.to(torch.float64) + update * (limit / norm)).to(torch.float32)
    )


def add_noise(w: Params, deviation: float, generator: torch.Generator) -> Params:
    """w + N(0, deviation²) on every number, drawn on the CPU; deviation 0 draws nothing."""
    if not deviation:
        return w

    def moved(t: Tensor) -> Tensor:
        noise = torch.randn(t.shape, generator=generator, dtype=torch.float64) * deviation
        return (t.to(torch.float64) + noise.to(t.device)).to(t.dtype)

    return Params({name: moved(t) for name, t in w.tensors.items()})
