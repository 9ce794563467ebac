"""Operations of torch that give the same bits on every processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Operations of torch that raffed computes itself on the CPU, for the rest of a process.
#
# What torch computed before stays reachable, for the inputs that a replacement leaves to it.


class Replacing(Protocol):
    """What replaces operations of torch, for as long as it lives."""

    def impl(self, name: str, new: Callable[..., Tensor], key: str, *, with_keyset: bool) -> None: ...


_begin: Callable[[str, str], Replacing] = torch.library.Library


class Replacements:
    """Replaces operations on the CPU, for as long as it lives."""

    def __init__(self) -> None:
        self._library = _begin("aten", "IMPL")

    def add(self, name: str, new: Callable[..., Tensor]) -> None:
        """Let an operation be a function of the dispatcher's keys and of the operation's arguments."""
        self._library.impl(name, new, "CPU", with_keyset=True)


def usual(name: str) -> Callable[..., Tensor]:
    """Return what torch computes now, as a function of the same arguments as its replacement."""
    kernel: Callable[..., Tensor] = torch.library.get_kernel(f"aten::{name}", "CPU").call_boxed
    return kernel


# Roots and inverse trigonometric functions that do not depend on the kind of processor.
#
# MKL computes them from the processor's estimates of 1/√x and 1/x (`rsqrtps`, `rcpps`). Makers of
# processors are free in these estimates, and the last bit of the result can follow them. NumPy takes the
# root of IEEE 754, which is rounded correctly, and the other functions from the C library.


Floats = NDArray[np.float32] | NDArray[np.float64]
OF: dict[str, Callable[[Floats], Floats]] = {
    "sqrt": np.sqrt,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "tan": np.tan,
}
ROOTS = {  # operation → the root that it is if its exponent is 0.5
    "pow.Tensor_Scalar": torch.ops.aten.sqrt.default,
    "pow_.Scalar": torch.ops.aten.sqrt_.default,
    "pow.Tensor_Scalar_out": torch.ops.aten.sqrt.out,
}


_roots_installed: list[Replacements] = []


def use_exact_roots() -> None:
    """Let torch compute these functions of real tensors by NumPy on the CPU, for the rest of this process."""
    if _roots_installed:
        return
    library = Replacements()
    for name, function in OF.items():
        _replace_root(library, name, _of_tensors(function))
    for name, root in ROOTS.items():
        _replace_half_power(library, name, root)
    _roots_installed.append(library)


def _of_tensors(function: Callable[[Floats], Floats]) -> Callable[[Tensor], Tensor]:
    """Return a function of numbers as one of real tensors. Half precision is computed in float32."""

    def of(x: Tensor) -> Tensor:
        kind = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
        wide = x.to(kind if kind in (torch.float32, torch.float64) else torch.float32)
        with np.errstate(all="ignore"):  # as in torch, the root of -1 is NaN and no warning
            values = function(wide.detach().numpy())  # gradients are of the layer above
        return torch.from_numpy(np.asarray(values)).to(kind)

    return of


def _replace_root(library: Replacements, name: str, of: Callable[[Tensor], Tensor]) -> None:
    """Replace a function, its form that writes to its argument, and the form that writes to `out`."""
    forms = ("", "_", ".out")
    plain, inside, into = (usual(f"{name}{form}") for form in forms)

    def new(keys: torch.DispatchKeySet, x: Tensor) -> Tensor:
        return plain(keys, x) if x.is_complex() else of(x)

    def new_inside(keys: torch.DispatchKeySet, x: Tensor) -> Tensor:
        return inside(keys, x) if x.is_complex() else x.copy_(of(x))

    def new_into(keys: torch.DispatchKeySet, x: Tensor, *, out: Tensor) -> Tensor:
        if x.is_complex():
            return into(keys, x, out=out)
        values = of(x)
        return out.resize_(values.shape).copy_(values)

    every: tuple[Callable[..., Tensor], ...] = (new, new_inside, new_into)
    for form, function in zip(forms, every, strict=True):
        library.add(f"{name}{form}", function)


def _replace_half_power(library: Replacements, name: str, root: Callable[..., Tensor]) -> None:
    """Let x ** 0.5 be the root, which torch computes without calling its own."""
    before = usual(name)

    def new(keys: torch.DispatchKeySet, x: Tensor, power: float, **out: Tensor) -> Tensor:
        return root(x, **out) if power == 0.5 else before(keys, x, power, **out)

    library.add(name, new)


# Products of float32 matrices whose bits do not depend on the kind of processor, by NumPy's OpenBLAS.
#
# MKL has the same bits everywhere only in its compatible mode, which takes three times as long as the
# products it chooses for a processor. OpenBLAS executes the kernels of the processor that OPENBLAS_CORETYPE
# names, on any processor that has their instructions, and takes 1.05 times as long. Torch's own operations
# are replaced, so this also holds for the products of autograd and of clients that vmap stacks.


WORTH = 1 << 17  # multiplications; for smaller products, calling NumPy costs more than its kernel saves
OPENBLAS = "scipy-openblas"  # as NumPy names the library in the packages of PyPI

_products_installed: list[Replacements] = []


def has_openblas() -> bool:
    """Return whether this NumPy computes products by the OpenBLAS of NumPy's own packages."""
    config = np.show_config(mode="dicts")
    return config.get("Build Dependencies", {}).get("blas", {}).get("name") == OPENBLAS


def use_portable_products() -> None:
    """Let torch compute large float32 products by NumPy on the CPU, for the rest of this process."""
    if _products_installed:
        return
    library = Replacements()
    for name in ("mm", "bmm"):
        _replace_product(library, name)
    for name in ("addmm", "baddbmm"):
        _replace_sum(library, name)
    _products_installed.append(library)


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
    array: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = (
        (x if readable else x.contiguous()).detach().numpy()
    )
    return array


def _replace_product(library: Replacements, name: str) -> None:
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
