"""Splits that somebody else has made: the natural clients of the data, and lists in a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from raffed.config.validation import Doc, Range
from raffed.data import schemes
from raffed.data.files import IntArray
from raffed.data.label_splits import Iid
from raffed.data.partition_record import Partition, labels_sha256
from raffed.data.preparation import STYLES
from raffed.data.split import MAX_CLIENTS, SMALL_CLIENTS, AutoStyle, LabelPool, Split
from raffed.errors import UsageError, check_choice


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
        own = tuple(np.flatnonzero(pool.test_clients == owners[part[0]]) for part in parts)
        recipe = self.recipe(pool, seed) | statistics
        return Partition(tuple(parts), own, pool.num_classes, recipe, "test")

    def lists(self, pool: LabelPool, seed: int) -> list[IntArray]:
        return schemes.natural(self._owners(pool), self.clients)

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
        found = Partition.load(self.path, len(pool.labels), tests)
        if found.num_classes != pool.num_classes:
            raise UsageError(
                f"{self.path} is for {found.num_classes} classes, but the data has {pool.num_classes}"
            )
        wanted = labels_sha256(pool.labels)
        if found.recipe.get("labels_sha256", wanted) != wanted:
            raise UsageError(f"{self.path} was made for another training pool: its labels_sha256 differs")
        return found

    def check_data(self, data: str, num_classes: int) -> None:
        Partition.load(self.path)

    def style_of_auto(self) -> AutoStyle:
        """Return the style that the file records, or "plain" if it records none."""
        recorded = style_in(Partition.load(self.path), self.path)
        if recorded:
            return AutoStyle(recorded, "the style that the file records")
        return AutoStyle(self.style, "the file records no style")

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
