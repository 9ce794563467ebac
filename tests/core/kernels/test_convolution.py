"""The compiled convolution, and linear layers by oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from raffed.core.kernels import convolution
from raffed.core.kernels.convolution import (
    CompiledConv2d,
    Convolution,
    choose_convolutions,
    fits,
)
from raffed.core.kernels.linear import WORTH, Linear, choose_products, linear
from raffed.core.losses import cross_entropy
from raffed.core.training.network import Network
from raffed.models import build

# The compiled convolution: torch's numbers up to rounding, alone, in stacks and differentiated again.
#
# Sums of whole numbers below 2^24 are exact in float32, whatever their order, so on them both are equal.

pytestmark = pytest.mark.skipif(not convolution.built, reason="raffed was installed without a C compiler")

# Channels, outputs, kernel, padding, images. Tiles of every length, both widths, one image, one output
SHAPES = [
    (1, 8, (5, 5), (2, 2), (3, 1, 14, 13)),
    (3, 16, (3, 3), (1, 1), (2, 3, 9, 9)),
    (8, 24, (3, 2), (0, 1), (2, 8, 7, 8)),
    (16, 32, (1, 1), (0, 0), (1, 16, 5, 11)),
    (6, 8, (4, 3), (3, 2), (2, 6, 6, 4)),
    (5, 16, (5, 1), (0, 0), (2, 5, 5, 1)),
    (40, 64, (3, 3), (1, 0), (1, 40, 30, 27)),
]


def whole(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Whole numbers from −3 to 3."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_whole_numbers_give_exactly_torchs_result_and_gradients(
    shape: tuple[int, int, tuple[int, int], tuple[int, int], tuple[int, ...]], channels_last: bool
) -> None:
    c, o, kernel, padding, images = shape
    x, w, b = whole(images), whole((o, c, *kernel), 1), whole((o,), 2)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    leaves = [t.requires_grad_() for t in (x, w, b)]
    ours, theirs = Convolution.of(x, w, b, 0, padding), F.conv2d(x, w, b, padding=padding)
    assert torch.equal(ours, theirs)
    above = whole(tuple(theirs.shape), 3)
    for mine, other in zip(
        torch.autograd.grad(ours, leaves, above), torch.autograd.grad(theirs, leaves, above), strict=True
    ):
        assert torch.equal(mine, other)


# (1 + 2^-12)² − (1 + 2^-11) is 2^-24 if it is rounded once, and 0 in float32 if the square is rounded first
ABOVE_ONE, MINUS = 1 + 2**-12, -(1 + 2**-11)


@pytest.mark.parametrize("outputs", [8, 16])
@pytest.mark.parametrize("width", range(1, 13))
def test_a_product_and_its_sum_are_rounded_once_in_tiles_of_every_length(width: int, outputs: int) -> None:
    x, w = torch.full((1, 1, 1, width), ABOVE_ONE), torch.full((outputs, 1, 1, 1), ABOVE_ONE)
    assert (Convolution.of(x, w, torch.full((outputs,), MINUS), 0, (0, 0)) == 2**-24).all()


def _squared(of: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda w, b, x: of(x, w, b).square().sum()


def _ours(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return Convolution.of(x, w, b, 0, (1, 1))


def _torchs(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv2d(x, w, b, padding=1)


def test_gradients_can_be_differentiated_again_alone_and_in_a_stack() -> None:
    """The gradient of the squared length of the gradient, for each argument."""

    def twice(of: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, ...]]:
        def length(w: Tensor, b: Tensor, x: Tensor) -> Tensor:
            return torch.stack([g.square().sum() for g in grad(_squared(of), (0, 1, 2))(w, b, x)]).sum()

        found: Callable[..., tuple[Tensor, ...]] = grad(length, (0, 1, 2))
        return found

    w, b, x = whole((2, 8, 3, 3, 3)) / 8, whole((2, 8), 1) / 8, whole((2, 4, 3, 5, 5), 2) / 8
    for mine, other in zip(twice(_ours)(w[0], b[0], x[0]), twice(_torchs)(w[0], b[0], x[0]), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-3)
    for mine, other in zip(vmap(twice(_ours))(w, b, x), vmap(twice(_torchs))(w, b, x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-3)


def test_each_client_of_a_stack_has_the_bits_that_it_has_alone() -> None:
    w, b, x = torch.randn(3, 16, 8, 3, 3), torch.randn(3, 16), torch.randn(3, 4, 8, 9, 9)
    together = vmap(grad(_squared(_ours), (0, 1, 2)))(w, b, x)
    for i in range(3):
        for mine, other in zip(
            together, grad(_squared(_ours), (0, 1, 2))(w[i].clone(), b[i].clone(), x[i].clone()), strict=True
        ):
            assert torch.equal(mine[i], other)


@pytest.mark.parametrize(
    ("name", "shape"), [("lenet", (1, 28, 28)), ("tfcnn", (3, 32, 32)), ("resnet8", (3, 8, 8))]
)
def test_a_network_trains_as_with_torchs_convolutions(name: str, shape: tuple[int, int, int]) -> None:
    nets = [Network(build(name, shape, 10, 0), convolutions=own) for own in (False, True)]
    assert any(isinstance(layer, CompiledConv2d) for layer in nets[1].module.modules())
    x, y = torch.randn(5, *shape, generator=torch.Generator().manual_seed(1)), torch.arange(5)
    gradients = []
    for net in nets:
        leaves = net.leaves("all")
        loss = cross_entropy(net.forward(x, y).logits, y)
        gradients.append(torch.autograd.grad(loss, list(leaves.values())))
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 8, 3, stride=2),
        nn.Conv2d(3, 8, 3, dilation=2),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(3, 8, 3, padding=3),
        nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(3, 8, 3, padding="same"),
        nn.Conv2d(3, 6, 3),
        nn.Conv2d(256, 256, 3),
    ],
)
def test_what_the_kernel_does_not_compute_stays_torchs(layer: nn.Conv2d) -> None:
    parent = nn.Sequential(layer)
    assert not fits(layer)
    assert choose_convolutions(parent) == 0
    assert parent[0] is layer


# Linear layers by oneDNN: F.linear's values and gradients, once and twice, and its very bits wherever
# oneDNN is not chosen.

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
