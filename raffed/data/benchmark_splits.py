"""Splits by given lists or clients, and those whose local test parts come from the benchmark's test set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from raffed.config.validation import Choices, Doc, Range
from raffed.data import schemes, stages
from raffed.data.files import IntArray
from raffed.data.label_splits import Clients, Count, Iid
from raffed.data.partition_file import Partition, Recipe, labels_sha256
from raffed.data.preparation import STYLES
from raffed.data.randomness import stream
from raffed.data.split import (
    MAX_CLIENTS,
    SMALL_CLIENTS,
    ClassesEach,
    LabelPool,
    Split,
    unused,
)
from raffed.errors import UsageError, check_choice

# Splits that somebody else has made: the natural clients of the data, and lists in a file.


@dataclass(frozen=True)
class Natural(Split):
    """One client for each writer, centre or other natural owner of the samples."""

    name, syntax = "natural", "natural or natural:CLIENTS"
    meaning = "one client per writer or centre; the first CLIENTS of them"

    clients: Annotated[int | None, Range(1, MAX_CLIENTS), Doc("How many of them; None for all.")] = None

    def partition(self, pool: LabelPool, seed: int, local_test: float | None = None) -> Partition:
        """As `Split.partition`. Clients test on their own test samples, if they have some and `local_test` is
        not given.
        """
        owners = self._owners(pool)
        if local_test is not None or pool.test_clients is None:
            return super().partition(pool, seed, local_test)
        parts, statistics = self.shuffled(pool, seed, minimum=1)
        tests = tuple(np.flatnonzero(pool.test_clients == owners[part[0]]) for part in parts)
        recipe = self.recipe(pool, seed) | statistics
        return Partition(tuple(parts), tests, pool.num_classes, recipe, "test")

    def lists(self, pool: LabelPool, seed: int) -> list[IntArray]:
        """Return one list per owner, in the order of their numbers."""
        owners = self._owners(pool)
        order = np.argsort(owners, kind="stable")
        _, starts = np.unique(owners[order], return_index=True)
        members = np.split(order.astype(np.int64), starts[1:])
        if self.clients is not None and self.clients > len(members):
            raise UsageError(f"{self.text}: the data has {len(members)} groups")
        return members[: self.clients]

    def shrunk(self) -> Split:
        """Return an even split, because small data sets have no natural clients."""
        return Iid(SMALL_CLIENTS)

    @staticmethod
    def _owners(pool: LabelPool) -> IntArray:
        if pool.clients is None:
            raise UsageError(
                "split 'natural': this data set does not say who made which sample; use femnist, "
                "isic2019, or data of your own with clients (csv:table.csv?label=y&client=site)"
            )
        if pool.clients.shape != pool.labels.shape:
            raise UsageError(f"groups have the shape {pool.clients.shape}, but labels {pool.labels.shape}")
        return pool.clients


@dataclass(frozen=True)
class FromFile(Split):
    """The lists of a partition that was saved before."""

    name, syntax = "file", "file:PATH"
    meaning = "a partition.npz that was saved before"
    brings_tests = True
    stores_lists = True

    path: Annotated[str, Doc("The file.")]

    def partition(self, pool: LabelPool, seed: int, local_test: float | None = None) -> Partition:
        """Return the stored partition, after checking that it fits the pool."""
        tests = None if pool.test_labels is None else len(pool.test_labels)
        stored = Partition.load(self.path, len(pool.labels), tests)
        if stored.num_classes != pool.num_classes:
            raise UsageError(
                f"{self.path} is for {stored.num_classes} classes, but the data has {pool.num_classes}"
            )
        wanted = labels_sha256(pool.labels)
        if stored.recipe.get("labels_sha256", wanted) != wanted:
            raise UsageError(f"{self.path} was made for another training pool: its labels_sha256 differs")
        return stored

    def check_data(self, data: str, num_classes: int) -> None:
        Partition.load(self.path)

    def style_of_auto(self) -> tuple[str, str]:
        """Return the style that the file records, or "plain" if it records none."""
        recorded = style_in(Partition.load(self.path), self.path)
        if recorded:
            return recorded, "the style that the file records"
        return self.style, "the file records no style"

    def shrunk(self) -> Split:
        """Return an even split, because the lists are those of one data set."""
        return Iid(SMALL_CLIENTS)

    @classmethod
    def read(cls, text: str) -> Self | None:
        name, _, path = text.partition(":")
        if name.strip().lower() != cls.name:
            return None
        if not path.strip():
            raise cls.refusal(text)
        return cls(path.strip())


def style_in(partition: Partition, where: str) -> str:
    """Return the style of preparation that a partition records; "" if it records none.

    Raises:
        UsageError: The style does not exist.
    """
    style = partition.recipe.get("transform")
    if style is None:
        return ""
    check_choice(f"{where}: transform", str(style), STYLES)
    return str(style)


SMALL_STAGES = {"clients": 5, "classes": 4, "stages": 3}  # what digits has room for
SMALL_IMBALANCE = 5.0


class _WithBenchmarkTests(ClassesEach):
    """A split that divides the benchmark's test set as well."""

    brings_tests = True

    def pools(self, pool: LabelPool, seed: int) -> tuple[list[IntArray], list[IntArray]]:
        """Return the shuffled training and test indices of every class."""
        if pool.test_labels is None or len(pool.test_labels) == 0:
            raise UsageError(
                f"{self.text}: this data set has no test set from which local test parts could be cut"
            )
        known = self.classes_in(pool.labels, pool.num_classes)
        return (
            schemes.shuffled_classes(pool.labels, known, seed, "class order"),
            schemes.shuffled_classes(pool.test_labels, pool.num_classes, seed, "test order"),
        )


