"""Channels of zeros between convolutions change no output and no gradient, and parameters know nothing of
them.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from raffed.core.kernels.convolution import VECTOR, FilledConv2d, fill_channels

FORMATS = [torch.contiguous_format, torch.channels_last]


def chain(*channels: int, bias: bool = True) -> nn.Sequential:
    """Convolutions with these channels, padded so that the pools' windows see borders, ReLU and max-pool
    behind each.
    """
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [
            nn.Conv2d(before, after, 3, padding=1, bias=bias),
            nn.MaxPool2d(3, 2, padding=1),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers).double()


def passed(layers: nn.Module, x: Tensor) -> list[Tensor]:
    """The output for x, and the gradients by x and by every parameter of a sum with unequal weights."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = layers(x)
    weights = torch.linspace(1.0, 2.0, y.numel(), dtype=y.dtype).view_as(y)
    return [y, *torch.autograd.grad((y * weights).sum(), [x, *layers.parameters()])]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("channels", [(1, 6, 16), (3, 1, 2), (2, 5, 7, 3)])
def test_outputs_and_gradients_are_those_of_the_plain_layers(
    channels: tuple[int, ...], bias: bool, format: torch.memory_format
) -> None:
    plain, filled = chain(*channels, bias=bias), chain(*channels, bias=bias)
    assert fill_channels(filled) == len(channels) - 2
    g = torch.Generator().manual_seed(1)
    x = torch.randn(4, channels[0], 9, 9, dtype=torch.float64, generator=g).to(memory_format=format)
    for a, b in zip(passed(plain, x), passed(filled, x), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_what_may_not_be_filled_stays() -> None:
    hooked, behind = chain(1, 6, 16), chain(1, 6, 16)
    hooked[0].register_forward_hook(lambda *_: None)
    behind[1].register_forward_hook(lambda *_: None)
    first, second = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 16, 3)
    for layers in (
        hooked,
        behind,
        chain(1, VECTOR, 16),
        chain(1, 6),
        nn.Sequential(first, nn.BatchNorm2d(6), second),
        nn.Sequential(first, nn.Sigmoid(), second),  # of 0 it makes 1/2
        nn.Sequential(first, nn.Dropout(), second),  # would draw numbers for the zeros
        nn.Sequential(nn.Conv2d(2, 6, 3, groups=2), second),
        nn.Sequential(first, nn.Conv2d(6, 12, 3, groups=6)),
        nn.Sequential(first, nn.Flatten(1), nn.Linear(6, 2)),
    ):
        assert fill_channels(layers) == 0
        assert not any(isinstance(layer, FilledConv2d) for layer in layers)
