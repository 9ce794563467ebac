"""Divisions that repeat the index lists of published code, from that code's own streams of random numbers.

Every function takes labels and returns one list of sample indices per client. Its draws come in the order in
which the published code makes them, so that the code's seed gives the code's lists, in its order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from raffed.data.files import IntArray
from raffed.errors import UsageError

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

    Raises:
        UsageError: A client would own more classes than there are.
    """
    if each > classes:
        raise UsageError(f"label-count: {each} classes for each client; the data has {classes}")
    owned = []
    for client in range(clients):
        own = [client % classes]
        while len(own) < each:
            label = draws.label(classes)
            if label not in own:
                own.append(label)
        owned.append(own)
    return owned


def label_count(labels: IntArray, classes: int, clients: int, each: int, draws: Draws) -> list[IntArray]:
    """Divide by NIID-Bench's #C=k: the classes of all clients are drawn first, then each class is cut.

    A class is cut among its owners in client order, in pieces whose sizes differ by at most 1. Samples of a
    class that nobody owns are left over, which needs fewer clients than classes.
    """
    owned = drawn_classes(clients, each, classes, draws)
    parts: list[list[IntArray]] = [[] for _ in owned]
    for label in range(classes):
        order = draws.shuffled(_of_class(labels, label))
        owners = [client for client, own in enumerate(owned) if label in own]
        if 0 < len(order) < len(owners):
            raise UsageError(
                f"class {label} has {len(order)} samples for {len(owners)} owners; use fewer clients"
            )
        if owners:
            for owner, piece in zip(owners, np.array_split(order, len(owners)), strict=True):
                parts[owner].append(piece)
    return [np.concatenate(own) for own in parts]


def capped_dirichlet(
    labels: IntArray, classes: int, clients: int, alpha: float, least: int, draws: Draws
) -> list[IntArray]:
    """Divide each class by Dir(alpha) over the clients that do not have N/K samples yet.

    The whole draw is repeated while a client has fewer than `least` samples.

    Raises:
        UsageError: The samples are too few, or no draw gave every client enough.
    """
    if least * clients > len(labels):
        raise UsageError(
            f"capped-dirichlet: {len(labels)} samples cannot give {clients} clients {least} each; "
            "use fewer clients or a smaller least number"
        )
    for _ in range(TRIES):
        parts = _capped_once(labels, classes, clients, alpha, draws)
        if parts is not None and min(map(len, parts)) >= least:
            return parts
    raise UsageError(
        f"capped-dirichlet: in {TRIES:,} draws at alpha = {alpha:g} there was always a client with fewer "
        f"than {least} samples; use a larger alpha, fewer clients or a smaller least number"
    )


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
    return [np.concatenate(own) for own in pieces]


def class_groups(
    labels: IntArray, classes: int, clients: int, each: int, code: str, draws: Draws
) -> list[IntArray]:
    """Divide as PFLlib's pathological split: class by class to the first clients that lack classes.

    So clients come in groups that own the same neighbouring classes. The pieces of a class have random sizes,
    and its samples stay in file order. Classes for which no client is left are left over.

    Args:
        labels: Labels of the pool, int64 [N].
        classes: Number of classes C.
        clients: Number of clients K.
        each: Number of classes of each client.
        code: "pfllib" gives a class to ⌈K/C · each⌉ clients, "fedvls" to ⌊K/C · each⌋, and its pieces may be
            as large as the class.
        draws: The random numbers.

    Raises:
        UsageError: A class has too few samples for its clients.
    """
    free, pieces = [each] * clients, [[np.zeros(0, np.int64)] for _ in range(clients)]
    share = clients / classes * each
    most = math.ceil(share) if code == "pfllib" else max(int(share), 1)
    for label in range(classes):
        own = [client for client in range(clients) if free[client] > 0][:most]
        if not own:
            break
        order = _of_class(labels, label)
        cuts = np.cumsum(
            _random_sizes(label, order, own, code, _floor(code, labels, classes, clients), draws)
        )
        for client, piece in zip(own, np.split(order, cuts), strict=True):
            pieces[client].append(piece)
            free[client] -= 1
    return [np.concatenate(own) for own in pieces]


def power_law(
    labels: IntArray, classes: int, clients: int, each: int, sigma: float, least: int, draws: Draws
) -> list[IntArray]:
    """Divide each class in shares of LogNormal(0, sigma²); client k owns classes k to k + each − 1 (mod C).

    Flower's FederatedDataset shuffles the data, its baseline draws the shares, and DistributionPartitioner
    cuts and shuffles, each with a generator of its own from the same seed. The code's shares are
    LogNormal(mu, sigma²) with another mu for each method, which their sum divides out again.

    Args:
        labels: Labels of the pool, int64 [N].
        classes: Number of classes C.
        clients: Number of clients K.
        each: Number of classes of each client.
        sigma: Standard deviation of the logarithm of a share.
        least: Samples of each of its classes that a client has beside its share of the rest.
        draws: The random numbers.

    Raises:
        UsageError: The classes do not go evenly into the clients, or a class has too few samples.
    """
    if clients % classes or each > classes:
        raise UsageError(
            f"power-law: {clients} clients with {each} classes each; clients must be a multiple of the "
            f"{classes} classes, and a client can have {classes} at most"
        )
    columns = clients * each // classes
    shares = np.random.default_rng(draws.seed).lognormal(0.0, sigma, (classes, columns))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.random.default_rng(draws.seed).permutation(len(labels)).astype(np.int64)
    pieces = []
    for label in range(classes):
        order = rows[labels[rows] == label]
        rest = len(order) - least * columns
        if rest < columns:
            raise UsageError(
                f"power-law: class {label} has {len(order)} samples for {columns} clients with at least "
                f"{least} each; use fewer clients or a smaller least number"
            )
        cuts = np.cumsum(np.floor(shares[label] * rest).astype(np.int64) + least)
        *own, left = np.split(order, cuts)
        lucky = draws.label(columns)
        own[lucky] = np.append(own[lucky], left)
        pieces.append(iter(own))
    owned = [[(client + step) % classes for step in range(each)] for client in range(clients)]
    return [draws.shuffled(np.concatenate([next(pieces[label]) for label in own])) for own in owned]


def _floor(code: str, labels: IntArray, classes: int, clients: int) -> float:
    """Return the smallest size of a piece that the code asks for, whatever the size of the class."""
    return min(PFLLIB_LEAST, int(len(labels) / clients / 2)) / classes if code == "pfllib" else 1.0


def _random_sizes(
    label: int, order: IntArray, own: list[int], code: str, floor: float, draws: Draws
) -> list[int]:
    """Draw the sizes of all pieces of a class but the last, which is the rest."""
    if len(own) == 1 or len(order) == 0:
        return [0] * (len(own) - 1)
    mean = len(order) / len(own)
    low, high = int(max(mean / 10, floor)), int(mean) if code == "pfllib" else len(order)
    numbers = draws.numbers
    if low >= high or not isinstance(numbers, np.random.RandomState):
        raise UsageError(
            f"class-groups: class {label} has {len(order)} samples for {len(own)} clients; use fewer clients"
        )
    sizes: list[int] = numbers.randint(low, high, len(own) - 1, dtype=np.int64).tolist()
    if sum(sizes) > len(order):
        raise UsageError(
            f"class-groups: the sizes drawn for class {label} exceed its {len(order)} samples, as they may "
            "with fedvls and more than two clients a class; use pfllib or another seed"
        )
    return sizes


def _of_class(labels: IntArray, label: int) -> IntArray:
    return np.flatnonzero(labels == label).astype(np.int64)
