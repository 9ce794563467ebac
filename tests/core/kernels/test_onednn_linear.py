"""Linear layers by oneDNN: F.linear's values and gradients, once and twice, and its very bits wherever
oneDNN is not chosen.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from raffed.core.kernels.linear import WORTH, Linear, choose_products, linear

LARGE, SMALL = (64, 256, 128), (16, 64, 64)  # samples, inputs, outputs: on either side of WORTH

needs_onednn = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch is built without oneDNN"
)


def tensors(samples: int, inputs: int, outputs: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """x, W, b."""
    g = torch.Generator().manual_seed(0)
    shapes = (samples, inputs), (outputs, inputs), (outputs,)
    return [
        torch.randn(*shape, dtype=torch.float64, generator=g).to(dtype).requires_grad_() for shape in shapes
    ]


def weighed(y: Tensor) -> Tensor:
    """A sum with unequal weights, of squares: with a second derivative."""
    return (y**2 * torch.linspace(0.1, 1.0, y.numel(), dtype=y.dtype).view_as(y)).sum()


def by_onednn(y: Tensor) -> bool:
    return y.grad_fn is not None and "_Product" in y.grad_fn.name()


def near(found: Tensor, exact: Tensor) -> None:
    """Up to float32's rounding of a sum of a few hundred terms, against float64."""
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5 * float(exact.abs().max()))


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_the_formula_s_in_float64(bias: bool) -> None:
    """y = x Wᵀ + b; ∂x = g W, ∂W = gᵀ x, ∂b = Σ g."""
    x, w, b = tensors(*LARGE)
    exact = [t.detach().double() for t in (x, w, b)]
    y = linear(x, w, b if bias else None)
    assert by_onednn(y)
    value = exact[0] @ exact[1].T + (exact[2] if bias else 0.0)
    near(y, value)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    wanted = [g.double() @ exact[1], g.double().T @ exact[0], g.double().sum(0)]
    asked = [x, w, b] if bias else [x, w]
    for found, gradient in zip(torch.autograd.grad(y, asked, g), wanted, strict=False):
        near(found, gradient)


@needs_onednn
def test_gradients_can_be_differentiated_again() -> None:
    """As gradient matching does: ∂/∂(x, W) of the squared gradient by W and b, against F.linear in
    float64.
    """
    found = []
    for function, dtype in ((linear, torch.float32), (F.linear, torch.float64)):
        x, w, b = tensors(*LARGE, dtype=dtype)
        first = torch.autograd.grad(weighed(function(x, w, b)), (w, b), create_graph=True)
        found.append(torch.autograd.grad(sum((t**2).sum() for t in first), (x, w)))  # type: ignore[arg-type]
    for one, exact in zip(*found, strict=True):
        near(one, exact)


@needs_onednn
def test_small_layers_other_types_autocast_and_transforms_have_f_linear_s_bits() -> None:
    x, w, b = tensors(*SMALL)
    assert len(x) * w.numel() < WORTH
    assert torch.equal(linear(x, w, b), F.linear(x, w, b))
    x, w, b = tensors(*LARGE)
    assert len(x) * w.numel() >= WORTH
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, w, b).dtype == torch.bfloat16
    assert torch.equal(
        linear(x.double(), w.double(), b.double()), F.linear(x.double(), w.double(), b.double())
    )
    three, ws = x.expand(3, *x.shape), torch.stack([w, 2 * w, 3 * w])
    assert torch.equal(vmap(linear, (0, 0, None))(three, ws, b), vmap(F.linear, (0, 0, None))(three, ws, b))
    slopes = [grad(lambda w, f=f: weighed(f(x, w, b)))(w) for f in (linear, F.linear)]
    assert torch.equal(*slopes)


def test_plain_layers_alone_are_replaced_and_keep_their_parameters() -> None:
    class Own(nn.Linear):
        pass

    watched = nn.Linear(3, 3)
    watched.register_forward_hook(lambda *_: None)
    module = nn.Sequential(
        nn.Linear(4, 3), Own(3, 3), nn.Sequential(watched, nn.Linear(3, 2, bias=False))
    ).eval()
    before = dict(module.named_parameters())
    assert choose_products(module) == 2
    assert [type(m) for m in module.modules() if isinstance(m, nn.Linear)] == [Linear, Own, nn.Linear, Linear]
    after = dict(module.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    assert not any(m.training for m in module.modules())


class Operands(TorchDispatchMode):
    """Remembers the second operand of every product by oneDNN."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op is torch.ops.mkldnn._linear_pointwise.default:
            self.seen.append(args[1])
        return op(*args, **(kwargs or {}))


@needs_onednn
def test_what_was_cut_out_of_wider_rows_is_multiplied_in_one_piece() -> None:
    """oneDNN has no fast kernel for other second operands: the gradient of a layer that sees half of the
    columns of its input took a thousand times as long, and so did a weight that is a part of another one.
    """
    samples, inputs, outputs = LARGE
    wide, w, b = tensors(samples, 2 * inputs, outputs)
    x, weight = wide[:, :inputs], w[:, inputs:]
    with Operands() as operands:
        y = linear(x, weight, b)
        found = torch.autograd.grad(weighed(y), [wide, w, b])
    assert by_onednn(y)
    assert len(operands.seen) == 3
    assert all(one.is_contiguous() or one.mT.is_contiguous() for one in operands.seen)
    exact = [t.detach().double().requires_grad_() for t in (wide, w, b)]
    value = F.linear(exact[0][:, :inputs], exact[1][:, inputs:], exact[2])
    near(y, value.detach())
    for slope, gradient in zip(found, torch.autograd.grad(weighed(value), exact), strict=True):
        near(slope, gradient)
