"""Stochastic depth whose random numbers come from raffed."""

from __future__ import annotations

import sys

from torch import nn

from raffed.errors import UsageError
from raffed.models.dropout import Dropout


def replace_branches(net: nn.Module) -> None:
    """Replace torchvision's StochasticDepth, which draws from torch's global generator, by raffed's dropout
    of whole samples. Layers with p = 0 are left alone.

    Raises:
        UsageError: A layer drops whole batches, so that the samples of a batch depend on each other.
    """
    ops = sys.modules.get("torchvision.ops")
    if ops is None:
        return
    for parent in list(net.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, ops.StochasticDepth) and layer.p > 0:
                if layer.mode != "row":
                    raise UsageError(f"StochasticDepth(mode={layer.mode!r}) drops whole batches; use 'row'")
                setattr(parent, name, Dropout(layer.p, rows=True))


__all__ = ["replace_branches"]
