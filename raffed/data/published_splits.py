"""Splits whose index lists are those of published code: NIID-Bench, Flower's baselines, PFLlib and FedVLS.

Their last argument is the seed of the division. Published tables often repeat runs on one division, so it is
a different number from the run's seed, which is used if no other is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from raffed.config.validation import Choices, Doc, Range
from raffed.data import published_schemes as published
from raffed.data.files import IntArray
from raffed.data.label_splits import Alpha, Clients, Count
from raffed.data.partition_record import Partition
from raffed.data.published_schemes import LARGEST_SEED, Draws
from raffed.data.split import LabelPool, Split, check_classes, classes_in, unused
from raffed.errors import UsageError, check_range

OwnSeed = Annotated[
    int | None, Range(0, LARGEST_SEED), Doc("Seed of the division; without it: the seed of the run.")
]


class _InPublishedOrder(Split):
    """A split that keeps the order of the published lists, and cuts local test parts as PFLlib does.

    A client's list is permuted by the next numbers of the same stream, and its last ⌊(1 − f) n⌋ samples are
    for training, as scikit-learn's `train_test_split(train_size=1 - f)` does. With f = 0 the published order
    stays.
    """

    default_local_test: ClassVar[float] = 0.0
    code: str
    seed: int | None

    def drawn(self, labels: IntArray, classes: int, draws: Draws) -> list[IntArray]:
        """Return the published lists."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it divides labels")

    def draws(self, seed: int) -> Draws:
        """Return the streams of the published code, for the seed of the run."""
        return Draws.of(self.code, seed if self.seed is None else self.seed)

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        return self.drawn(labels, classes_in(labels, num_classes), self.draws(seed))

    def partition(self, pool: LabelPool, seed: int, local_test: float | None = None) -> Partition:
        share = self.default_local_test if local_test is None else local_test
        check_range("local_test", share, 0, 0.9)
        self.check_local_test(share)
        draws = self.draws(seed)
        parts, common = self.beside_test(pool, draws)
        self.check_sizes(parts, minimum=2 if share else 1)
        both = [self.cut(part, share, draws) for part in parts]
        train, test = tuple(own for own, _ in both), tuple(rest for _, rest in both)
        if len(common):
            test = tuple(np.array_split(common, len(parts)))
        recipe = self.recipe(pool, seed) | {"local_test": share} | unused([*train, *test], len(pool.labels))
        return Partition(train, test, pool.num_classes, {**recipe, "moved": 0})

    def cut(self, part: IntArray, share: float, draws: Draws) -> tuple[IntArray, IntArray]:
        """Return a client's training samples and its local test part."""
        return _cut(part, share, draws)

    def beside_test(self, pool: LabelPool, draws: Draws) -> tuple[list[IntArray], IntArray]:
        """Return the clients' lists, and the samples that are kept for a test of all clients together."""
        return self.drawn(pool.labels, pool.num_classes, draws), np.zeros(0, np.int64)


def _cut(part: IntArray, share: float, draws: Draws) -> tuple[IntArray, IntArray]:
    """Return a client's training samples and its local test part."""
    if not share:
        return part, part[:0]
    order = part[draws.numbers.permutation(len(part))]
    tests = len(part) - max(int((1 - share) * len(part)), 1)
    return order[tests:], order[:tests]


@dataclass(frozen=True)
class LabelCount(_InPublishedOrder):
    """NIID-Bench's #C=k: client i owns class i mod C and k − 1 others, drawn uniformly.

    Each class is shuffled and cut evenly among its owners (Li et al., ICDE 2022; Flower's niid_bench). With
    fewer clients than classes, the samples of a class that nobody owns are left over.
    """

    name, syntax = "label-count", "label-count:CLIENTS:CLASSES[:CODE[:SEED]]"
    meaning = "CLASSES classes each, i mod C and others drawn (NIID-Bench's #C=k)"

    clients: Clients
    classes: Annotated[int, Count, Doc("Number of classes k of each client.")]
    code: Annotated[
        str, Choices("niid-bench", "flower"), Doc("Whose random numbers: NIID-Bench's or Flower's.")
    ] = "niid-bench"
    seed: OwnSeed = None

    def drawn(self, labels: IntArray, classes: int, draws: Draws) -> list[IntArray]:
        return published.label_count(labels, classes, self.clients, self.classes, draws)

    def check_data(self, data: str, num_classes: int) -> None:
        check_classes(self.text, self.classes, data, num_classes)


