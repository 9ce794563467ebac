"""Methods, networks, data sets and splits that each break one sentence of the contract."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from raffed.core.context import Context, Forward
from raffed.core.ingredients import Term
from raffed.core.method import Method
from raffed.data.dataset import Dataset
from raffed.data.split import Split

CALLS = itertools.count()


class DrawsGlobally(Term):
    def loss(self, f: Forward, k: Context) -> Tensor:
        return torch.rand(()) * f.logits.square().mean()


class Branches(Term):
    """Decides by a tensor's value, which a stack of clients cannot."""

    def loss(self, f: Forward, k: Context) -> Tensor:
        return f.logits.square().mean() if bool(f.logits.sum() > 0) else f.logits.mean()


class Explodes(Term):
    def loss(self, f: Forward, k: Context) -> Tensor:
        return f.logits.sum() / 0.0


class Raises(Term):
    def loss(self, f: Forward, k: Context) -> Tensor:
        raise ValueError("a mistake of mine")


class Forgets(Term):
    """Is computed from the trained weights without their gradient, so that it changes nothing."""

    def loss(self, f: Forward, k: Context) -> Tensor:
        return (f.w - k.w0).sq_norm().detach()


class Holds(Term):
    value: Tensor

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.value * f.logits.square().mean()


def of(term: type[Term], *args: object) -> Callable[[], Method]:
    def broken() -> Method:
        return Method("Broken", terms=(term(*args),))

    return broken


def raises() -> Method:
    return Method("Broken", terms=(Raises(),))


def undeclared(mu=0.1) -> Method:  # type: ignore[no-untyped-def]
    return Method("Broken")


class Unused(nn.Module):
    """Has a layer that its scores do not depend on, and a buffer that counts the steps."""

    def __init__(self, in_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.idle, self.head = nn.Linear(3, 3), nn.Linear(64, num_classes)
        self.register_buffer("steps", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        return self.head(x.flatten(1))


class Mixes(nn.Module):
    """Subtracts the mean of the batch, and draws noise."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.head(x - x.mean(0) + torch.rand(()))


def features_only(in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(1), nn.Linear(64, 3))


def another_each_time() -> Dataset:
    return Dataset(np.full((4, 2), next(CALLS), dtype=np.float32), np.array([0, 1, 0, 1]))


def with_a_gap() -> Dataset:
    x = np.array([[0.0], [1.0], [2.0], [3.0]], dtype=np.float32)
    return Dataset(x, np.array([0, 0, 2, 2]), x[:2], np.array([0, 0]), clients=np.array([0, 0, 2, 2]))


@dataclass(frozen=True)
class Unseeded(Split):
    """Draws another division every time, and gives a sample twice."""

    name, syntax, meaning = "unseeded", "unseeded:CLIENTS", "draws from nowhere"
    clients: int = 2

    def divide(
        self, labels: NDArray[np.int64], seed: int, num_classes: int | None = None
    ) -> list[NDArray[np.int64]]:
        order = np.random.permutation(len(labels))  # noqa: NPY002 (the mistake)
        return [order[:900], order[800:]]


BROKEN_METHODS: list[tuple[Callable[..., Method], str]] = [
    (of(DrawsGlobally), "same-seed-same-bits"),
    (of(DrawsGlobally), "no-global-generator"),
    (of(Branches), "serial-is-stacked"),
    (of(Explodes), "finite-losses"),
    (raises, "finite-losses"),
    (of(Forgets), "terms-have-gradients"),
    (of(Holds, torch.tensor(0.1)), "plain-data"),
    (undeclared, "arguments-declared"),
]
