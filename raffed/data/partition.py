"""Partitions: which client holds which samples. A split and a seed determine a partition."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from raffed.data import schemes, stages
from raffed.data.files import IntArray
from raffed.data.partition_file import Lists, Recipe, hash_of_lists, read_partition, repeats, write_partition
from raffed.data.randomness import stream
from raffed.data.splits import SPLITS, Split, SplitInfo, parse_split
from raffed.data.stages import Stages
from raffed.errors import UsageError, check_range

__all__ = [
    "SPLITS",
    "Partition",
    "Recipe",
    "Split",
    "SplitInfo",
    "Stages",
    "held_out",
    "make_partition",
    "parse_split",
]

_FIFTH = dict.fromkeys(("dirichlet", "dirichlet-client", "incomplete", "natural", "shards"), 0.2)
DEFAULT_LOCAL_TEST = {**_FIFTH, "lognormal": 0.1}
BRINGS_TESTS = ("equal", "stages")  # schemes whose local test parts come from the benchmark's own test set


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

    Example:
        >>> from raffed.data.datasets import load_dataset
        >>> digits = load_dataset("digits")
        >>> made = make_partition(parse_split("p10c2"), digits.y, 10, None, seed=0)
        >>> made.num_clients, made.class_counts(digits.y).shape
        (10, (10, 10))
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


def make_partition(
    split: Split,
    labels: IntArray,
    num_classes: int,
    groups: IntArray | None,
    seed: int,
    local_test: float | None = None,
    test_labels: IntArray | None = None,
    test_groups: IntArray | None = None,
) -> Partition:
    """Divide a training pool among clients.

    Args:
        split: The scheme and its numbers, from `parse_split`.
        labels: Labels of the training pool, int64 [N], values 0 to num_classes - 1.
        num_classes: Number of classes C.
        groups: The natural client of every sample, int64 [N]. Used by `natural` only.
        seed: Decides everything that is random; at least 0.
        local_test: Share f in [0, 0.9] of each client's samples that is kept for testing: the first max(int(f
            n), 1) of its n shuffled samples, not stratified. 0 keeps none. None means 0 for iid and pXcY, 0.1
            for lognormal and 0.2 for the others. `file`, `equal` and `stages` bring their own test parts and
            accept only None.
        test_labels: Labels of the benchmark's test set, from which `equal` and `stages` take their test
            parts.
        test_groups: The natural client of every test sample, int64, -1 for none. `natural` clients then test
            on their own test samples, unless `local_test` is given.

    Returns:
        The partition, with its recipe.

    Raises:
        UsageError: These data cannot be divided in this way, or an argument is out of range.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(100) % 10
        >>> make_partition(parse_split("iid:5"), labels, 10, None, seed=0).num_clients
        5
    """
    _check_request(split, labels, num_classes, groups, seed)
    if split.scheme in ("file", *BRINGS_TESTS) and local_test is not None:
        raise UsageError(f"{split.text} brings its own local test parts; leave local_test out")
    if split.scheme == "file":
        return _from_file(split, labels, num_classes, test_labels)
    if split.scheme in BRINGS_TESTS:
        return _with_benchmark_tests(split, labels, num_classes, seed, test_labels)
    if split.scheme == "natural" and local_test is None and groups is not None and test_groups is not None:
        parts, statistics = _clients(split, labels, num_classes, groups, seed, minimum=1)
        own = tuple(np.flatnonzero(test_groups == groups[part[0]]) for part in parts)
        return Partition(tuple(parts), own, num_classes, _made(split, labels, seed) | statistics, "test")
    share = DEFAULT_LOCAL_TEST.get(split.scheme, 0.0) if local_test is None else local_test
    check_range("local_test", share, 0, 0.9)
    if share and split.options:
        raise UsageError(
            f"{split.text} lists every sample twice, so local tests would be trained on; set local_test to 0"
        )
    parts, statistics = _clients(split, labels, num_classes, groups, seed, minimum=2 if share > 0 else 1)
    cuts = [max(int(share * len(part)), 1) if share > 0 else 0 for part in parts]
    recipe = _made(split, labels, seed) | {"local_test": share, **statistics}
    train = tuple(part[cut:] for part, cut in zip(parts, cuts, strict=True))
    test = tuple(part[:cut] for part, cut in zip(parts, cuts, strict=True))
    return Partition(train, test, num_classes, recipe)


def held_out(partition: Partition, share: float, seed: int) -> Partition:
    """Move a share of each client's training samples to its validation part.

    A client moves max(int(share n), 1) of its n samples. They are drawn from the seed alone and are not
    stratified; the others keep their order. A client with one training sample keeps it. A partition that
    already has validation parts is returned as it is.

    Args:
        partition: The partition without validation parts.
        share: Share of the samples; 0 returns the partition as it is.
        seed: Decides which samples are moved.

    Raises:
        UsageError: The data come in stages, clients have samples twice, or no client has two training
            samples.
    """
    if share == 0 or partition.val:
        return partition
    if partition.recipe.get("doubled"):
        raise UsageError(
            f"data.validation = {share}: clients have samples twice and train on what is held out; set it to "
            f"0"
        )
    if partition.stages is not None:
        raise UsageError(
            f"data.validation = {share}: clients whose data come in stages have no validation part; set it "
            f"to 0"
        )
    draws = stream(seed, "validation")
    train, val = [], []
    for own in partition.train:
        count = min(max(int(share * len(own)), 1), len(own) - 1)
        chosen = np.zeros(len(own), dtype=bool)
        chosen[draws.permutation(len(own))[:count]] = True
        train.append(own[~chosen])
        val.append(own[chosen])
    if not any(len(part) for part in val):
        raise UsageError(
            f"data.validation = {share}: no client has two training samples, so none can be held out; set it "
            f"to 0"
        )
    recipe: Recipe = {**partition.recipe, "validation": share}
    return replace(partition, train=tuple(train), val=tuple(val), recipe=recipe)


def _clients(
    split: Split, labels: IntArray, num_classes: int, groups: IntArray | None, seed: int, minimum: int
) -> tuple[list[IntArray], Recipe]:
    """Return one shuffled list of at least `minimum` samples per client, and what was left over and moved."""
    if split.clients is not None and minimum * split.clients > len(labels):
        raise UsageError(
            f"{split.text}: {len(labels)} samples cannot give {split.clients} clients {_needs(minimum)}; use "
            f"fewer clients"
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
    return parts, _unused(parts, len(labels)) | {"moved": moved}


def _with_benchmark_tests(
    split: Split, labels: IntArray, num_classes: int, seed: int, test_labels: IntArray | None
) -> Partition:
    """Make a partition for `equal` or `stages`.

    The clients' test parts come from the benchmark's test set and have the classes of their training parts.
    """
    if test_labels is None or len(test_labels) == 0:
        raise UsageError(
            f"{split.text}: this data set has no test set of its own to cut local test parts from"
        )
    clients, each = split.clients or 0, split.classes or 0
    pools = [
        schemes.shuffled_classes(y, num_classes, seed, purpose)
        for y, purpose in ((labels, "class order"), (test_labels, "test order"))
    ]
    if split.scheme == "equal":
        train, test = schemes.equal(pools[0], pools[1], clients, each, "duplicates" in split.options, seed)
        recipe = _made(split, labels, seed) | _unused(train, len(labels))
        return Partition(tuple(train), tuple(test), num_classes, recipe, "test")
    return _in_stages(split, labels, num_classes, seed, pools, len(test_labels))


def _in_stages(
    split: Split, labels: IntArray, num_classes: int, seed: int, pools: list[list[IntArray]], test_size: int
) -> Partition:
    """Make a partition for `stages`.

    Units of equal size get test samples in their own mix of classes. They are joined to one list per client.
    """
    clients, count, words = split.clients or 0, split.stages or 1, split.options
    algorithm = next((word for word in words if word in stages.ALGORITHMS), stages.ALGORITHMS[0])
    units, stale = stages.units(
        pools[0], clients, split.classes or 0, count, split.imbalance or 1.0, split.n_max, algorithm, seed
    )
    mix, rng = "balanced" if "balanced" in words else "matched", stream(seed, "stage tests")
    mixes = np.stack([np.bincount(labels[unit], minlength=num_classes) for unit in units]).reshape(
        clients, count, -1
    )
    size = test_size // len(units)
    tests = [part for own in mixes for part in stages.matching_tests(own, pools[1], size, mix, rng)]
    lengths, joined = [], []
    for parts in (units, tests):
        lengths.append(np.array([len(part) for part in parts], dtype=np.int64).reshape(clients, count))
        joined.append(tuple(np.concatenate(parts[k * count : (k + 1) * count]) for k in range(clients)))
    recipe = _made(split, labels, seed) | _unused(list(joined[0]), len(labels)) | {"stale": stale}
    when = Stages(lengths[0], lengths[1], "outer" if "outer" in words else "inner")
    return Partition(joined[0], joined[1], num_classes, recipe, "test", when)


def _made(split: Split, labels: IntArray, seed: int) -> Recipe:
    return {"split": split.text, "seed": seed, "samples": len(labels), "labels_sha256": labels_sha256(labels)}


def _unused(parts: list[IntArray], samples: int) -> Recipe:
    """Count the samples that nobody has, and how often a sample is listed again."""
    listed = np.concatenate(parts)
    used = len(np.unique(listed))
    doubled = repeats(parts)
    return {
        "leftovers": samples - used,
        "reused": len(listed) - used,
        **({"doubled": doubled} if doubled else {}),
    }


def _divided(
    split: Split, labels: IntArray, num_classes: int, groups: IntArray | None, seed: int
) -> list[IntArray]:
    """Return one list of indices per client, made by the split's scheme."""
    clients, alpha = split.clients or 0, split.alpha or 0.0
    if split.scheme == "natural" and groups is not None:
        return schemes.natural(groups, split.clients)
    if split.scheme == "pXcY":
        lists = schemes.class_lists(clients, split.classes or 0, num_classes, seed)
        divide = schemes.duplicated if split.options else schemes.by_class_lists
        return divide(labels, num_classes, lists, seed)
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
    if split.scheme == "lognormal":
        return schemes.lognormal(
            schemes.shuffled_classes(labels, num_classes, seed), clients, split.classes or 0, seed
        )
    raise UsageError(
        f"unknown split scheme {split.scheme!r}; known: {', '.join(info.name for info in SPLITS)}"
    )


