"""Splits whose index lists are those of published code: NIID-Bench, Flower's baselines, PFLlib and FedVLS.

Their last argument is the seed of the division. Published tables often repeat runs on one division, so it is
a different number from the run's seed, which is used if no other is given.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from raffed.config.validation import Choices, Doc, Range
from raffed.data.files import IntArray
from raffed.data.label_splits import Alpha, Clients, Count
from raffed.data.partition_file import Partition
from raffed.data.schemes import cut_evenly
from raffed.data.split import ClassesEach, LabelPool, Split, unused
from raffed.errors import UsageError, check_range

# Draws come in the order in which the published code makes them, so that the code's seed gives the code's
# lists, in its order.


LARGEST_SEED = 999_999_999  # what fits the notation of splits; NumPy takes up to 2**32 - 1
TRIES = 5_000  # of a whole draw; the published partitions need at most 3
PFLLIB_LEAST = 40  # PFLlib: batches of 10, of which a quarter of the samples is for tests


@dataclass(frozen=True)
class Draws:
    """Random numbers as a published code draws them.

    Attributes:
        numbers: Shuffles, permutations and Dirichlet draws.
        label: Draws a class below a number of classes.
        seed: The seed, for a code that seeds a generator with it more than once.
    """

    numbers: np.random.RandomState | np.random.Generator
    label: Callable[[int], int]
    seed: int

    @staticmethod
    def of(code: str, seed: int) -> Draws:
        """Return the streams of a code after it was seeded.

        Flower's baselines draw all from `numpy.random.default_rng(seed)`. NumPy does not promise that these
        numbers stay the same in later versions; those of the other codes it does promise.

        Raises:
            UsageError: The seed is larger than these streams allow.
        """
        if not 0 <= seed < 2**32:
            raise UsageError(f"seed = {seed}: a split of published code needs a seed from 0 to 2^32 - 1")
        if code == "flower":
            modern = np.random.default_rng(seed)
            return Draws(modern, lambda classes: int(modern.choice(classes, 1)[0]), seed)
        plain = random.Random(seed)
        return Draws(np.random.RandomState(seed), lambda classes: plain.randint(0, classes - 1), seed)

    def shuffled(self, indices: IntArray) -> IntArray:
        """Return the indices in a random order."""
        order = indices.copy()
        self.numbers.shuffle(order)
        return order


def drawn_classes(clients: int, each: int, classes: int, draws: Draws) -> list[list[int]]:
    """Return which classes each client owns: class i mod C for client i, and others drawn one by one.

    Needs each ≤ C.
    """
    owned = []
    for client in range(clients):
        labels = [client % classes]
        while len(labels) < each:
            label = draws.label(classes)
            if label not in labels:
                labels.append(label)
        owned.append(labels)
    return owned


def _capped_once(
    labels: IntArray, classes: int, clients: int, alpha: float, draws: Draws
) -> list[IntArray] | None:
    """Return one draw; None if a class found no client, which happens at a tiny alpha."""
    sizes = np.zeros(clients, dtype=np.int64)
    pieces: list[list[IntArray]] = [[] for _ in range(clients)]
    for label in range(classes):
        order = draws.shuffled(_of_class(labels, label))
        shares = draws.numbers.dirichlet(np.repeat(alpha, clients)) * (sizes < len(labels) / clients)
        if not shares.sum() > 0:
            return None
        cuts = (np.cumsum(shares / shares.sum()) * len(order)).astype(np.int64)[:-1]
        for client, piece in enumerate(np.split(order, cuts)):
            pieces[client].append(piece)
            sizes[client] += len(piece)
    return [np.concatenate(part) for part in pieces]


def _random_sizes(
    label: int, order: IntArray, who: list[int], code: str, floor: float, draws: Draws
) -> list[int]:
    """Draw the sizes of all pieces of a class but the last, which is the rest."""
    if len(who) == 1 or len(order) == 0:
        return [0] * (len(who) - 1)
    mean = len(order) / len(who)
    low, high = int(max(mean / 10, floor)), int(mean) if code == "pfllib" else len(order)
    numbers = draws.numbers
    if low >= high or not isinstance(numbers, np.random.RandomState):
        raise UsageError(
            f"class-groups: class {label} has {len(order)} samples for {len(who)} clients; use fewer clients"
        )
    sizes: list[int] = numbers.randint(low, high, len(who) - 1, dtype=np.int64).tolist()
    if sum(sizes) > len(order):
        raise UsageError(
            f"class-groups: the sizes drawn for class {label} exceed its {len(order)} samples, as they may "
            "with fedvls and more than two clients a class; use pfllib or another seed"
        )
    return sizes


def _of_class(labels: IntArray, label: int) -> IntArray:
    return np.flatnonzero(labels == label).astype(np.int64)


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

    def partition(self, pool: LabelPool, seed: int, local_test: float | None = None) -> Partition:
        share = self.default_local_test if local_test is None else local_test
        check_range("local_test", share, 0, 0.9)
        self.check_local_test(share)
        self.check_data("the data", pool.num_classes)
        draws = Draws.of(self.code, seed if self.seed is None else self.seed)
        parts, common = self.beside_test(pool, draws)
        self.check_sizes(parts, minimum=2 if share else 1)
        both = [self.cut(part, share, draws) for part in parts]
        train, test = tuple(kept for kept, _ in both), tuple(rest for _, rest in both)
        if len(common):
            test = tuple(np.array_split(common, len(parts)))
        recipe = self.recipe(pool, seed) | {"local_test": share} | unused([*train, *test], len(pool.labels))
        return Partition(train, test, pool.num_classes, {**recipe, "moved": 0})

    def cut(self, part: IntArray, share: float, draws: Draws) -> tuple[IntArray, IntArray]:
        """Return a client's training samples and its local test part."""
        if not share:
            return part, part[:0]
        order = part[draws.numbers.permutation(len(part))]
        tests = len(part) - max(int((1 - share) * len(part)), 1)
        return order[tests:], order[:tests]

    def beside_test(self, pool: LabelPool, draws: Draws) -> tuple[list[IntArray], IntArray]:
        """Return the clients' lists, and the samples that are kept for a test of all clients together."""
        return self.drawn(pool.labels, pool.num_classes, draws), np.zeros(0, np.int64)


