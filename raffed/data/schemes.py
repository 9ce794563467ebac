"""The schemes of splits: each function takes labels and returns one list of sample indices per client.

All randomness comes from the seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Sequence

import numpy as np

from raffed.data import class_sets
from raffed.data.files import IntArray
from raffed.data.randomness import stream
from raffed.errors import UsageError


def class_lists(clients: int, classes: int, num_classes: int, seed: int) -> list[list[int]]:
    """Draw which classes each client owns in PρCς (FedMR, authors' code).

    Every class is dealt once, and the rest is drawn at random. The draws are CPython's
    `random.Random(seed).randint`, whose stream is part of the published golden values.

    Raises:
        UsageError: A client would own more classes than there are, or a class would have no owner.
    """
    if classes > num_classes:
        raise UsageError(f"p{clients}c{classes}: {classes} classes a client, but the data has {num_classes}")
    if clients * classes < num_classes:
        raise UsageError(
            f"p{clients}c{classes}: {clients} x {classes} places cannot hold {num_classes} classes"
        )
    draws = random.Random(int(seed))
    lists: list[list[int]] = []
    dealt = 0
    for _ in range(clients):
        own: list[int] = []
        for _ in range(classes):
            label = dealt
            if dealt < num_classes:
                dealt += 1
            else:
                label = draws.randint(0, num_classes - 1)
                while label in own:
                    label = draws.randint(0, num_classes - 1)
            own.append(label)
        lists.append(own)
    return lists


def by_class_lists(
    labels: IntArray,
    num_classes: int,
    lists: Sequence[Sequence[int]],
    seed: int,
    purpose: str = "class order",
) -> list[IntArray]:
    """Cut every class evenly among its owners, in client order. Sizes differ by at most 1, and larger ones
    come first.

    `purpose` names the stream that shuffles the classes.

    Raises:
        UsageError: A class has fewer samples than owners, so that a client would miss a class that it should
            own.
    """
    parts: list[list[IntArray]] = [[] for _ in lists]
    for label, indices in enumerate(shuffled_classes(labels, num_classes, seed, purpose)):
        owners = [client for client, own in enumerate(lists) if label in own]
        if len(indices) < len(owners):
            raise UsageError(
                f"class {label} has {len(indices)} samples for {len(owners)} owners; use fewer clients"
            )
        for owner, part in zip(owners, np.array_split(indices, len(owners)), strict=True):
            parts[owner].append(part)
    return [np.concatenate(own) for own in parts]


def duplicated(
    labels: IntArray, num_classes: int, lists: Sequence[Sequence[int]], seed: int
) -> list[IntArray]:
    """Apply `by_class_lists` twice, shuffled again, as FedMR's code does (docs/papers/fedmr.md §8 no. 2).

    Every sample is listed twice. The only owner of a class has each of its samples twice; several owners
    overlap.
    """
    purposes = ("class order", "class order, second pass")
    first, second = (by_class_lists(labels, num_classes, lists, seed, purpose) for purpose in purposes)
    return [np.concatenate(both) for both in zip(first, second, strict=True)]


def iid(labels: IntArray, num_classes: int, clients: int, seed: int) -> list[IntArray]:
    """Deal every class to all clients in turn. Each class starts where the one before it stopped.

    So the sizes of clients differ by at most 1, and so do the sizes inside a class. If the size of every
    class is a multiple of `clients` (Fashion-MNIST or CIFAR with 10 clients), this is PρCς with ς = C.
    """
    dealt = np.concatenate(shuffled_classes(labels, num_classes, seed))
    return [dealt[client::clients] for client in range(clients)]


def shards(labels: IntArray, num_classes: int, clients: int, each: int, seed: int) -> list[IntArray]:
    """Sort by label, cut into clients x each pieces of (almost) equal size, and deal `each` pieces to every
    client.
    """
    if clients * each > len(labels):
        raise UsageError(
            f"shards:{clients}:{each}: {clients * each} shards need more than {len(labels)} samples"
        )
    pieces = np.array_split(np.concatenate(shuffled_classes(labels, num_classes, seed)), clients * each)
    order = stream(seed, "shards").permutation(len(pieces)).reshape(clients, each)
    return [np.concatenate([pieces[piece] for piece in row]) for row in order]


def equal(
    train: Sequence[IntArray], test: Sequence[IntArray], clients: int, each: int, duplicates: bool, seed: int
) -> tuple[list[IntArray], list[IntArray]]:
    """Divide by MpFedcon's (N, S): every client has S classes with equally many samples of each.

    Class c is cut into S·N/C shards, and test images are divided by the same sets of classes. Where classes
    differ in size, the smallest decides the size of a shard, and the rest is not used.

    Args:
        train, test: The shuffled indices of every class.
        clients: Number of clients N.
        each: Number of classes S per client.
        duplicates: Whether a client may get a class twice, as in FedRep's code.
        seed: Decides the sets of classes.
    """
    what = f"equal:{clients}:{each}"
    slots = class_sets.equal_slots(len(train), clients, each, what)
    sizes = [min(map(len, pool)) // int(slots[0]) for pool in (train, test)]
    if min(sizes) == 0:
        least = min(map(len, (*train, *test)))
        raise UsageError(f"{what}: {int(slots[0])} shards of a class, but the smallest has {least} samples")
    rng = stream(seed, "equal")
    drawn: Sequence[Iterable[int]] = (
        class_sets.cut_lists(len(train), clients, each, rng)
        if duplicates
        else class_sets.draw_sets(slots, clients, each, rng)
    )
    given = [0] * len(train)
    parts: tuple[list[IntArray], list[IntArray]] = ([], [])
    for own in drawn:
        cuts = []
        for label in sorted(own):
            cuts.append((label, given[label]))
            given[label] += 1
        for part, pool, size in zip(parts, (train, test), sizes, strict=True):
            part.append(np.concatenate([pool[label][k * size : (k + 1) * size] for label, k in cuts]))
    return parts


def lognormal(classes: Sequence[IntArray], clients: int, each: int, seed: int) -> list[IntArray]:
    """Divide by MpFedcon's FEMNIST: client u has classes u..u+S-1 (mod C) and n_u = 58 + LogNormal(4, 1)
    samples.

    The mean of n_u is 148, and at most 500 are taken. A client gets ⌊n_u / S⌋ samples of each class, and at
    least 2. They are disjoint as long as the class lasts, and start again from its beginning after that. This
    differs from FedRep's script, in which many clients reuse images, and whose clients have 190 on average.
    """
    if each > len(classes):
        raise UsageError(
            f"lognormal:{clients}:{each}: {each} classes a client, but the data has {len(classes)}"
        )
    sizes = np.minimum(np.floor(58 + stream(seed, "lognormal").lognormal(4.0, 1.0, size=clients)), 500)
    given = [0] * len(classes)
    parts = []
    for client, size in enumerate(sizes.astype(np.int64).tolist()):
        part = []
        for label in sorted((client + step) % len(classes) for step in range(each)):
            count = min(max(size // each, 2), len(classes[label]))
            part.append(classes[label][(given[label] + np.arange(count)) % max(len(classes[label]), 1)])
            given[label] += count
        parts.append(np.concatenate(part))
    return parts


def natural(groups: IntArray, clients: int | None) -> list[IntArray]:
    """Return one client per group, in the order of the group numbers; with `clients`, only the first ones."""
    order = np.argsort(groups, kind="stable")
    _, starts = np.unique(groups[order], return_index=True)
    members = np.split(order.astype(np.int64), starts[1:])
    if clients is not None and clients > len(members):
        raise UsageError(f"natural:{clients}: the data has {len(members)} groups")
    return members[:clients]


def with_minimum(parts: list[IntArray], minimum: int) -> tuple[list[IntArray], int]:
    """Move single samples from the largest client (the first of equals) until every client has `minimum`.

    This always ends, because each move lowers the deficit by one. It needs at least minimum x clients samples
    in all. Also returns how many samples were moved.
    """
    kept = [len(part) for part in parts]
    gifts: list[list[int]] = [[] for _ in parts]
    donors = [(-size, client) for client, size in enumerate(kept) if size > minimum]
    heapq.heapify(donors)
    for client, size in enumerate(kept.copy()):
        for _ in range(size, minimum):
            donor = donors[0][1]
            kept[donor] -= 1
            gifts[client].append(int(parts[donor][kept[donor]]))
            heapq.heapreplace(donors, (-kept[donor], donor))
    mended = [
        np.append(part[:end], np.array(gift, np.int64))
        for part, end, gift in zip(parts, kept, gifts, strict=True)
    ]
    return mended, sum(len(gift) for gift in gifts)


def shuffled_classes(
    labels: IntArray, num_classes: int, seed: int, purpose: str = "class order"
) -> list[IntArray]:
    """Return the indices of every class, each shuffled once, from one stream in label order."""
    rng = stream(seed, purpose)
    return [rng.permutation(np.flatnonzero(labels == label).astype(np.int64)) for label in range(num_classes)]
