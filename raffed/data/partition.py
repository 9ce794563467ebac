"""Make partitions: a split and a seed determine which samples each client holds, and the server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from raffed.data.files import IntArray
from raffed.data.partition_file import Lists, Partition, Recipe, labels_sha256, repeats
from raffed.data.randomness import stream
from raffed.data.split import LabelPool, Split
from raffed.errors import UsageError


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
    """Divide a training pool among clients. Code of the user's divides it twice, and must repeat itself.

    Args:
        split: The split, from `parse_split` or made by its class.
        labels: Labels of the training pool, int64 [N], values 0 to num_classes - 1.
        num_classes: Number of classes C.
        groups: The natural client of every sample, int64 [N]. Used by `natural` only.
        seed: Decides everything that is random; at least 0.
        local_test: Share f in [0, 0.9] of each client's samples that is kept for testing: the first max(int(f
            n), 1) of its n shuffled samples, not stratified. 0 keeps none. None means the split's
            `default_local_test`. A split that brings its own test parts accepts only None.
        test_labels: Labels of the benchmark's test set, from which `equal` and `stages` take their test
            parts.
        test_groups: The natural client of every test sample, int64, -1 for none. `natural` clients then test
            on their own test samples, unless `local_test` is given.

    Returns:
        The partition, with its recipe.

    Raises:
        UsageError: These data cannot be divided in this way, an argument is out of range, or a split of the
            user's draws other lists from the same seed.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(100) % 10
        >>> make_partition(parse_split("iid:5"), labels, 10, None, seed=0).num_clients
        5
    """
    return divided(split, LabelPool(labels, num_classes, groups, test_labels, test_groups), seed, local_test)


def divided(split: Split, pool: LabelPool, seed: int, local_test: float | None) -> Partition:
    """Do what `make_partition` does, with labels and natural clients in one record."""
    pool.check(seed)
    if split.brings_tests and local_test is not None:
        raise UsageError(f"{split.text} brings its own local test parts; leave local_test out")
    partition = split.partition(pool, seed, local_test)
    if split.is_own and split.partition(pool, seed, local_test).sha256() != partition.sha256():
        raise UsageError(
            f"{split.seed_rule}: seed {seed} gave other lists the second time, so the run could not be "
            "resumed or verified"
        )
    return partition


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
            f"data.validation = {share}: clients have samples twice, and train on what is held out; use 0"
        )
    if partition.stages is not None:
        raise UsageError(
            f"data.validation = {share}: clients whose data come in stages have no validation part; use 0"
        )
    draws = stream(seed, "validation")
    train, val = [], []
    for indices in partition.train:
        count = min(max(int(share * len(indices)), 1), len(indices) - 1)
        chosen = np.zeros(len(indices), dtype=bool)
        chosen[draws.permutation(len(indices))[:count]] = True
        train.append(indices[~chosen])
        val.append(indices[chosen])
    if not any(len(part) for part in val):
        raise UsageError(
            f"data.validation = {share}: no client has two training samples, so none can be held out; use 0"
        )
    recipe: Recipe = {**partition.recipe, "validation": share}
    return replace(partition, train=tuple(train), val=tuple(val), recipe=recipe)


# Labelled samples that the server holds and no client has. They are removed before the pool is divided.


def draw_server_holdout(labels: IntArray, num_classes: int, per_class: int, seed: int) -> IntArray:
    """Return the ascending indices of `per_class` samples of every class, drawn from the seed alone.

    A class keeps at least one sample for the clients.
    """
    if per_class == 0:  # returns early, also if a class has no sample
        return np.empty(0, np.int64)
    draws, chosen = stream(seed, "reserve"), []
    for label in range(num_classes):
        held = np.flatnonzero(labels == label)
        if per_class >= len(held):
            raise UsageError(
                f"the server needs {per_class} samples of class {label}, but there are only {len(held)}; "
                "ask for fewer"
            )
        chosen.append(draws.permutation(held)[:per_class])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def partition_beside(
    holdout: IntArray, split: Split, pool: LabelPool, seed: int, local_test: float | None = None
) -> Partition:
    """Apply `make_partition` to a pool without the samples `holdout`. Indices are those of the whole pool.

    A split that stores its lists loses these samples afterwards. `recipe["reserved"]` is the number of
    samples removed.
    """
    if not len(holdout):
        return divided(split, pool, seed, local_test)
    if split.stores_lists:
        return _without(divided(split, pool, seed, local_test), holdout)
    rest = np.setdiff1d(np.arange(len(pool.labels)), holdout)
    owners = None if pool.clients is None else pool.clients[rest]
    few = divided(split, replace(pool, labels=pool.labels[rest], clients=owners), seed, local_test)
    recipe = few.recipe | {
        "samples": len(pool.labels),
        "labels_sha256": labels_sha256(pool.labels),
        "reserved": len(holdout),
    }
    test = tuple(rest[part] for part in few.test) if few.test_pool == "train" else few.test
    return replace(few, train=tuple(rest[part] for part in few.train), test=test, recipe=recipe)


def _without(whole: Partition, holdout: IntArray) -> Partition:
    """Return the partition without `holdout` in the lists of the training pool, with the lengths of its
    stages.
    """
    kept = [~np.isin(part, holdout) for part in whole.train]
    train = tuple(part[stays] for part, stays in zip(whole.train, kept, strict=True))
    test = _less(whole.test, holdout) if whole.test_pool == "train" else whole.test
    val, when = _less(whole.val, holdout), whole.stages
    if when is not None:
        starts = np.cumsum(when.train, axis=1) - when.train
        lengths = [
            np.add.reduceat(stays.astype(np.int64), at) for stays, at in zip(kept, starts, strict=True)
        ]
        when = replace(when, train=np.stack(lengths))
        if when.train.min() < 1:
            raise UsageError(
                "the server's rule would take all training samples of a client's stage; let it ask for fewer"
            )
    listed = np.concatenate([*train, *val, *(test if whole.test_pool == "train" else ())])
    recipe: Recipe = {**whole.recipe, "reused": repeats([listed]), "reserved": len(holdout)}
    if "doubled" in whole.recipe:
        recipe["doubled"] = repeats(train)
    return replace(whole, train=train, test=test, val=val, stages=when, recipe=recipe)


def _less(lists: Lists, holdout: IntArray) -> Lists:
    return tuple(part[~np.isin(part, holdout)] for part in lists)