@dataclass(frozen=True)
class LabelCount(ClassesEach, _InPublishedOrder):
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
        owned = drawn_classes(self.clients, self.classes, classes, draws)
        orders = [draws.shuffled(_of_class(labels, label)) for label in range(classes)]
        return cut_evenly(orders, owned, absent=True)


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
        if self.least * self.clients > len(labels):
            raise UsageError(
                f"capped-dirichlet: {len(labels)} samples cannot give {self.clients} clients {self.least} "
                "each; use fewer clients or a smaller least number"
            )
        for _ in range(TRIES):
            parts = _capped_once(labels, classes, self.clients, self.alpha, draws)
            if parts is not None and min(map(len, parts)) >= self.least:
                return [draws.shuffled(part) for part in parts] if self.code == "niid-bench" else parts
        raise UsageError(
            f"capped-dirichlet: in {TRIES:,} draws at alpha = {self.alpha:g} there was always a client with "
            f"fewer than {self.least} samples; use a larger alpha, fewer clients or a smaller least number"
        )

    def beside_test(self, pool: LabelPool, draws: Draws) -> tuple[list[IntArray], IntArray]:
        rows, common = self.cut(np.arange(len(pool.labels), dtype=np.int64), self.common_test, draws)
        parts = self.drawn(pool.labels[rows], pool.num_classes, draws)
        return [rows[part] for part in parts], common

    def check_local_test(self, share: float) -> None:
        if share and self.common_test:
            raise UsageError(
                f"{self.text} keeps a common test part, which the clients have as their local test parts; "
                "set local_test to 0"
            )


@dataclass(frozen=True)
class ClassGroups(ClassesEach, _InPublishedOrder):
    """PFLlib's pathological split: groups of clients that own the same neighbouring classes.

    Every class goes to the first clients that lack classes, in pieces of random sizes, in file order
    (Zhang et al., JMLR 2025; FedVLS's code does nearly the same). PFLlib gives a class to ⌈K/C · each⌉ of
    the K clients, FedVLS to ⌊K/C · each⌋, and its pieces may be as large as the class. Classes for which no
    client is left are left over.
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
        free = [self.classes] * self.clients
        pieces = [[np.zeros(0, np.int64)] for _ in range(self.clients)]
        share, floor = self.clients / classes * self.classes, 1.0
        most = max(int(share), 1)
        if self.code == "pfllib":
            most = math.ceil(share)
            floor = min(PFLLIB_LEAST, int(len(labels) / self.clients / 2)) / classes
        for label in range(classes):
            owners = [client for client in range(self.clients) if free[client] > 0][:most]
            if not owners:
                break
            order = _of_class(labels, label)
            cuts = np.cumsum(_random_sizes(label, order, owners, self.code, floor, draws))
            for client, piece in zip(owners, np.split(order, cuts), strict=True):
                pieces[client].append(piece)
                free[client] -= 1
        return [np.concatenate(part) for part in pieces]


@dataclass(frozen=True)
class PowerLaw(ClassesEach, _InPublishedOrder):
    """Flower's fedprox: neighbouring classes, of which every client has a log-normal share.

    The data are shuffled first. A class is cut among its clients in shares LogNormal(0, SIGMA²) / their sum,
    after LEAST samples for each of them. Flower's FederatedDataset shuffles the data, its baseline draws the
    shares, and DistributionPartitioner cuts and shuffles, each with a generator of its own from one seed. The
    code's shares are LogNormal(mu, sigma²) with another mu for each method, which their sum divides out
    again. The local test part are the first ⌈f n⌉ samples of a permutation, as
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
        if self.clients % classes:
            raise UsageError(
                f"power-law: {self.clients} clients must be a multiple of the {classes} classes; use another "
                "number of clients"
            )
        columns = self.clients * self.classes // classes
        shares = np.random.default_rng(draws.seed).lognormal(0.0, self.sigma, (classes, columns))
        shares /= shares.sum(axis=1, keepdims=True)
        rows = np.random.default_rng(draws.seed).permutation(len(labels)).astype(np.int64)
        pieces = []
        for label in range(classes):
            order = rows[labels[rows] == label]
            rest = len(order) - self.least * columns
            if rest < columns:
                raise UsageError(
                    f"power-law: class {label} has {len(order)} samples for {columns} clients with at least "
                    f"{self.least} each; use fewer clients or a smaller least number"
                )
            cuts = np.cumsum(np.floor(shares[label] * rest).astype(np.int64) + self.least)
            *chunks, left = np.split(order, cuts)
            lucky = draws.label(columns)
            chunks[lucky] = np.append(chunks[lucky], left)
            pieces.append(iter(chunks))
        owned = [
            [(client + step) % classes for step in range(self.classes)] for client in range(self.clients)
        ]
        return [draws.shuffled(np.concatenate([next(pieces[label]) for label in held])) for held in owned]

    def cut(self, part: IntArray, share: float, draws: Draws) -> tuple[IntArray, IntArray]:
        order = part[np.random.default_rng(draws.seed).permutation(len(part))] if share else part
        tests = math.ceil(share * len(part))
        return order[tests:], order[:tests]
