"""Large linear layers by oneDNN's products, for processors on which those of torch's own library take
twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.core.kernels.relu_after_pool import hooked

WORTH = 3 << 19  # multiplications of one product; below, calling takes longer than the faster kernel saves


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [B, I] Wᵀ + b, W [O, I]: F.linear up to rounding, by oneDNN where that is worth it.

    On one core of an AMD EPYC with AVX-512, 64 samples, forwards and backwards: 784 x 512 0.70 ms instead of
    1.45, 512 x 512 0.51 instead of 0.98. Sizes alone decide, never a clock, so that bits stay.
    """
    if worthwhile(x, weight):
        made: Tensor = _Product.apply(x, weight, bias)
        return made
    return F.linear(x, weight, bias)


def worthwhile(x: Tensor, weight: Tensor) -> bool:
    """Whether `linear` takes oneDNN for x [B, I] and W [O, I]."""
    return len(x) * weight.numel() >= WORTH and _plain(x, weight)


class Linear(nn.Linear):
    """An nn.Linear that works by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def choose_products(module: nn.Module) -> int:
    """Let every plain nn.Linear without hooks work by `linear`; how many there are. Parameters stay those
    that they were.
    """
    found = 0
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear and not hooked(layer):
                made = Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
                made.weight, made.bias = layer.weight, layer.bias
                setattr(parent, name, made.train(layer.training))
                found += 1
    return found


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a bᵀ + bias, whatever the strides, by the operation that torch.compile makes of linear layers on a
    CPU.
    """
    made: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return made


class _Product(torch.autograd.Function):
    """`product`, which torch has no gradient of, with that of F.linear; where the gradient is itself to be
    differentiated, by operations that can be.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *above: Any) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return gradients(above[0], x, weight, ctx.needs_input_grad, onednn=not torch.is_grad_enabled())


def gradients(
    g: Tensor, x: Tensor, weight: Tensor, wanted: Sequence[bool], *, onednn: bool
) -> tuple[Tensor | None, ...]:
    """∂x = g W, ∂W = gᵀ x and ∂b = Σ g of y = x Wᵀ + b, from g = ∂y [B, O]; None where not wanted. Without
    oneDNN these are the products of F.linear's own backward pass.
    """
    of_x, of_weight, of_bias = wanted
    return (
        (product(g, weight.mT) if onednn else g @ weight) if of_x else None,
        (product(g.mT, x.mT) if onednn else g.mT @ x) if of_weight else None,
        g.sum(0) if of_bias else None,
    )


def _plain(*tensors: Tensor) -> bool:
    """Float32 matrices on the CPU that no autocast and no transform of torch.func stands over."""
    if torch.is_autocast_enabled("cpu"):
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return all(
        t.dim() == 2 and t.dtype == torch.float32 and t.device.type == "cpu" and not wrapped(t)
        for t in tensors
    )
