"""Dropout whose mask is a function of one integer, so that stacked clients can each be given their own.

torch's dropout draws from a global generator: it cannot run under `torch.func.vmap` with a stream a client, and on a GPU it
gives other bits than on a CPU. Here a key decides which elements stay, by integer arithmetic alone, the same on any device.

    one client        nothing to do: a key is drawn on the CPU from torch's global generator, which the kernel forks for
                      every stretch of training (seeds.forked)
    stacked clients   keys = stacked `dropout_keys(net, generator)` of the clients, each from its client's own generator,
                      passed to `functional_call` beside parameters and buffers; a new one every step
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from raffed.core.errors import check_range

_LOW = 2**32 - 1
_ODD = 0x45D9F3B  # below 2^31: a product with 32 bits stays inside int64


class Dropout(nn.modules.dropout._DropoutNd):
    """Each element 0 with probability p, else divided by 1 - p; with `rows` a sample's elements share one fate (Huang et al.
    2016, stochastic depth). Evaluation mode: x itself.

    `key` is an int64 buffer, never saved nor averaged: a scalar when given from outside, empty otherwise.
    """

    key: Tensor

    def __init__(self, p: float, rows: bool = False) -> None:
        check_range("dropout", p, 0.0, 0.99)
        super().__init__(p)
        self.rows = rows
        self.register_buffer("key", torch.zeros(0, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        key = self.key if self.key.dim() == 0 else draw_key(None)
        size = (len(x), *[1] * (x.dim() - 1)) if self.rows else x.shape
        place = torch.arange(torch.Size(size).numel(), device=x.device).view(size)
        kept = uniform_bits(key.to(x.device), place) >= round(self.p * 2**32)
        return torch.where(kept, x / (1 - self.p), 0.0)


def draw_key(generator: torch.Generator | None) -> Tensor:
    """A key, int64 scalar in [0, 2^62), from a CPU generator; None is torch's global one."""
    return torch.randint(2**62, (), generator=generator, device="cpu")


def dropout_keys(net: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Buffer name → key of every dropout of a net for one training step, drawn in the order in which the net runs them.

    The numbers are those that the net itself would draw, were `generator` torch's global one.
    """
    named = [(name, m) for name, m in net.named_modules() if isinstance(m, Dropout) and m.p > 0]
    return {f"{name}.key": draw_key(generator) for name, _ in named}


def uniform_bits(key: Tensor, place: Tensor) -> Tensor:
    """32 random bits for every place (int64, 0 ≤ place < 2^32), as int64: two keyed rounds of a multiply-xorshift mix."""
    return _mix(_mix((place + (key & _LOW)) & _LOW) ^ (key >> 32))


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32 bits in which each input bit changes about half of the output bits (T. Mueller's integer hash)."""
    x = ((x >> 16) ^ x) * _ODD & _LOW
    x = ((x >> 16) ^ x) * _ODD & _LOW
    return (x >> 16) ^ x
