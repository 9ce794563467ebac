"""Products of float32 matrices whose bits do not depend on the kind of processor, by NumPy's OpenBLAS.

MKL has the same bits everywhere only in its compatible mode, which takes three times as long as the products
it chooses for a processor. OpenBLAS executes the kernels of the processor that OPENBLAS_CORETYPE names, on
any processor that has their instructions, and takes 1.05 times as long. Torch's own operations are replaced,
so this also holds for the products of autograd and of clients that vmap stacks.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from raffed.core.kernels.replaced_operations import Replacements, usual

WORTH = 1 << 17  # multiplications; for smaller products, calling NumPy costs more than its kernel saves
OPENBLAS = "scipy-openblas"  # as NumPy names the library in the packages of PyPI

_installed: list[Replacements] = []


def has_openblas() -> bool:
    """Return whether this NumPy computes products by the OpenBLAS of NumPy's own packages."""
    found = np.show_config(mode="dicts")
    return found.get("Build Dependencies", {}).get("blas", {}).get("name") == OPENBLAS


def use_portable_products() -> None:
    """Let torch compute large float32 products by NumPy on the CPU, for the rest of this process."""
    if _installed:
        return
    library = Replacements()
    for name in ("mm", "bmm"):
        _replace(library, name)
    for name in ("addmm", "baddbmm"):
        _replace_sum(library, name)
    _installed.append(library)


def worthwhile(a: Tensor, b: Tensor) -> bool:
    """Return whether a b is computed by NumPy, for matrices [M, K] and [K, N] or equally long stacks of them.

    Only sizes decide. Torch refuses what does not fit.
    """
    if a.numel() * b.shape[-1] < WORTH or not a.dtype == b.dtype == torch.float32:
        return False
    return a.dim() == b.dim() and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2]


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return a b of matrices a [M, K] and b [K, N], or of stacks of them, for any strides."""
    out = a.new_empty((*a.shape[:-1], b.shape[-1]))
    np.matmul(_array(a), _array(b), out=out.numpy())
    return out


def _array(x: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return a tensor as an array that OpenBLAS can read: its rows or its columns lie in one piece."""
    row, column = x.stride()[-2:]
    readable = (column == 1 and row >= x.shape[-1]) or (row == 1 and column >= x.shape[-2])
    found: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = (
        (x if readable else x.contiguous()).detach().numpy()
    )
    return found


def _replace(library: Replacements, name: str) -> None:
    """Replace a product."""
    before = usual(name)

    def new(keys: torch.DispatchKeySet, a: Tensor, b: Tensor) -> Tensor:
        return product(a, b) if worthwhile(a, b) else before(keys, a, b)

    library.add(name, new)


def _replace_sum(library: Replacements, name: str) -> None:
    """Replace the sum of a tensor and a product, unless they have factors."""
    before = usual(name)

    def new(
        keys: torch.DispatchKeySet, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        if beta == 1 == alpha and worthwhile(a, b):
            return product(a, b).add_(c)
        return before(keys, c, a, b, beta=beta, alpha=alpha)

    library.add(name, new)
