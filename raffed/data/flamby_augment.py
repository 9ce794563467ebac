"""FLamby's augmentation of skin lesions (docs/papers/fedmr.md §E1): geometry, light and holes.

Each change happens with probability 1/2. Scale, rotation, shear and shift are one bilinear resampling with
mirrored borders. FLamby resamples three times and crops 200 of 224 pixels at random; here this is a shift of
the central crop by up to 12 pixels. The number of holes is drawn for each image, while FLamby draws it once
when the process starts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from raffed.data.preparation import FlambyAugment

__all__ = ["FlambyAugment", "apply"]


def apply(x: Tensor, t: FlambyAugment, mean: Tensor, std: Tensor, draws: Tensor) -> Tensor:
    """Return an augmented copy of the prepared batch x [B, C, S, S] of square images.

    Args:
        x: Normalised images.
        t: Ranges of the changes.
        mean, std: The normalisation of x, each [C, 1, 1].
        draws: Uniform random numbers in [0, 1), float64 [B, t.draws].

    A hole is black in the raw image, which is (0 - mean) / std here.
    """
    x = _moved(x, t, draws)
    light, amount = draws[:, 6] < 0.5, (2 * draws[:, 7:9] - 1).to(x.dtype).to(x.device)
    raw = x * std + mean
    lit = raw * (1 + t.contrast * amount[:, 0]).view(-1, 1, 1, 1) + (t.brightness * amount[:, 1]).view(
        -1, 1, 1, 1
    )
    raw = torch.where(light.to(x.device).view(-1, 1, 1, 1), lit.clamp(0, 1), raw)
    black = _holes(t, draws[:, 9:], x.shape[-1]).to(x.device)
    return (torch.where(black[:, None], 0.0, raw) - mean) / std


def _moved(x: Tensor, t: FlambyAugment, draws: Tensor) -> Tensor:
    """Apply scale, rotation, shear, flips and shift. `theta` maps an output position to its source
    position.
    """
    on = draws[:, :4] < 0.5
    spread = 2 * torch.where(on, draws[:, :4] * 2, 0.5) - 1  # uniform in ±1 where it happens, else 0
    size = 1 + t.scale * spread[:, 0]
    angle = spread[:, 1] * math.radians(t.rotation_degrees)
    slant = on[:, 2] * math.tan(math.radians(t.shear_degrees))
    cos, sin = angle.cos() / size, angle.sin() / size
    which = torch.where(on[:, 3], (draws[:, 3] * 6).long(), 3)  # 0 left-right, 1 up-down, 2 both, 3 neither
    across = torch.where((which == 0) | (which == 2), -1.0, 1.0)
    down = torch.where((which == 1) | (which == 2), -1.0, 1.0)
    shift = (2 * draws[:, 4:6] - 1) * t.shift * 2 / x.shape[-1]
    rows = [
        across * cos,
        across * (cos * slant - sin),
        shift[:, 0],
        down * sin,
        down * (sin * slant + cos),
        shift[:, 1],
    ]
    theta = torch.stack(rows, dim=1).view(-1, 2, 3).to(x.device, x.dtype)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _holes(t: FlambyAugment, draws: Tensor, side: int) -> Tensor:
    """Return bool [B, S, S]: whether a pixel is inside one of 1 to `holes` squares.

    Squares lie anywhere inside the image. Half of the images have none.
    """
    count = torch.where(draws[:, 0] < 0.5, (draws[:, 0] * 2 * t.holes).long() + 1, 0)
    # [B, holes, 2]
    corners = (draws[:, 1:].view(len(draws), -1, 2)[:, : t.holes] * (side - t.hole_side + 1)).long()
    place = torch.arange(side)
    inside = (place >= corners[..., None]) & (place < corners[..., None] + t.hole_side)  # [B, holes, 2, S]
    squares = inside[:, :, 0, :, None] & inside[:, :, 1, None, :]
    wanted = torch.arange(squares.shape[1]) < count[:, None]
    return (squares & wanted[:, :, None, None]).any(dim=1)
