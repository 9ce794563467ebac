"""Which client holds which samples: made from a split and a seed, hashed, saved and loaded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from raffed.core.errors import UsageError, check_range
from raffed.data import schemes
from raffed.data.files import IntArray
from raffed.data.partition_file import Lists, Recipe, hash_of_lists, read_partition, write_partition
from raffed.data.randomness import stream
from raffed.data.splits import SPLITS, Split, SplitInfo, parse_split

__all__ = ["SPLITS", "Partition", "Recipe", "Split", "SplitInfo", "held_out", "make_partition", "parse_split"]

DEFAULT_LOCAL_TEST = {"dirichlet": 0.2, "dirichlet-client": 0.2, "incomplete": 0.2, "natural": 0.2, "shards": 0.2}


@dataclass(frozen=True, eq=False)
class Partition:
    """train[k], test[k], val[k]: int64 indices into the training pool that client k trains on, tests on and validates on
    locally; val is empty where nothing was held out for choosing hyper-parameters.

    No index occurs twice; train[k] is never empty, test[k] may be. `recipe` says how it was made, as json values:
    split, seed, local_test, leftovers (samples nobody has), moved (to clients that would have had too few),
    samples (in the pool) and labels_sha256 (of the pool's labels).
    """

    train: Lists
    test: Lists
    num_classes: int
    recipe: Recipe = field(default_factory=dict)
    val: Lists = ()

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self.train)

    def class_counts(self, labels: IntArray) -> IntArray:
        """int64 [clients, C]: how many of each class a client trains on. `labels` are those of the training pool."""
        counts = [np.bincount(labels[own], minlength=self.num_classes) for own in self.train]
        return np.stack(counts).astype(np.int64)

    def sha256(self) -> str:
        """Equal if and only if all clients get the same lists in the same order, whatever the recipe says."""
        return hash_of_lists(self.train, self.test, self.val)

    def save(self, path: str | Path) -> None:
        """Write an npz file without pickles; it is there whole or not at all."""
        lists = (self.train, self.test, self.val)
        write_partition(Path(path).expanduser(), *lists, num_classes=self.num_classes, recipe=self.recipe)

    @staticmethod
    def load(path: str | Path, pool_size: int | None = None) -> Partition:
        """Read a file that anyone may have made. Raises UsageError unless it is a whole and possible partition.

        pool_size: number of training samples; with it, every index must be below it.
        """
        return Partition(*read_partition(Path(path).expanduser(), pool_size))

    def local(self, role: str, client: int) -> IntArray:
        """The indices of a client in a role: train, test or val."""
        lists: Lists = {"train": self.train, "test": self.test, "val": self.val}[role]
        return lists[client] if lists else np.zeros(0, dtype=np.int64)


def make_partition(
    split: Split,
    labels: IntArray,
    num_classes: int,
    groups: IntArray | None,
    seed: int,
    local_test: float | None = None,
) -> Partition:
    """Divide the training pool with these labels, int64 [N], among the split's clients.

    groups: int64 [N], used by 'natural' alone. seed >= 0 decides everything that is random.
    local_test: share f in [0, 0.9] of each client's shuffled samples, the first max(int(f n), 1), kept for testing;
    not stratified; 0 keeps none; None means 0 for iid and pXcY, 0.2 otherwise. A file brings its own.
    Raises UsageError for a split that this data cannot be given.
    """
    _check_request(split, labels, num_classes, groups, seed)
    if split.scheme == "file":
        return _from_file(split, labels, num_classes, local_test)
    share = DEFAULT_LOCAL_TEST.get(split.scheme, 0.0) if local_test is None else local_test
    check_range("local_test", share, 0, 0.9)
    parts, statistics = _clients(split, labels, num_classes, groups, seed, minimum=2 if share > 0 else 1)
    cuts = [max(int(share * len(part)), 1) if share > 0 else 0 for part in parts]
    recipe: Recipe = {"split": split.text, "seed": seed, "local_test": share, **statistics}
    recipe |= {"samples": len(labels), "labels_sha256": _labels_sha256(labels)}
    train = tuple(part[cut:] for part, cut in zip(parts, cuts, strict=True))
    test = tuple(part[:cut] for part, cut in zip(parts, cuts, strict=True))
    return Partition(train, test, num_classes, recipe)


def held_out(partition: Partition, share: float, seed: int) -> Partition:
    """`partition` with the share f of each client's training samples moved to its validation part.

    max(int(f n), 1) of its n samples, drawn at random (not stratified) from the seed alone; the others keep their order. A
    client with one training sample keeps it. A partition that has validation parts already keeps those.
    """
    if share == 0 or partition.val:
        return partition
    draws = stream(seed, "validation")
    train, val = [], []
    for own in partition.train:
        count = min(max(int(share * len(own)), 1), len(own) - 1)
        chosen = np.zeros(len(own), dtype=bool)
        chosen[draws.permutation(len(own))[:count]] = True
        train.append(own[~chosen])
        val.append(own[chosen])
    recipe: Recipe = {**partition.recipe, "validation": share}
    return replace(partition, train=tuple(train), val=tuple(val), recipe=recipe)


def _clients(
    split: Split, labels: IntArray, num_classes: int, groups: IntArray | None, seed: int, minimum: int
) -> tuple[list[IntArray], dict[str, int]]:
    """One shuffled list of at least `minimum` samples per client; and how many were left over and moved."""
    if split.clients is not None and minimum * split.clients > len(labels):
        raise UsageError(
            f"{split.text}: {len(labels)} samples cannot give {split.clients} clients {_needs(minimum)}; "
            "use fewer clients"
        )
    parts = _divided(split, labels, num_classes, groups, seed)
    rng = stream(seed, "client order")
    parts = [rng.permutation(part) for part in parts]
    moved = 0
    if split.scheme.startswith("dirichlet"):
        parts, moved = schemes.with_minimum(parts, minimum)
    for client, part in enumerate(parts):
        if len(part) < minimum:
            raise UsageError(f"{split.text}: client {client} has {len(part)} samples, not {_needs(minimum)}")
    return parts, {"leftovers": len(labels) - sum(len(part) for part in parts), "moved": moved}


def _divided(split: Split, labels: IntArray, num_classes: int, groups: IntArray | None, seed: int) -> list[IntArray]:
    """One list of indices per client, by the split's scheme."""
    clients, alpha = split.clients or 0, split.alpha or 0.0
    if split.scheme == "natural" and groups is not None:
        return schemes.natural(groups, split.clients)
    if split.scheme == "pXcY":
        lists = schemes.class_lists(clients, split.classes or 0, num_classes, seed)
        return schemes.by_class_lists(labels, num_classes, lists, seed)
    if split.scheme == "iid":
        return schemes.iid(labels, num_classes, clients, seed)
    if split.scheme == "incomplete":
        return schemes.incomplete(labels, num_classes, clients, seed)
    if split.scheme == "dirichlet":
        return schemes.dirichlet(labels, num_classes, clients, alpha, seed)
    if split.scheme == "dirichlet-client":
        return schemes.dirichlet_client(labels, num_classes, clients, alpha, seed)
    if split.scheme == "shards":
        return schemes.shards(labels, num_classes, clients, split.shards or 0, seed)
    raise UsageError(f"unknown split scheme {split.scheme!r}; known: {', '.join(info.name for info in SPLITS)}")


def _from_file(split: Split, labels: IntArray, num_classes: int, local_test: float | None) -> Partition:
    if local_test is not None:
        raise UsageError(f"{split.text} brings its own local test parts; leave local_test out")
    partition = Partition.load(split.path or "", pool_size=len(labels))
    if partition.num_classes != num_classes:
        raise UsageError(f"{split.path} is for {partition.num_classes} classes, the data has {num_classes}")
    if partition.recipe.get("labels_sha256", _labels_sha256(labels)) != _labels_sha256(labels):
        raise UsageError(f"{split.path} was made for another training pool: its labels_sha256 differs")
    return partition


def _check_request(split: Split, labels: IntArray, num_classes: int, groups: IntArray | None, seed: int) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0:
        raise UsageError(f"labels are {labels.dtype} {labels.shape}, wanted integers (N,) with N > 0")
    check_range("smallest label", int(labels.min()), 0, num_classes - 1)
    check_range("largest label", int(labels.max()), 0, num_classes - 1)
    check_range("seed", seed, 0, 2**63 - 1)
    if split.scheme == "natural" and groups is None:
        raise UsageError("split 'natural': this data set does not say who made which sample; femnist does")
    if split.scheme == "natural" and groups is not None and groups.shape != labels.shape:
        raise UsageError(f"groups have shape {groups.shape}, labels {labels.shape}")


def _needs(minimum: int) -> str:
    return "1 sample" if minimum == 1 else "2 samples (1 to train on, 1 to test on; local_test = 0 needs 1)"


def _labels_sha256(labels: IntArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()