def _from_file(split: Split, labels: IntArray, num_classes: int, test_labels: IntArray | None) -> Partition:
    partition = Partition.load(
        split.path or "", len(labels), None if test_labels is None else len(test_labels)
    )
    if partition.num_classes != num_classes:
        raise UsageError(f"{split.path} is for {partition.num_classes} classes, the data has {num_classes}")
    if partition.recipe.get("labels_sha256", labels_sha256(labels)) != labels_sha256(labels):
        raise UsageError(f"{split.path} was made for another training pool: its labels_sha256 differs")
    return partition


def _check_request(
    split: Split, labels: IntArray, num_classes: int, groups: IntArray | None, seed: int
) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0:
        raise UsageError(f"labels are {labels.dtype} {labels.shape}, wanted integers (N,) with N > 0")
    check_range("smallest label", int(labels.min()), 0, num_classes - 1)
    check_range("largest label", int(labels.max()), 0, num_classes - 1)
    check_range("seed", seed, 0, 2**63 - 1)
    if split.scheme == "natural" and groups is None:
        raise UsageError(
            "split 'natural': this data set does not say who made which sample; femnist and isic2019 do"
        )
    if split.scheme == "natural" and groups is not None and groups.shape != labels.shape:
        raise UsageError(f"groups have shape {groups.shape}, labels {labels.shape}")


def _needs(minimum: int) -> str:
    return "1 sample" if minimum == 1 else "2 samples (1 to train on, 1 to test on; local_test = 0 needs 1)"


def labels_sha256(labels: IntArray) -> str:
    """Return the SHA-256 (hex) of a pool's labels as little-endian int64."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()
