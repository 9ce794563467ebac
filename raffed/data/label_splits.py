"""Splits that look at labels only, and cut the local test parts from each client's own samples."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from raffed.config.validation import Doc, Range
from raffed.data import schemes
from raffed.data.files import IntArray
from raffed.data.randomness import stream
from raffed.data.split import MAX_CLIENTS, SMALL_CLIENTS, SMALL_NUMBER, ClassesEach, Split
from raffed.errors import UsageError

Count = Range(1, MAX_CLIENTS)
Clients = Annotated[int, Count, Doc("Number of clients N.")]
Alpha = Annotated[float, Range(1e-6, 1e6), Doc("Concentration of the Dirichlet distribution.")]
DUPLICATES = "duplicates"


@dataclass(frozen=True)
class Iid(Split):
    """Every class is spread evenly over all clients."""

    name, syntax = "iid", "iid:CLIENTS"
    meaning = "every class spread evenly over all clients"
    style = "fedmr"
    default_local_test = 0.0

    clients: Clients

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        """Deal every class to all clients in turn. Each class starts where the one before it stopped.

        So the sizes of clients differ by at most 1, and so do the sizes inside a class. If the size of every
        class is a multiple of `clients` (Fashion-MNIST or CIFAR with 10 clients), this is PρCς with ς = C.
        """
        dealt = np.concatenate(schemes.shuffled_classes(labels, self.classes_in(labels, num_classes), seed))
        return [dealt[client :: self.clients] for client in range(self.clients)]


@dataclass(frozen=True)
class ClassesPerClient(ClassesEach):
    """FedMR's PρCς: every client has the same number of classes, and every class has an owner."""

    name, syntax = "pXcY", "pCLIENTScCLASSES[:duplicates], e.g. p10c2"
    meaning = "CLASSES classes for each client, every class owned (FedMR)"
    style = "fedmr"
    default_local_test = 0.0

    clients: Clients
    classes: Annotated[int, Count, Doc("Number of classes of each client.")]
    duplicates: Annotated[bool, Doc("Whether every sample is listed twice, as in FedMR's code.")] = False

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        """Cut every class evenly among its owners; with `duplicates` twice, shuffled again.

        Then every sample is listed twice, as in FedMR's code (docs/papers/fedmr.md §8 no. 2). The only owner
        of a class has each of its samples twice; several owners overlap.
        """
        known = self.classes_in(labels, num_classes)
        lists = schemes.class_lists(self.clients, self.classes, known, seed)
        purposes = ("class order", "class order, second pass") if self.duplicates else ("class order",)
        orders = (schemes.shuffled_classes(labels, known, seed, purpose) for purpose in purposes)
        passes = [schemes.cut_evenly(order, lists) for order in orders]
        return [np.concatenate(parts) for parts in zip(*passes, strict=True)]

    def check_local_test(self, share: float) -> None:
        if share and self.duplicates:
            raise UsageError(
                f"{self.text} lists every sample twice, so clients would train on their local test "
                "samples; set local_test to 0"
            )

    def shrunk(self) -> Split:
        classes = max(2, min(self.classes, SMALL_NUMBER))
        return replace(self, clients=min(self.clients, SMALL_CLIENTS), classes=classes)

    @property
    def text(self) -> str:
        end = f":{DUPLICATES}" if self.duplicates else ""
        return f"p{self.clients}c{self.classes}{end}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        match = re.fullmatch(rf"p(\d+)c(\d+)(:{DUPLICATES})?", text, re.IGNORECASE | re.ASCII)
        if match is None:
            if re.match(r"p\d+c\d+:", text, re.IGNORECASE | re.ASCII):  # not a module called p10c2
                raise cls.refusal(text)
            return None
        clients, classes = (cls.whole(text, digits) for digits in match.groups()[:2])
        return cls.made(text, clients=clients, classes=classes, duplicates=bool(match[3]))


@dataclass(frozen=True)
class Incomplete(Split):
    """MAP's random subsets of the classes."""

    name, syntax = "incomplete", "incomplete:CLIENTS"
    meaning = "a random set of 2..C classes for each client (MAP)"
    style = "map"

    clients: Clients

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        """Draw MAP's random class subsets: nc_k ~ Uniform{2..C}, A_k a random set of nc_k classes.

        D[k, c] = 1/nc_k on A_k. Rows are multiplied by LogNormal(0, 0.3) and columns normalised. The counts
        round(D n_c) are consecutive ranges of each class, the last one clipped. What rounding leaves over is
        not used. Two things differ from the authors' code: classes are shuffled once before they are cut, and
        classes without a holder are drawn again.
        """
        classes, clients = self.classes_in(labels, num_classes), self.clients
        if classes < 2:
            raise UsageError(f"incomplete: the data has {classes} class; at least 2 are needed")
        rng, totals = stream(seed, "incomplete"), np.bincount(labels, minlength=classes)
        owned = schemes.drawn_subsets(rng, clients, classes, totals > 0)
        shares = owned / owned.sum(axis=1, keepdims=True)
        shares = shares * rng.lognormal(0.0, schemes.QUANTITY_SIGMA, size=(clients, 1))
        shares = shares / np.maximum(shares.sum(axis=0, keepdims=True), np.finfo(np.float64).tiny)
        ends = np.minimum(np.cumsum(np.rint(shares * totals).astype(np.int64), axis=0), totals)
        held = np.count_nonzero(np.diff(ends, axis=0, prepend=0), axis=1)
        if held.min() < 2:
            few = f"{len(labels)} samples are too few for {clients} clients"
            why = few if totals.all() else f"class {totals.argmin()} has no sample; leave the class out"
            raise UsageError(
                f"incomplete:{clients}: client {held.argmin()} would hold {held.min()} classes; {why}"
            )
        return schemes.sliced(schemes.shuffled_classes(labels, classes, seed), ends)


