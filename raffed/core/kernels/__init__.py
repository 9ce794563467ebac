"""Faster forms of common layers, and the one function that puts them into a network.

Every replacement computes the same function as torch's layers, and the parameters stay the same objects with
the same names and shapes. Some replacements add numbers in another order, so the bits of a run depend on
them. `Network(..., kernels=False)` leaves all of them out; for a run, RAFFED_KERNELS=off does
(runtime/machine.py).
"""

from __future__ import annotations

from torch import nn

from raffed.core.kernels.autograd import pool_first
from raffed.core.kernels.convolution import choose_convolutions, fill_channels
from raffed.core.kernels.linear import LinearChain, chain_of, choose_products
from raffed.core.kernels.maxpool import choose_pools


def optimise(module: nn.Module, *, onednn: bool = False, convolutions: bool = False) -> LinearChain | None:
    """Replace layers of a network by faster ones, in place.

    Layers with hooks are left alone. If a network has none of the layers in question, it stays as it is. So
    every module can be given, whatever its inputs are.

    Args:
        module: The network, with a `body` and a `head`.
        onednn: Whether large linear layers are computed by oneDNN. It pays on some processors only.
        convolutions: Whether convolutions are computed by the compiled kernel (convolution.py).

    Returns:
        The network as a chain of linear layers if it is one and shares no weights between layers, otherwise
        None.
    """
    pool_first(module)
    fill_channels(module)
    choose_pools(module)
    if convolutions:
        choose_convolutions(module)
    if onednn:
        choose_products(module)
    return None if has_tied_weights(module) else chain_of(module)


def has_tied_weights(module: nn.Module) -> bool:
    """Return whether one parameter belongs to more than one layer."""
    once = sum(1 for _ in module.parameters())
    return sum(1 for _ in module.named_parameters(remove_duplicate=False)) > once
