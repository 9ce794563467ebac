"""A user's file with a split, losses, metrics and a data set of their own, and small runs with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from raffed import Local, RunConfig
from tests.tiny import digits

FILE = '''
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch

import raffed
from raffed.config.validation import Doc, Range
from raffed.data.split import Split
from raffed.data.randomness import stream


def halves(labels, rng, clients: Annotated[int, Range(2), Doc("Clients.")] = 4, share: float = 0.5):
    order = rng.permutation(len(labels))
    first = int(share * len(order))
    return [order[:first], *np.array_split(order[first:], clients - 1)]


@raffed.split(overlapping=True)
def everybody(labels, clients: int = 3):
    return [range(len(labels))] * clients


def by_class(labels, num_classes):
    return [np.flatnonzero(labels == one).tolist() for one in range(num_classes)]


def needs_clients(labels, rng, clients: int):
    return np.array_split(rng.permutation(len(labels)), clients)


@dataclass(frozen=True)
class Lumps(Split):
    name, syntax, meaning = "lumps", "lumps:CLIENTS", "even parts"
    clients: Annotated[int, Range(1), Doc("Clients.")] = 3

    def divide(self, labels, seed, num_classes=None):
        return np.array_split(stream(seed, "lumps").permutation(len(labels)), self.clients)


def ce(logits, labels):
    return -logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0]


def mean_ce(logits, labels):
    return torch.nn.functional.cross_entropy(logits, labels)


def focal(logits, labels, gamma: Annotated[float, Range(0.0, 10.0), Doc("Focus.")] = 2.0):
    nll = ce(logits, labels)
    return (1 - (-nll).exp()) ** gamma * nll


def balanced(logits, labels, class_counts):
    return ce(logits + class_counts.clamp(min=1).to(logits.dtype).log(), labels)


@raffed.metric(unit="fraction")
def right(scores, labels):
    """The share of right answers."""
    return (scores.argmax(-1) == labels).double().mean()


@raffed.metric(name="wrong", unit="fraction", better="lower")
def errors(scores, labels):
    return 1 - right(scores, labels)


@raffed.metric(better="lower", unit="nats")
def nll(scores, labels):
    return ce(scores, labels).mean()


def mine():
    draws = np.random.default_rng(0)
    y = np.arange(60) % 3
    return raffed.Dataset.from_arrays(draws.normal(size=(60, 4)) + y[:, None], y, test=0.2)
'''
BASE = digits("p4c5", local_test=0.2, local=Local(lr=0.05, batch_size=64, epochs=1))


def write(folder: Path) -> None:
    (folder / "mylab.py").write_text(FILE.lstrip("\n"), encoding="utf-8")


def federated(**changes: float | str) -> RunConfig:
    return replace(BASE, federation=replace(BASE.federation, **changes))
