"""The record of a partition: which client holds which samples."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from raffed.data.files import IntArray
from raffed.data.partition_file import (
    Lists,
    Recipe,
    hash_of_lists,
    hash_of_training,
    read_partition,
    write_partition,
)
from raffed.data.stages import Stages


@dataclass(frozen=True, eq=False)
class Partition:
    """Which client trains, tests and validates on which samples.

    Attributes:
        train: For each client, the indices of its training samples in the training pool, int64 [n_k]; n_k is
            at least 1.
        test: For each client, the indices of its local test part; may be empty. They index the pool that
            `test_pool` names.
        num_classes: Number of classes C.
        recipe: How the partition was made, as JSON values (see below).
        test_pool: "train", or "test" for the benchmark's own test set. In the latter case clients may share
            test samples.
        stages: The lengths of the parts of each stage, if the data come in stages. The lists then contain the
            parts of the stages one after the other.
        val: For each client, the indices of its validation part in the training pool; empty if none was held
            out.

    No index occurs twice, except for `recipe["reused"]` of them. Within one client, only `recipe["doubled"]`
    indices occur twice, and only in `train` (`pXcY:duplicates`).

    The keys of `recipe` are:

        split, seed, local_test    what was asked for
        samples, labels_sha256     size of the training pool, and hash of its labels
        leftovers                  samples that no client has
        moved                      samples moved to clients that would have had too few
        reused, doubled            see above; `doubled` is absent if it is 0
        stale                      later stages without a class that is new to their client
        reserved                   samples that the server holds and no client has (data/server_holdout.py)
        transform                  style in which inputs are prepared; a file may lack it
    """

    train: Lists
    test: Lists
    num_classes: int
    recipe: Recipe = field(default_factory=dict)
    test_pool: str = "train"
    stages: Stages | None = None
    val: Lists = ()

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self.train)

    def class_counts(self, labels: IntArray) -> IntArray:
        """Count the training samples of each client and class.

        Args:
            labels: Labels of the whole training pool, int64 [N].

        Returns:
            int64 [clients, C].
        """
        counts = [np.bincount(labels[own], minlength=self.num_classes) for own in self.train]
        return np.stack(counts).astype(np.int64)

    def train_at(self, client: int, stage: int | None) -> IntArray:
        """Return the indices that a client trains on in a stage.

        Args:
            client: Number of the client, from 0.
            stage: Number of the stage, from 0; None means all stages.
        """
        if self.stages is None or stage is None:
            return self.train[client]
        ends = np.cumsum(self.stages.train[client])
        return self.train[client][ends[stage] - self.stages.train[client, stage] : ends[stage]]

    def test_at(self, client: int, stage: int | None) -> IntArray:
        """Return the indices that a client tests on locally after a stage.

        These are the test parts of all stages up to this one (the test set of A_sel).

        Args:
            client: Number of the client, from 0.
            stage: Number of the stage, from 0; None means all stages.
        """
        if self.stages is None or stage is None:
            return self.test[client]
        return self.test[client][: int(self.stages.test[client, : stage + 1].sum())]

    def test_lengths(self, client: int, stage: int | None) -> tuple[int, ...]:
        """Return how many samples of `test_at` belong to each stage up to this one; empty without stages."""
        if self.stages is None or stage is None:
            return ()
        return tuple(int(n) for n in self.stages.test[client, : stage + 1])

    def sha256(self) -> str:
        """Return the SHA-256 (hex) of the lists, their order and their stages.

        Two partitions have equal hashes if and only if all clients get the same lists in the same order at
        the same times. The recipe does not count.
        """
        return hash_of_lists(self.train, self.test, self.test_pool, self.stages, self.val)

    def lists_sha256(self) -> str:
        """Return the SHA-256 (hex) of the training lists alone, whatever is held out beside them.

        It is over the number of samples of every client and then all their indices, as little-endian int64.
        So it can be computed of lists that another program has drawn.
        """
        return hash_of_training(self.train)

    def prepared_as(self, style: str) -> Partition:
        """Return the same lists with a recipe that records how inputs are prepared.

        Args:
            style: "plain", "map", "map-authors" or "fedmr".
        """
        return replace(self, recipe={**self.recipe, "transform": style})

    def save(self, path: str | Path) -> None:
        """Write the partition as an npz file without pickles, completely or not at all."""
        where, lists = Path(path).expanduser(), (self.train, self.test, self.val)
        write_partition(where, *lists, self.num_classes, self.recipe, self.test_pool, self.stages)

    @staticmethod
    def load(path: str | Path, pool_size: int | None = None, test_size: int | None = None) -> Partition:
        """Read a partition from a file that anyone may have made.

        Args:
            path: An npz file that `save` wrote.
            pool_size: Number of samples of the training pool, if known. All indices must then be smaller.
            test_size: The same for the test set.

        Raises:
            UsageError: The file is not a complete and possible partition.
        """
        return Partition(*read_partition(Path(path).expanduser(), pool_size, test_size))


def labels_sha256(labels: IntArray) -> str:
    """Return the SHA-256 (hex) of a pool's labels as little-endian int64."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()
