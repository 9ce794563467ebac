"""The file of a partition: npz without pickles. It is checked as if a stranger had made it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from raffed.data.files import IntArray, read_npz
from raffed.data.stages import ORDERS, Stages
from raffed.errors import UsageError, check_choice, check_range
from raffed.own.gate import note_read

Recipe = dict[str, str | int | float | None]
Lists = tuple[IntArray, ...]
Stored = dict[str, npt.NDArray[np.generic]]

FORMAT = 1  # all lists index the training pool
TIMED = 2  # test parts may index the test set, and there may be stages
_VALIDATION_ROWS = ("val_lengths", "val_indices")
_STAGE_ROWS = ("train_stages", "test_stages")
_NAMES = (
    *("num_classes", "recipe", "sha256"),
    *("train_lengths", "train_indices", "test_lengths", "test_indices"),
)


def _write_npz(target: IO[bytes], arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Write arrays as np.savez_compressed does, with the fastest compression.

    For the shuffled indices of 100,000 clients it takes an eighth of the time and makes the file 4 % larger.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def read_partition(path: Path, pool_size: int | None, test_size: int | None) -> Partition:
    """Do what `Partition.load` does."""
    try:
        version = int(_integers(path, "format", read_npz(path, ("format",), UsageError)))
    except UsageError as error:
        if not path.is_file():
            raise
        raise UsageError(
            f"{error}; divisions of other programs (FedML, FL-bench, FedLab) are not read: give the lists of "
            "indices to raffed.data.partition.Partition(train, test, num_classes), and save it"
        ) from error
    if version not in (FORMAT, TIMED):
        raise UsageError(
            f"{path}: partition format {version}; this version of raffed reads {FORMAT} and {TIMED}"
        )
    timed = (*_STAGE_ROWS, "test_pool", "stage_order") if version == TIMED else ()
    stored = read_npz(path, (*_NAMES, *timed), UsageError, optional=_VALIDATION_ROWS)
    num_classes = int(_integers(path, "num_classes", stored))
    check_range(f"{path}: num_classes", num_classes, 1, 1_000_000)
    train, test = _lists(path, "train", stored), _lists(path, "test", stored)
    val = _lists(path, "val", stored) if set(_VALIDATION_ROWS) <= set(stored) else ()
    recipe = _recipe(path, stored)
    test_pool = str(stored["test_pool"]) if timed else "train"
    check_choice(f"{path}: test_pool", test_pool, ("train", "test"))
    if not train or len(test) != len(train) or len(val) not in (0, len(train)):
        raise UsageError(
            f"{path}: {len(train)} train and {len(test)} test lists, {len(val)} for validation; there must "
            "be one of each per client (validation: or none)"
        )
    _check_lists(path, train, test if test_pool == "train" else (), val, recipe, pool_size)
    if test_pool == "test" and test_size is not None and int(_joined(test).max(initial=-1)) >= test_size:
        raise UsageError(
            f"{path}: test index {_joined(test).max()}, but the data has {test_size} test samples"
        )
    stages = _stages(path, stored, train, test) if timed else None
    partition = Partition(train, test, num_classes, recipe, test_pool, stages, val)
    if str(stored["sha256"]) != partition.sha256():
        raise UsageError(
            f"{path}: the index lists do not have the stored sha256; the file is damaged or edited"
        )
    return partition


def _stages(path: Path, stored: Stored, train: Lists, test: Lists) -> Stages | None:
    """Return the stages, whose lengths must add up to those of the lists; None without stages."""
    order = str(stored["stage_order"])
    check_choice(f"{path}: stage_order", order, ORDERS)
    lengths = [_integers(path, name, stored, axes=2) for name in _STAGE_ROWS]
    if lengths[0].shape != lengths[1].shape:
        raise UsageError(f"{path}: stages {lengths[0].shape} of training and {lengths[1].shape} of tests")
    if not lengths[0].shape[1]:
        return None
    for name, parts, sizes in zip(_STAGE_ROWS, (train, test), lengths, strict=True):
        if sizes.min() < (name == "train_stages") or not np.array_equal(sizes.sum(1), _lengths(parts)):
            raise UsageError(f"{path}: {name} do not cut the clients' lists into stages")
    return Stages(lengths[0], lengths[1], order)


def _lengths(parts: Sequence[IntArray]) -> IntArray:
    return np.fromiter(map(len, parts), np.int64, len(parts))


def _joined(parts: Sequence[IntArray]) -> IntArray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts], dtype=np.int64, casting="unsafe")


def _integers(path: Path, name: str, stored: Stored, axes: int = 0) -> IntArray:
    """Return an array of the file as int64, if it holds integers from 0 and has so many axes."""
    values = stored[name]
    if values.ndim != axes or values.dtype.kind not in "iu":
        raise UsageError(
            f"{path}: {name} is {values.dtype} {values.shape}, but must be integers with {axes} axes"
        )
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < 2**63:
        raise UsageError(f"{path}: {name} lies in {values.min()}..{values.max()}, but must not be below 0")
    return values.astype(np.int64)


def _lists(path: Path, role: str, stored: Stored) -> Lists:
    """Return the index lists of a role, cut from the joined indices by their lengths."""
    indices = _integers(path, f"{role}_indices", stored, axes=1)
    lengths = _integers(path, f"{role}_lengths", stored, axes=1).tolist()
    if sum(lengths) != len(indices):
        raise UsageError(
            f"{path}: {role}_lengths add up to {sum(lengths)}, but there are {len(indices)} indices"
        )
    ends = itertools.accumulate(lengths)  # np.split takes fifty times as long for 100,000 clients
    return tuple(indices[end - length : end] for end, length in zip(ends, lengths, strict=True))


def repeats(parts: Sequence[IntArray]) -> int:
    """Count how often an index occurs again in its own list."""
    listed = _joined(parts)
    if not _again(np.sort(listed)).any():  # no index occurs twice anywhere
        return 0
    owner = np.repeat(np.arange(len(parts)), _lengths(parts))
    order = np.lexsort((listed, owner))
    return int((_again(listed[order]) & _again(owner[order])).sum())


def _again(values: IntArray) -> npt.NDArray[np.bool_]:
    """Return which of the values but the first equal the one before them."""
    equal: npt.NDArray[np.bool_] = values[1:] == values[:-1]
    return equal


def _check_lists(
    path: Path, train: Lists, test: Lists, val: Lists, recipe: Recipe, pool_size: int | None
) -> None:
    empty = [client for client, part in enumerate(train) if len(part) == 0]
    if empty:
        raise UsageError(f"{path}: client {empty[0]} has nothing to train on")
    everything = _joined(train + test + val)
    reused, doubled = recipe.get("reused", 0), recipe.get("doubled", 0)
    if repeats([everything]) != reused:
        raise UsageError(f"{path}: a sample is listed twice, but the recipe says reused = {reused}")
    if repeats(train) != doubled:
        raise UsageError(
            f"{path}: a sample is listed twice for one client, but the recipe says doubled = {doubled}"
        )
    # Where samples may be listed again, it must not be for one client
    for trained, *held_out in zip(train, *((test,) if test else ()), *((val,) if val else ()), strict=True):
        if reused and held_out and repeats([_joined([np.unique(trained), *held_out])]):
            raise UsageError(f"{path}: a sample is listed twice for one client")
    if pool_size is not None and int(everything.max()) >= pool_size:
        raise UsageError(f"{path}: index {everything.max()}, but the data has {pool_size} training samples")


def _recipe(path: Path, stored: Stored) -> Recipe:
    try:
        recipe = json.loads(str(stored["recipe"]))
    except (ValueError, RecursionError) as cause:
        raise UsageError(f"{path}: the recipe is not json: {cause}") from cause
    note_read(recipe)
    plain = (str, int, float, type(None))
    if not isinstance(recipe, dict) or not all(isinstance(entry, plain) for entry in recipe.values()):
        raise UsageError(f"{path}: the recipe is not an object of texts and numbers")
    return recipe


# The record of a partition: which client holds which samples.


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
        reserved                   samples that the server holds and no client has (data/partition.py)
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

    def client_names(self, owners: Sequence[str]) -> list[str]:
        """Return the names of the clients: those of the data's natural clients if they are the clients, or
        numbers.

        Args:
            owners: Names of the natural clients; empty if the data have none.
        """
        is_natural = str(self.recipe.get("split")).partition(":")[0] == "natural"
        count = self.num_clients
        return list(owners[:count] if is_natural and len(owners) >= count else map(str, range(count)))

    def class_counts(self, labels: IntArray) -> IntArray:
        """Count the training samples of each client and class.

        Args:
            labels: Labels of the whole training pool, int64 [N].

        Returns:
            int64 [clients, C].
        """
        counts = [np.bincount(labels[part], minlength=self.num_classes) for part in self.train]
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

        It is over each role's name, the lengths of its lists and their indices, as little-endian int64; the
        role `val` is left out if it is empty. Where they exist, the name of the other test pool and the order
        and lengths of the stages follow.
        """
        digest = hashlib.sha256()
        roles = {"train": self.train, "test": self.test, "val": self.val}
        for role, parts in roles.items():
            if role != "val" or parts:
                digest.update(role.encode())
                for values in (_lengths(parts), _joined(parts)):
                    digest.update(values.astype("<i8", copy=False).tobytes())
        if self.test_pool != "train":
            digest.update(f"test pool {self.test_pool}".encode())
        if self.stages is not None:
            digest.update(f"{self.stages.order} {self.stages.train.shape}".encode())
            for values in (self.stages.train, self.stages.test):
                digest.update(np.ascontiguousarray(values, dtype="<i8").tobytes())
        return digest.hexdigest()

    def lists_sha256(self) -> str:
        """Return the SHA-256 (hex) of the training lists alone, whatever is held out beside them.

        It is over the number of samples of every client and then all their indices, as little-endian int64.
        So it can be computed of lists that another program has drawn.
        """
        values = np.concatenate([_lengths(self.train), _joined(self.train)])
        return hashlib.sha256(values.astype("<i8", copy=False).tobytes()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the partition as an npz file without pickles, completely or not at all."""
        where, stages = Path(path).expanduser(), self.stages
        none = np.zeros((self.num_clients, 0), dtype=np.int64)
        plain = self.test_pool == "train" and stages is None
        arrays: Stored = {
            "format": np.asarray(FORMAT if plain else TIMED, np.int64),
            "num_classes": np.asarray(self.num_classes, np.int64),
            "train_lengths": _lengths(self.train),
            "train_indices": _joined(self.train),
            "test_lengths": _lengths(self.test),
            "test_indices": _joined(self.test),
            "recipe": np.asarray(json.dumps(self.recipe, sort_keys=True)),
            "sha256": np.asarray(self.sha256()),
        }
        if not plain:
            arrays |= {
                "test_pool": np.asarray(self.test_pool),
                "stage_order": np.asarray(ORDERS[0] if stages is None else stages.order),
                "train_stages": none if stages is None else stages.train,
                "test_stages": none if stages is None else stages.test,
            }
        if self.val:
            arrays |= {"val_lengths": _lengths(self.val), "val_indices": _joined(self.val)}
        temporary = where.with_name(f".{where.name}.{os.getpid()}.tmp")
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as target:  # a new file: no link of that name is followed
            _write_npz(target, arrays)
        os.replace(temporary, where)

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
        return read_partition(Path(path).expanduser(), pool_size, test_size)


def labels_sha256(labels: IntArray) -> str:
    """Return the SHA-256 (hex) of a pool's labels as little-endian int64."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()
