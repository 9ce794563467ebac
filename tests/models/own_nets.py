"""Networks as users write them: plain modules that return class scores. The tests refer to them by name."""

from __future__ import annotations

import random
from collections import OrderedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, LENGTH, FEATURES, CLASSES = 11, 6, 13, 3


class SmallNet(nn.Module):
    """A small residual network, as in torchvision: BatchNorm, ReLU in place, a head named fc."""

    def __init__(self, num_classes: int, width: int = 4, channels: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.block = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(4 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.norm(self.stem(x)))
        h = self.pool(self.relu(self.block(h) + h))
        scores: Tensor = self.fc(torch.flatten(h, 1))
        return scores


class Dropped(nn.Module):
    def __init__(self, in_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.inner = nn.Linear(in_shape[0], 8)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.drop(torch.relu(self.inner(x))))
        return scores


def chain(num_classes: int) -> nn.Module:
    """raffed's `mlp` as a user would write it."""
    return nn.Sequential(
        nn.Flatten(1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, num_classes)
    )


class OwnFeatures(nn.Sequential):
    """A perceptron that has an argument `features` itself."""

    def __init__(self, in_shape: tuple[int, ...], num_classes: int, features: int = 8) -> None:
        super().__init__(nn.Linear(in_shape[0], features), nn.ReLU(), nn.Linear(features, num_classes))


class Sentence(nn.Module):
    """Ids [B, L] to scores, through attention or a recurrent layer."""

    def __init__(self, num_classes: int, kind: str = "attention") -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, 8)
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True) if kind == "attention" else None
        self.memory = nn.GRU(8, 8, batch_first=True) if kind == "GRU" else None
        self.out = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x)
        if self.mix is not None:
            h = self.mix(h, h, h, need_weights=False)[0]
        if self.memory is not None:
            h = self.memory(h)[0]
        scores: Tensor = self.out(h.mean(1))
        return scores


def table(num_classes: int, kind: str = "LayerNorm") -> nn.Module:
    """A row of a table to scores, with a normalising layer."""
    norm = nn.LayerNorm(8) if kind == "LayerNorm" else nn.BatchNorm1d(8)
    layers = OrderedDict(inner=nn.Linear(FEATURES, 8), norm=norm, act=nn.Tanh())
    return nn.Sequential(OrderedDict(**layers, out=nn.Linear(8, num_classes)))


def repeated(num_classes: int) -> nn.Module:
    """A linear layer, an activation and a dropout layer that stand in two places."""
    act, drop, inner = nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64)
    return nn.Sequential(nn.Flatten(1), inner, act, drop, inner, act, drop, nn.Linear(64, num_classes))


def one_activation(num_classes: int) -> nn.Module:
    act, layers = nn.Tanh(), [nn.Linear(64, 32), nn.Linear(32, 16), nn.Linear(16, num_classes)]
    return nn.Sequential(nn.Flatten(1), layers[0], act, layers[1], act, layers[2])


def flat_norm(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(1), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, num_classes))


class Trap(nn.Module):
    """A perceptron on rows [B, 13] whose forward or constructor does one thing that matters."""

    def __init__(self, num_classes: int, trap: str = "") -> None:
        super().__init__()
        self.trap, self.calls = trap, 0
        self.inner, self.out = nn.Linear(FEATURES, 8), nn.Linear(8, num_classes)
        self.other = nn.Linear(8, 8)
        self.register_buffer("scale", torch.full((8,), 2.0))
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        if trap == "tied":
            self.other.weight = nn.Parameter(self.inner.weight[:, :8].detach().clone())
            self.twin = nn.Linear(8, 8)
            self.twin.weight = self.other.weight
        if trap == "tied head":
            self.other = nn.Linear(8, num_classes)
            self.other.weight = self.out.weight
        if trap == "frozen":
            self.inner.requires_grad_(False)
        if trap == "frozen head":
            self.out.requires_grad_(False)
        if trap == "lazy":
            self.inner = nn.LazyLinear(8)
        if trap == "float64":
            self.inner.double()
        if trap == "momentum":
            self.norm = nn.BatchNorm1d(8, momentum=None)
        if trap == "numpy":
            self.inner.weight.data.mul_(float(np.random.default_rng().random()))
        if trap == "python":
            self.inner.weight.data.mul_(random.random())

    def forward(self, x: Tensor) -> Tensor:
        trap = self.trap
        if trap == "in place":
            x += 1
        if trap == "exit":
            raise SystemExit(0)
        h = self.inner(x.double()).float() if trap == "float64" else self.inner(x)
        h = torch.tanh(h)
        if trap == "constants":
            h = h * self.scale
        if trap == "tied":
            h = self.twin(self.other(h))
        if trap == "rand":
            h = h + torch.rand_like(h)
        if trap == "dropout":
            h = F.dropout(h, 0.5, self.training)
        if trap == "memory":
            self.calls += 1
            h = h * self.calls
        if trap == "average":
            self.scale = 0.9 * self.scale + 0.1 * h.detach().abs().mean(0)
        if trap == "over the batch":
            h = h - h.mean(0)
        if trap == "branch" and h.sum() > 0:
            h = h * 2
        return self._ended(h)

    def _ended(self, h: Tensor) -> Tensor:
        scores: Tensor = self.out(h)
        if self.trap == "tuple":
            return scores, h  # type: ignore[return-value]
        if self.trap == "softmax":
            return scores.softmax(1)
        if self.trap == "cooled":
            return scores / (2.0 if self.training else 1.0)
        return scores


def a_list(num_classes: int) -> list[int]:
    return [num_classes]


def broken(num_classes: int) -> nn.Module:
    return nn.Linear(FEATURES, num_classes + undefined)  # type: ignore[name-defined]  # noqa: F821
