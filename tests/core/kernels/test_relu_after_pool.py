"""A ReLU behind the max-pool gives the bits of a ReLU before it, forwards and backwards, ties and all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from raffed.core.kernels.autograd import pool_first


def passed(layers: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The output for x, and the gradient by x of a sum with unequal weights."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = layers(x)
    weights = torch.linspace(1.0, 2.0, y.numel()).view_as(y)
    return y, torch.autograd.grad((y * weights).sum(), x)[0]


POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "ceil_mode": True},
]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("levels", [3, 1000])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_the_swap_keeps_every_bit(pool: dict[str, int], levels: int, format: torch.memory_format) -> None:
    """`levels` 3: the values -1, 0 and 1 alone, so that nearly every window has ties, and some are all
    zero or negative.
    """
    g = torch.Generator().manual_seed(0)
    x = (torch.randint(0, levels, (4, 6, 9, 9), generator=g).float() - levels // 2).contiguous(
        memory_format=format
    )
    plain, swapped = (nn.Sequential(nn.ReLU(), nn.MaxPool2d(**pool)) for _ in range(2))  # type: ignore[arg-type]
    assert pool_first(swapped) == 1
    assert isinstance(swapped[0], nn.MaxPool2d)
    for a, b in zip(passed(plain, x), passed(swapped, x), strict=True):
        assert torch.equal(a, b)


def test_what_is_no_plain_relu_before_a_plain_pool_stays() -> None:
    hooked = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    hooked[0].register_forward_hook(lambda *_: None)
    for layers in (
        hooked,
        nn.Sequential(nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.ReLU(), nn.Dropout(), nn.MaxPool2d(2)),
        nn.Sequential(nn.LeakyReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.ReLU(), nn.AvgPool2d(2)),
    ):
        assert pool_first(layers) == 0


def test_a_value_that_is_no_number_is_seen_either_way() -> None:
    x = torch.full((1, 1, 2, 2), -1.0)
    x[0, 0, 1, 0] = float("nan")
    swapped = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    pool_first(swapped)
    assert bool(swapped(x).isnan())
