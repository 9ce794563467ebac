"""Splits that look at labels only, and cut the local test parts from each client's own samples."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from raffed.config.validation import Doc, Range
from raffed.data import schemes
from raffed.data.files import IntArray
from raffed.data.split import MAX_CLIENTS, SMALL_CLIENTS, SMALL_NUMBER, Split, check_classes, classes_in
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
        return schemes.iid(labels, classes_in(labels, num_classes), self.clients, seed)


@dataclass(frozen=True)
class ClassesPerClient(Split):
    """FedMR's PρCς: every client has the same number of classes, and every class has an owner."""

    name, syntax = "pXcY", "pCLIENTScCLASSES[:duplicates], e.g. p10c2"
    meaning = "CLASSES classes for each client, every class owned (FedMR)"
    style = "fedmr"
    default_local_test = 0.0

    clients: Clients
    classes: Annotated[int, Count, Doc("Number of classes of each client.")]
    duplicates: Annotated[bool, Doc("Whether every sample is listed twice, as in FedMR's code.")] = False

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        known = classes_in(labels, num_classes)
        lists = schemes.class_lists(self.clients, self.classes, known, seed)
        how = schemes.duplicated if self.duplicates else schemes.by_class_lists
        return how(labels, known, lists, seed)

    def check_data(self, data: str, num_classes: int) -> None:
        check_classes(self.text, self.classes, data, num_classes)

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
        return schemes.incomplete(labels, classes_in(labels, num_classes), self.clients, seed)


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
        known = classes_in(labels, num_classes)
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
        known = classes_in(labels, num_classes)
        return schemes.dirichlet_client(labels, known, self.clients, self.alpha, seed)


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
        known = classes_in(labels, num_classes)
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
        return schemes.shards(labels, classes_in(labels, num_classes), self.clients, self.shards, seed)


@dataclass(frozen=True)
class LogNormalSizes(Split):
    """Clients have neighbouring classes and log-normal numbers of samples (MpFedcon's FEMNIST)."""

    name, syntax = "lognormal", "lognormal:CLIENTS:CLASSES"
    meaning = "CLASSES neighbouring classes, log-normal sizes (MpFedcon's FEMNIST)"
    default_local_test = 0.1

    clients: Clients
    classes: Annotated[int, Count, Doc("Number of classes of each client.")]

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        pools = schemes.shuffled_classes(labels, classes_in(labels, num_classes), seed)
        return schemes.lognormal(pools, self.clients, self.classes, seed)

    def check_data(self, data: str, num_classes: int) -> None:
        check_classes(self.text, self.classes, data, num_classes)