@dataclass(frozen=True)
class Equal(_WithBenchmarkTests):
    """Every client has equally many samples of each of its classes (MpFedcon)."""

    name, syntax = "equal", "equal:CLIENTS:CLASSES[:duplicates]"
    meaning = "equal counts of CLASSES classes, test parts alike (MpFedcon)"

    clients: Clients
    classes: Annotated[int, Count, Doc("Number of classes of each client.")]
    duplicates: Annotated[bool, Doc("Whether a client may get a class twice, as in FedRep's code.")] = False

    def partition(self, pool: LabelPool, seed: int, local_test: float | None = None) -> Partition:
        """Divide training and test samples by the same sets of classes."""
        train, test = self._equal(*self.pools(pool, seed), seed)
        recipe = self.recipe(pool, seed) | unused(train, len(pool.labels))
        return Partition(tuple(train), tuple(test), pool.num_classes, recipe, "test")

    def _equal(
        self, train: list[IntArray], test: list[IntArray], seed: int
    ) -> tuple[list[IntArray], list[IntArray]]:
        """Cut class c into S·N/C shards, and test images by the same sets of classes.

        Where classes differ in size, the smallest decides the size of a shard, and the rest is not used.
        """
        clients, each = self.clients, self.classes
        what = f"equal:{clients}:{each}"
        slots = schemes.equal_slots(len(train), clients, each, what)
        sizes = [min(map(len, pool)) // int(slots[0]) for pool in (train, test)]
        if min(sizes) == 0:
            least = min(map(len, (*train, *test)))
            raise UsageError(
                f"{what}: {int(slots[0])} shards of a class, but the smallest has {least} samples"
            )
        rng = stream(seed, "equal")
        drawn: Sequence[Iterable[int]] = (
            schemes.cut_lists(len(train), clients, each, rng)
            if self.duplicates
            else schemes.draw_sets(slots, clients, each, rng)
        )
        given = [0] * len(train)
        parts: tuple[list[IntArray], list[IntArray]] = ([], [])
        for labels in drawn:
            cuts = []
            for label in sorted(labels):
                cuts.append((label, given[label]))
                given[label] += 1
            for part, pool, size in zip(parts, (train, test), sizes, strict=True):
                part.append(np.concatenate([pool[label][k * size : (k + 1) * size] for label, k in cuts]))
        return parts


@dataclass(frozen=True)
class InStages(_WithBenchmarkTests):
    """GLDP's [N, S, M]: data come in stages, with equal sizes and a long tail over all of them."""

    name = "stages"
    syntax = "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE[:OPTION...]"
    meaning = (
        "CLASSES classes a stage, equal sizes, a global long tail (GLDP); options outer, *_shards, "
        "balanced, nMAX"
    )
    clients: Clients
    classes: Annotated[int, Count, Doc("Number of classes S of each stage.")]
    stages: Annotated[int, Count, Doc("Number of stages M.")]
    imbalance: Annotated[float, Range(1.0, 1e6), Doc("Size of the largest class over that of the smallest.")]
    n_max: Annotated[int | None, Count, Doc("Size of the largest class; None: what the data allow.")] = None
    outer: Annotated[bool, Doc("Whether a stage is never visited again.")] = False
    algorithm: Annotated[str, Choices(*stages.ALGORITHMS), Doc("How classes are handed out.")] = "waterfill"
    balanced: Annotated[bool, Doc("Whether tests have equally many samples of each class.")] = False

    def partition(self, pool: LabelPool, seed: int, local_test: float | None = None) -> Partition:
        """Make units of equal size, with test samples in their own mix of classes, and join them to one list
        per client.
        """
        train_classes, test_classes = self.pools(pool, seed)
        units, stale = stages.units(
            train_classes,
            self.clients,
            self.classes,
            self.stages,
            self.imbalance,
            self.n_max,
            self.algorithm,
            seed,
        )
        tests = self._tests(pool, units, test_classes, stream(seed, "stage tests"))
        (train, train_lengths), (test, test_lengths) = (self._joined(parts) for parts in (units, tests))
        recipe: Recipe = self.recipe(pool, seed) | unused(list(train), len(pool.labels)) | {"stale": stale}
        when = stages.Stages(train_lengths, test_lengths, "outer" if self.outer else "inner")
        return Partition(train, test, pool.num_classes, recipe, "test", when)

    def _tests(
        self, pool: LabelPool, units: list[IntArray], tests: list[IntArray], rng: np.random.RandomState
    ) -> list[IntArray]:
        """Return the test indices of each unit."""
        counts = [np.bincount(pool.labels[unit], minlength=pool.num_classes) for unit in units]
        mixes = np.stack(counts).reshape(self.clients, self.stages, -1)
        size = sum(map(len, tests)) // len(units)
        mix = "balanced" if self.balanced else "matched"
        return [part for staged in mixes for part in stages.matching_tests(staged, tests, size, mix, rng)]

    def _joined(self, units: list[IntArray]) -> tuple[tuple[IntArray, ...], IntArray]:
        """Return one list per client, and the lengths of its stages, int64 [clients, M]."""
        count = self.stages
        lengths = np.array([len(unit) for unit in units], dtype=np.int64).reshape(self.clients, count)
        ends = range(0, self.clients * count, count)
        return tuple(np.concatenate(units[first : first + count]) for first in ends), lengths

    def shrunk(self) -> Split:
        few = {name: min(getattr(self, name), most) for name, most in SMALL_STAGES.items()}
        return replace(self, imbalance=SMALL_IMBALANCE, n_max=None, **few)

    @property
    def stage_count(self) -> int:
        """Number of stages M."""
        return self.stages

    @property
    def text(self) -> str:
        number = f"{self.imbalance:.0f}" if float(self.imbalance).is_integer() else f"{self.imbalance}"
        usual = self.algorithm == stages.ALGORITHMS[0]
        words = [
            *(["outer"] if self.outer else []),
            *([] if usual else [self.algorithm]),
            *(["balanced"] if self.balanced else []),
            *([] if self.n_max is None else [f"n{self.n_max}"]),
        ]
        return ":".join(map(str, [self.name, self.clients, self.classes, self.stages, f"if{number}", *words]))

    @classmethod
    def from_fields(cls, text: str, fields: list[str]) -> Self:
        words = [word.strip().lower() for word in fields[4:]]
        sizes = [word for word in words if re.fullmatch(r"n\d{1,9}", word, re.ASCII)]
        flags = [word for word in ("outer", "balanced") if word in words]
        ways = [word for word in stages.ALGORITHMS[1:] if word in words]
        match = re.fullmatch(r"\s*if(.+)", fields[3], re.IGNORECASE) if len(fields) > 3 else None
        known = len(flags) + len(ways) + len(sizes)
        once = len(set(words)) == len(words) == known and len(ways) <= 1 and len(sizes) <= 1
        if match is None or not once:
            raise cls.refusal(text)
        counts = dict(zip(SMALL_STAGES, (cls.whole(text, field) for field in fields[:3]), strict=True))
        return cls.made(
            text,
            **counts,
            imbalance=cls.number(text, match[1]),
            n_max=cls.whole(text, sizes[0][1:]) if sizes else None,
            outer="outer" in flags,
            algorithm=ways[0] if ways else stages.ALGORITHMS[0],
            balanced="balanced" in flags,
        )
