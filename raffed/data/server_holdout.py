"""Labelled samples that the server holds and no client has. They are removed before the pool is divided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from raffed.data.files import IntArray
from raffed.data.partition import Partition, make_partition
from raffed.data.partition_file import Lists, Recipe, repeats
from raffed.data.partition_record import labels_sha256
from raffed.data.randomness import stream
from raffed.data.splits import Split
from raffed.errors import UsageError


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
    holdout: IntArray,
    split: Split,
    labels: IntArray,
    num_classes: int,
    groups: IntArray | None,
    seed: int,
    local_test: float | None = None,
    test_labels: IntArray | None = None,
    test_groups: IntArray | None = None,
) -> Partition:
    """Apply `make_partition` to the pool without the samples `holdout`. Indices are those of the whole pool.

    A split that stores its lists loses these samples afterwards. `recipe["reserved"]` is the number of
    samples removed.
    """
    if not len(holdout):
        return make_partition(split, labels, num_classes, groups, seed, local_test, test_labels, test_groups)
    if split.stores_lists:
        whole = make_partition(split, labels, num_classes, groups, seed, local_test, test_labels)
        return _without(whole, holdout)
    rest = np.setdiff1d(np.arange(len(labels)), holdout)
    few = make_partition(
        split,
        labels[rest],
        num_classes,
        None if groups is None else groups[rest],
        seed,
        local_test,
        test_labels,
        test_groups,
    )
    recipe = few.recipe | {
        "samples": len(labels),
        "labels_sha256": labels_sha256(labels),
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
