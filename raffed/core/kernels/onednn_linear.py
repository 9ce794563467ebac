"""Large linear layers computed by oneDNN.

Some processors need twice as long for the products of torch's own library.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.core.kernels.autograd import Saved
from raffed.core.kernels.relu_after_pool import hooked

WORTH = 3 << 19  # multiplications of one product; for smaller ones, calling costs more than the kernel saves


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x Wᵀ + b, computed by oneDNN if that pays. The result equals F.linear up to rounding.

    Measured on one core of an AMD EPYC with AVX-512, 64 samples, forward and backward: 784 x 512 takes 0.70
    ms instead of 1.45 ms, and 512 x 512 takes 0.51 ms instead of 0.98 ms. Only sizes decide, never a timing,
    so that results stay reproducible bit for bit.

    Args:
        x: Inputs [B, I].
        weight: W [O, I].
        bias: b [O], or None.
    """
    if worthwhile(x, weight):
        made: Tensor = _Product.apply(x, weight, bias)
        return made
    return F.linear(x, weight, bias)


def worthwhile(x: Tensor, weight: Tensor) -> bool:
    """Return whether `linear` uses oneDNN for x [B, I] and W [O, I]."""
    return is_large(x, weight) and is_plain(x, weight)


def is_large(x: Tensor, weight: Tensor) -> bool:
    """Return whether the product of x [B, I] and W [O, I] is large enough for oneDNN."""
    return len(x) * weight.numel() >= WORTH


def linear_without_graph(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return what `linear` returns, for plain matrices (`is_plain`) where no gradient is recorded."""
    return product(x, weight, bias) if is_large(x, weight) else F.linear(x, weight, bias)


class Linear(nn.Linear):
    """An nn.Linear that computes with `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def choose_products(module: nn.Module) -> int:
    """Let every plain nn.Linear without hooks compute with `linear`, and return how many there are.

    The parameters stay the same objects.
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
    """Return a bᵀ + bias for any strides, by the operation that torch.compile uses on a CPU.

    A b that is a part of wider rows is copied into one piece, because oneDNN has only a reference kernel for
    it, which takes a thousand times as long.
    """
    b = b if b.is_contiguous() or b.mT.is_contiguous() else b.contiguous()
    made: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return made


class _Product(torch.autograd.Function):
    """`product` with the gradient of F.linear, because torch has no gradient for it.

    If the gradient is itself differentiated, operations that can be differentiated are used.
    """

    @staticmethod
    def forward(ctx: Saved, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Saved, *above: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return gradients(above[0], x, weight, ctx.needs_input_grad, onednn=not torch.is_grad_enabled())


def gradients(
    g: Tensor, x: Tensor, weight: Tensor, wanted: Sequence[bool], *, onednn: bool
) -> tuple[Tensor | None, ...]:
    """Return ∂x = g W, ∂W = gᵀ x and ∂b = Σ g of y = x Wᵀ + b, or None for those that are not wanted.

    Args:
        g: Gradient ∂y [B, O].
        x: Inputs [B, I].
        weight: W [O, I].
        wanted: Which of the three gradients are wanted.
        onednn: Whether oneDNN computes the products. Otherwise they are those of F.linear's backward pass.
    """
    of_x, of_weight, of_bias = wanted
    return (
        (product(g, weight.mT) if onednn else g @ weight) if of_x else None,
        (product(g.mT, x.mT) if onednn else g.mT @ x) if of_weight else None,
        g.sum(0) if of_bias else None,
    )


def is_plain(*tensors: Tensor) -> bool:
    """Return whether all tensors are plain float32 matrices on the CPU.

    This means that neither autocast nor a transform of torch.func is active.
    """
    if torch.is_autocast_enabled("cpu"):
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return all(
        t.dim() == 2 and t.dtype == torch.float32 and t.device.type == "cpu" and not wrapped(t)
        for t in tensors
    )
