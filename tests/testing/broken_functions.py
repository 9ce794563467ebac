"""Losses, metrics, schedules, selections and tables as a careless person writes them.

Each breaks one sentence of the contract.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

import raffed
from raffed import Claim, RunConfig

CALLS = itertools.count()


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    return -logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0]


def of_a_number(logits, labels):
    return ce(logits, labels).mean().item()


def of_the_wrong_sign(logits, labels):
    return -ce(logits, labels)


def log_of_softmax(logits, labels):
    return -logits.softmax(-1).log().gather(-1, labels[:, None])[:, 0]


def standardised(logits, labels):
    """Divides by a standard deviation, which one sample does not have."""
    return ce(logits / logits.std(0), labels)


def weighted_by_rarity(logits, labels, class_counts):
    rarity = 1.0 / class_counts
    return (rarity / rarity.sum())[labels] * ce(logits, labels)


def with_noise(logits, labels):
    return ce(logits + torch.randn_like(logits), labels)


def with_a_counter(logits, labels):
    return ce(logits, labels) / (1 + next(CALLS))


def in_place(logits, labels):
    with torch.no_grad():
        logits.sub_(logits.amax(-1, keepdim=True) - 1.0)
    return ce(logits, labels)


def of_the_wrong_ones(logits, labels):
    """Has a result whose size depends on values, which a stack of clients cannot have."""
    wrong = logits.argmax(-1) != labels
    return ce(logits[wrong], labels[wrong]).sum() / len(labels)


BROKEN_LOSSES: dict[Callable[..., object], str] = {
    of_a_number: "returns-losses",
    of_the_wrong_sign: "right-is-lower",
    log_of_softmax: "finite-when-sure",
    standardised: "one-sample",
    weighted_by_rarity: "absent-classes",
    with_noise: "no-global-generator",
    with_a_counter: "same-twice",
    in_place: "inputs-unchanged",
    of_the_wrong_ones: "stackable",
}


@raffed.metric(unit="fraction")
def percents(scores, labels):
    return 100.0 * (scores.argmax(-1) == labels).float().mean()


@raffed.metric(better="lower")
def odds(scores, labels):
    """Is infinite where the softmax of the label is exactly 1."""
    sure = scores.softmax(-1).gather(-1, labels[:, None])[:, 0].mean()
    return (1 - sure) / sure if sure < 0.5 else 1 / (1 - sure.round(decimals=1))


def error_rate(scores, labels):
    return (scores.argmax(-1) != labels).float().mean()


def confidence_spread(scores, labels):
    found = scores.softmax(-1).amax(-1).tolist()
    return sum((one - sum(found) / len(found)) ** 2 for one in found) / (len(found) - 1)


def worst_recall(scores, labels):
    """Fails for a client that lacks a class."""
    hits = scores.argmax(-1) == labels
    return min(sum(hits[labels == c].tolist()) / int((labels == c).sum()) for c in range(scores.shape[1]))


def first_half(scores, labels):
    half = (len(labels) + 1) // 2
    return (scores[:half].argmax(-1) == labels[:half]).float().mean()


def bootstrapped(scores, labels):
    chosen = np.random.randint(len(labels), size=len(labels))  # noqa: NPY002 (the mistake)
    return (scores.argmax(-1) == labels)[chosen].float().mean()


def running_mean(scores, labels):
    return (scores.argmax(-1) == labels).float().mean() / (1 + next(CALLS))


def accuracy_of_sorted(scores, labels):
    labels.copy_(labels.sort().values)
    return (scores.argmax(-1) == labels).float().mean()


BROKEN_METRICS: dict[Callable[..., object], str] = {
    percents: "one-number",
    odds: "finite-when-sure",
    error_rate: "direction",
    confidence_spread: "one-sample",
    worst_recall: "one-class",
    first_half: "any-order",
    bootstrapped: "no-global-generator",
    running_mean: "same-twice",
    accuracy_of_sorted: "inputs-unchanged",
}


def below_zero(done, total):
    return 1 - 2 * done / total


def never(done, total):
    return done // total


def halved_at_every_call(done, total):
    return 0.5 ** next(CALLS)


def jittered(done, total):
    return 1.0 + 0.1 * random.random()


BROKEN_SCHEDULES: dict[Callable[..., float], str] = {
    below_zero: "returns-factors",
    never: "trains",
    halved_at_every_call: "same-twice",
    jittered: "no-global-generator",
}


def counted_from_one(sizes, count):
    return range(1, count + 1)


def beside_the_largest(sizes, count):
    """Needs a second client."""
    ranked = sorted(range(len(sizes)), key=lambda client: -sizes[client])
    return [ranked[1], *(one for one in ranked if one != ranked[1])][:count]


def by_numpy(sizes, count):
    return np.random.permutation(len(sizes))[:count]  # noqa: NPY002 (the mistake)


LAST: list[int] = []


def not_the_last_ones(sizes, count):
    """Prefers clients that did not take part in the round that was drawn before."""
    LAST[:] = sorted(range(len(sizes)), key=lambda client: (client in LAST, client))[:count]
    return list(LAST)


def smallest(sizes, count):
    order = sorted(range(len(sizes)), key=lambda client: sizes[client])
    sizes.sort()
    return order[:count]


BROKEN_SELECTIONS: dict[Callable[..., Sequence[int]], str] = {
    counted_from_one: "clients-exist",
    beside_the_largest: "one-client",
    not_the_last_ones: "same-twice",
    by_numpy: "no-global-generator",
    smallest: "inputs-unchanged",
}

BASE = RunConfig()
PAIR = {("FedAvg", "digits"): BASE, ("FedProx", "digits"): BASE.changed({"method": "fedprox"})}
UNKNOWN = raffed.table("t", "t", {("A", "x"): BASE.changed({"data.dataset": "nosuch"})})
MISTYPED = raffed.table("t", "t", {("A", "x"): BASE.changed({"method": "fedprox", "args": {"mu": -1.0}})})
EMPTY_PROXY = raffed.table("t", "t", PAIR, proxy=lambda config: None)
TWICE = raffed.table("t", "t", {("A", "x"): BASE, ("B", "x"): replace(BASE)})
FRACTIONS = raffed.table("t", "t", PAIR, printed={("FedAvg", "digits"): 0.93})
ITSELF = raffed.table("t", "t", PAIR, claims=[Claim.above("FedProx wins", "FedProx", "FedProx", "digits")])


def drawn():
    return raffed.table("t", "t", {("A", "x"): replace(BASE, seed=random.randrange(1000))})


def another_each_time():
    rate = 1.0 / (1 + next(CALLS))
    return raffed.table("t", "t", {("A", "x"): BASE.changed({"local.lr": rate})})


BROKEN_TABLES = {
    "UNKNOWN": "names-exist",
    "MISTYPED": "runs-possible",
    "EMPTY_PROXY": "every-scale",
    "another_each_time": "same-twice",
    "drawn": "no-global-generator",
    "TWICE": "cells-differ",
    "FRACTIONS": "printed-in-percent",
    "ITSELF": "claims-can-be-false",
}