@dataclass(frozen=True)
class CappedDirichlet(_InPublishedOrder):
    """Each class is divided by a Dirichlet distribution, and clients with N/K samples get no more.

    The whole draw is repeated until every client has the least number of samples (Wang et al., ICLR 2020;
    NIID-Bench, MOON, FedNova, PFLlib, FedVLS). A common test part is drawn before that, as FedVLS does with
    MNIST. It is dealt to the clients as their local test parts, so the global model is scored on all of it
    if the data have no test set of their own (data.pool = "joined").
    """

    name = "capped-dirichlet"
    syntax = "capped-dirichlet:CLIENTS:ALPHA[:LEAST[:CODE[:COMMON_TEST[:SEED]]]]"
    meaning = "each class by Dir(alpha), at most about N/K samples a client (NIID-Bench, PFLlib)"

    clients: Clients
    alpha: Alpha
    least: Annotated[int, Count, Doc("Least number of samples of a client.")] = 10
    code: Annotated[
        str,
        Choices("niid-bench", "pfllib", "flower"),
        Doc(
            "Whose random numbers. pfllib: also those of MOON, FedNova and FedVLS. niid-bench: the same, and "
            "each client's list is shuffled at the end. flower: those of its niid_bench."
        ),
    ] = "niid-bench"
    common_test: Annotated[
        float,
        Range(0.0, 0.9),
        Doc("Share of the pool that is kept for a test of all clients before they are served."),
    ] = 0.0
    seed: OwnSeed = None

    def shrunk(self) -> Split:
        """Return a smaller split with local test parts of the usual kind."""
        return Split.shrunk(replace(self, common_test=0.0))

    def drawn(self, labels: IntArray, classes: int, draws: Draws) -> list[IntArray]:
        parts = published.capped_dirichlet(labels, classes, self.clients, self.alpha, self.least, draws)
        return [draws.shuffled(part) for part in parts] if self.code == "niid-bench" else parts

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        pool = LabelPool(labels, classes_in(labels, num_classes))
        return self.beside_test(pool, self.draws(seed))[0]

    def beside_test(self, pool: LabelPool, draws: Draws) -> tuple[list[IntArray], IntArray]:
        rows, common = _cut(np.arange(len(pool.labels), dtype=np.int64), self.common_test, draws)
        parts = self.drawn(pool.labels[rows], pool.num_classes, draws)
        return [rows[part] for part in parts], common

    def check_local_test(self, share: float) -> None:
        if share and self.common_test:
            raise UsageError(
                f"{self.text} keeps a common test part, which the clients have as their local test parts; "
                "set local_test to 0"
            )


@dataclass(frozen=True)
class ClassGroups(_InPublishedOrder):
    """PFLlib's pathological split: groups of clients that own the same neighbouring classes.

    Every class goes to the first clients that lack classes, in pieces of random sizes, in file order
    (Zhang et al., JMLR 2025; FedVLS's code does nearly the same).
    """

    name, syntax = "class-groups", "class-groups:CLIENTS:CLASSES[:CODE[:SEED]]"
    meaning = "groups of clients with the same CLASSES classes, unequal sizes (PFLlib)"
    default_local_test = 0.25

    clients: Clients
    classes: Annotated[int, Count, Doc("Number of classes of each client.")]
    code: Annotated[
        str,
        Choices("pfllib", "fedvls"),
        Doc("Whose rule: pfllib: pieces up to the mean size. fedvls: up to the size of the class."),
    ] = "pfllib"
    seed: OwnSeed = None

    def drawn(self, labels: IntArray, classes: int, draws: Draws) -> list[IntArray]:
        return published.class_groups(labels, classes, self.clients, self.classes, self.code, draws)

    def check_data(self, data: str, num_classes: int) -> None:
        check_classes(self.text, self.classes, data, num_classes)


@dataclass(frozen=True)
class PowerLaw(_InPublishedOrder):
    """Flower's fedprox: neighbouring classes, of which every client has a log-normal share.

    The data are shuffled first. A class is cut among its clients in shares LogNormal(0, SIGMA²) / their sum,
    after LEAST samples for each of them. The local test part are the first ⌈f n⌉ samples of a permutation, as
    `train_test_split(test_size=f)` of Hugging Face's datasets has them. Without the seed 42 of the published
    lists all its generators get SEED.
    """

    name, syntax = "power-law", "power-law:CLIENTS:CLASSES[:SIGMA[:LEAST[:CODE[:SEED]]]]"
    meaning = "CLASSES neighbouring classes, log-normal shares of each (Flower's fedprox)"
    default_local_test = 0.1

    clients: Clients
    classes: Annotated[int, Count, Doc("Number of classes of each client.")]
    sigma: Annotated[
        float, Range(0.0, 10.0), Doc("Standard deviation of the logarithm of a share, before its division.")
    ] = 2.0
    least: Annotated[int, Count, Doc("Least number of samples of each class of a client.")] = 5
    code: Annotated[str, Choices("flower"), Doc("Whose random numbers: Flower's.")] = "flower"
    seed: OwnSeed = None

    def drawn(self, labels: IntArray, classes: int, draws: Draws) -> list[IntArray]:
        return published.power_law(labels, classes, self.clients, self.classes, self.sigma, self.least, draws)

    def cut(self, part: IntArray, share: float, draws: Draws) -> tuple[IntArray, IntArray]:
        order = part[np.random.default_rng(draws.seed).permutation(len(part))] if share else part
        tests = math.ceil(share * len(part))
        return order[tests:], order[:tests]

    def check_data(self, data: str, num_classes: int) -> None:
        check_classes(self.text, self.classes, data, num_classes)
