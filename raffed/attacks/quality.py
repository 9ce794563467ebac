"""How close a reconstruction is to the image: MSE, PSNR and SSIM, for pictures [C, H, W] with values in
[0, 1].
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW, SIGMA = 11, 1.5
K1, K2 = 0.01, 0.03


def mse(x: Tensor, truth: Tensor) -> float:
    """Return the mean of (x − truth)² over all numbers.

    Below 0.03 an image is recognisable. The variance of the images is about 0.06, and noise gives about 1.3.
    """
    return float((x - truth).square().mean())


def psnr(x: Tensor, truth: Tensor) -> float:
    """Return 10 log10(1 / MSE) in dB, for a range of 1; ∞ for equal pictures."""
    error = mse(x, truth)
    return math.inf if error == 0 else -10 * math.log10(error)


def ssim(x: Tensor, truth: Tensor) -> float:
    """Return the structural similarity (Wang et al. 2004), 1 for equal pictures.

    It uses a Gaussian window of 11 with σ = 1.5 at valid positions, and the mean over all positions and
    channels. Sides below 11 are an error of the convolution. x is not clamped.
    """
    a, b = x[:, None].double(), truth[:, None].double()
    mean_a, mean_b = _blurred(a), _blurred(b)
    var_a, var_b = _blurred(a * a) - mean_a**2, _blurred(b * b) - mean_b**2
    shared = _blurred(a * b) - mean_a * mean_b
    c1, c2 = K1**2, K2**2
    top = (2 * mean_a * mean_b + c1) * (2 * shared + c2)
    return float((top / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean())


def _blurred(x: Tensor) -> Tensor:
    at = torch.arange(WINDOW, dtype=x.dtype, device=x.device) - WINDOW // 2
    bell = torch.exp(-(at**2) / (2 * SIGMA**2))
    window = torch.outer(bell, bell) / bell.sum() ** 2
    return F.conv2d(x, window[None, None])
