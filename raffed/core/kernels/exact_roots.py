"""Roots and inverse trigonometric functions that do not depend on the kind of processor.

MKL computes them from the processor's estimates of 1/√x and 1/x (`rsqrtps`, `rcpps`). Makers of processors
are free in these estimates, and the last bit of the result can follow them. NumPy takes the root of IEEE 754,
which is rounded correctly, and the other functions from the C library.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raffed.core.kernels.replaced_operations import Replacements, usual

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


_installed: list[Replacements] = []


def use_exact_roots() -> None:
    """Let torch compute these functions of real tensors by NumPy on the CPU, for the rest of this process."""
    if _installed:
        return
    library = Replacements()
    for name, function in OF.items():
        _replace(library, name, _of_tensors(function))
    for name, root in ROOTS.items():
        _replace_half_power(library, name, root)
    _installed.append(library)


def _of_tensors(function: Callable[[Floats], Floats]) -> Callable[[Tensor], Tensor]:
    """Return a function of numbers as one of real tensors. Half precision is computed in float32."""

    def of(x: Tensor) -> Tensor:
        kind = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
        wide = x.to(kind if kind in (torch.float32, torch.float64) else torch.float32)
        with np.errstate(all="ignore"):  # as in torch, the root of -1 is NaN and no warning
            found = function(wide.detach().numpy())  # gradients are of the layer above
        return torch.from_numpy(np.asarray(found)).to(kind)

    return of


def _replace(library: Replacements, name: str, of: Callable[[Tensor], Tensor]) -> None:
    """Replace a function, its form that writes to its argument, and the form that writes to `out`."""
    forms = ("", "_", ".out")
    made, inside, into = (usual(f"{name}{form}") for form in forms)

    def new(keys: torch.DispatchKeySet, x: Tensor) -> Tensor:
        return made(keys, x) if x.is_complex() else of(x)

    def new_inside(keys: torch.DispatchKeySet, x: Tensor) -> Tensor:
        return inside(keys, x) if x.is_complex() else x.copy_(of(x))

    def new_into(keys: torch.DispatchKeySet, x: Tensor, *, out: Tensor) -> Tensor:
        if x.is_complex():
            return into(keys, x, out=out)
        found = of(x)
        return out.resize_(found.shape).copy_(found)

    every: tuple[Callable[..., Tensor], ...] = (new, new_inside, new_into)
    for form, one in zip(forms, every, strict=True):
        library.add(f"{name}{form}", one)


def _replace_half_power(library: Replacements, name: str, root: Callable[..., Tensor]) -> None:
    """Let x ** 0.5 be the root, which torch computes without calling its own."""
    before = usual(name)

    def new(keys: torch.DispatchKeySet, x: Tensor, power: float, **out: Tensor) -> Tensor:
        return root(x, **out) if power == 0.5 else before(keys, x, power, **out)

    library.add(name, new)