class _MovesSamples(Split):
    """A split that may leave clients empty, so that single samples are moved to them."""

    def mended(self, parts: list[IntArray], minimum: int) -> tuple[list[IntArray], int]:
        return schemes.with_minimum(parts, minimum)


@dataclass(frozen=True)
class Dirichlet(_MovesSamples):
    """Each class is divided over the clients by a Dirichlet distribution (Yurochkin et al. 2019)."""

    name, syntax = "dirichlet", "dirichlet:CLIENTS:ALPHA"
    meaning = "each class over clients by Dir(alpha) (Yurochkin et al. 2019)"
    style = "map"

    clients: Clients
    alpha: Alpha

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        known = self.classes_in(labels, num_classes)
        return schemes.dirichlet(labels, known, self.clients, self.alpha, seed)


@dataclass(frozen=True)
class DirichletByClient(_MovesSamples):
    """Each client's mixture of classes is drawn from a Dirichlet distribution (MAP)."""

    name, syntax = "dirichlet-client", "dirichlet-client:CLIENTS:ALPHA"
    meaning = "each client's classes by Dir(alpha) (MAP)"
    style = "map"

    clients: Clients
    alpha: Alpha

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        """Divide by π_k ~ Dir(alpha 1_C) per client, times LogNormal(0, 0.3), columns normalised.

        Differs from the authors' code: cumulative shares are rounded instead of each share, so that every
        sample is used.
        """
        rng, known = stream(seed, "dirichlet-client"), self.classes_in(labels, num_classes)
        logs = schemes.log_dirichlet(rng, self.alpha, (self.clients, known))
        logs = logs + rng.normal(0.0, schemes.QUANTITY_SIGMA, size=(self.clients, 1))
        return schemes.in_proportion(labels, known, logs, seed)


@dataclass(frozen=True)
class LongTail(_MovesSamples):
    """The classes have a long tail, and each of them is divided by a Dirichlet distribution.

    Class c keeps n_c = ⌊n_max · IF^(−c/(C−1))⌋ samples, drawn by the seed (Cao et al. 2019), where n_max is
    the largest size that the data allow. No client has the others. The clients' test and validation parts
    have the long tail, too; the global test set does not.
    """

    name, syntax = "longtail", "longtail:CLIENTS:ALPHA:IMBALANCE"
    meaning = "a long tail of classes, IMBALANCE from first to last, each by Dir(alpha)"

    clients: Clients
    alpha: Alpha
    imbalance: Annotated[float, Range(1.0, 1e6), Doc("Size of the largest class over that of the smallest.")]

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        known = self.classes_in(labels, num_classes)
        pools = schemes.shuffled_classes(labels, known, seed)
        sizes = schemes.long_tail(np.array([len(pool) for pool in pools]), self.imbalance)
        kept = np.concatenate([pool[:size] for pool, size in zip(pools, sizes, strict=True)])
        parts = schemes.dirichlet(labels[kept], known, self.clients, self.alpha, seed)
        return [kept[part] for part in parts]


@dataclass(frozen=True)
class Shards(Split):
    """Samples are sorted by label and cut into pieces, which are dealt to the clients."""

    name, syntax = "shards", "shards:CLIENTS:SHARDS"
    meaning = "SHARDS label-sorted pieces a client (McMahan et al. 2017)"

    clients: Clients
    shards: Annotated[int, Count, Doc("Number of pieces of each client.")]

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        pieces = self.clients * self.shards
        if pieces > len(labels):
            raise UsageError(f"{self.text}: {pieces} shards need more than {len(labels)} samples")
        classes = schemes.shuffled_classes(labels, self.classes_in(labels, num_classes), seed)
        cut = np.array_split(np.concatenate(classes), pieces)
        order = stream(seed, "shards").permutation(pieces).reshape(self.clients, self.shards)
        return [np.concatenate([cut[piece] for piece in row]) for row in order]


@dataclass(frozen=True)
class LogNormalSizes(ClassesEach):
    """Clients have neighbouring classes and log-normal numbers of samples (MpFedcon's FEMNIST)."""

    name, syntax = "lognormal", "lognormal:CLIENTS:CLASSES"
    meaning = "CLASSES neighbouring classes, log-normal sizes (MpFedcon's FEMNIST)"
    default_local_test = 0.1
    overlapping = True  # where a class does not last

    clients: Clients
    classes: Annotated[int, Count, Doc("Number of classes of each client.")]

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        """Give client u the classes u..u+S-1 (mod C) and n_u = 58 + LogNormal(4, 1) samples, at most 500.

        The mean of n_u is 148. A client gets ⌊n_u / S⌋ samples of each class, and at least 2. They are
        disjoint as long as the class lasts, and start again from its beginning after that. This differs from
        FedRep's script, in which many clients reuse images, and whose clients have 190 on average.
        """
        classes = schemes.shuffled_classes(labels, self.classes_in(labels, num_classes), seed)
        drawn = 58 + stream(seed, "lognormal").lognormal(4.0, 1.0, size=self.clients)
        sizes = np.minimum(np.floor(drawn), 500).astype(np.int64)
        given, parts = [0] * len(classes), []
        for client, size in enumerate(sizes.tolist()):
            part = []
            for label in sorted((client + step) % len(classes) for step in range(self.classes)):
                count = min(max(size // self.classes, 2), len(classes[label]))
                part.append(classes[label][(given[label] + np.arange(count)) % max(len(classes[label]), 1)])
                given[label] += count
            parts.append(np.concatenate(part))
        return parts
