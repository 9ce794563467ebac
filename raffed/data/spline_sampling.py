"""Resample images by cubic splines, as scipy.ndimage.affine_transform does with its defaults."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

Four = tuple[Tensor, Tensor, Tensor, Tensor]


def sampled(pixels: Tensor, matrix: Four, shift: tuple[Tensor, Tensor]) -> Tensor:
    """Return images whose pixel at (r, c) is that of the old image at A·((r, c) − o) + o + shift.

    o is half a pixel beyond the middle of the image, (H/2 + 1/2, W/2 + 1/2). Outside the image is black.
    Between pixels there is a cubic spline, which continues by reflection at the borders.

    Args:
        pixels: [g, C, H, W], whole numbers of 0 to 255.
        matrix: A by rows, each element [g].
        shift: In rows and in columns, each [g].

    Returns:
        Whole numbers of 0 to 255, [g, C, H, W].
    """
    height, width = pixels.shape[2:]
    r = torch.arange(height, dtype=torch.float64, device=pixels.device)[:, None] - (height / 2 + 0.5)
    c = torch.arange(width, dtype=torch.float64, device=pixels.device)[None, :] - (width / 2 + 0.5)
    a, b, d, e = (one.double().view(-1, 1, 1) for one in matrix)
    down, across = (one.double().view(-1, 1, 1) for one in shift)
    rows = a * r + b * c + height / 2 + 0.5 + down  # [g, H, W]
    columns = d * r + e * c + width / 2 + 0.5 + across
    inside = (rows >= 0) & (rows <= height - 1) & (columns >= 0) & (columns <= width - 1)
    found = _spline(_coefficients(pixels.double()), rows, columns)
    return torch.where(inside[:, None], (found + 0.5).floor().clamp(0, 255), 0.0).to(pixels.dtype)


def _coefficients(pixels: Tensor) -> Tensor:
    """Return the coefficients of the splines that pass through the pixels."""
    left, right = (_inverse(side).to(pixels.device) for side in pixels.shape[2:])
    return left @ pixels @ right.T


@functools.lru_cache(maxsize=16)
def _inverse(side: int) -> Tensor:
    """Return the inverse of the matrix that makes values of coefficients: 1/6, 4/6, 1/6 around each pixel."""
    if side == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    values = torch.zeros(side, side, dtype=torch.float64)
    for i in range(side):
        values[i, i] += 4 / 6
        for beside in (i - 1, i + 1):
            values[i, side - 1 - abs(side - 1 - abs(beside))] += 1 / 6
    inverse: Tensor = torch.linalg.inv(values)
    return inverse


def _spline(coefficients: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the splines' values [g, C, H, W] at places [g, H, W]."""
    g, channels, height, width = coefficients.shape
    flat, total = coefficients.flatten(2), coefficients.new_zeros(g, channels, height * width)
    across = _taps(columns, width)
    for i, down in _taps(rows, height):
        for j, weight in across:
            place = (i * width + j).flatten(1)[:, None].expand(-1, channels, -1)
            total += flat.gather(2, place) * (down * weight).flatten(1)[:, None]
    return total.view_as(coefficients)


def _taps(at: Tensor, side: int) -> list[tuple[Tensor, Tensor]]:
    """Return the four pixels around each place of a line, and their weights."""
    first = at.floor()
    t = at - first
    weights = (
        (1 - t) ** 3 / 6,
        (4 - 6 * t**2 + 3 * t**3) / 6,
        (1 + 3 * t + 3 * t**2 - 3 * t**3) / 6,
        t**3 / 6,
    )
    last = max(side - 1, 1)
    places = ((first.long() - 1 + k) % (2 * last) for k in range(4))
    return [
        ((last - (last - one).abs()).clamp(max=side - 1), weight)
        for one, weight in zip(places, weights, strict=True)
    ]
