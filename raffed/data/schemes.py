"""One function a scheme: labels in, one list of sample indices per client out. Randomness comes from the
seed alone.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from raffed.data import class_sets
from raffed.data.files import IntArray
from raffed.data.randomness import stream
from raffed.errors import UsageError

FloatArray = npt.NDArray[np.float64]
QUANTITY_SIGMA = 0.3  # MAP, authors' code: every client's amount of data is multiplied by LogNormal(0, 0.3)
MAX_REDRAWS = 10_000


def class_lists(clients: int, classes: int, num_classes: int, seed: int) -> list[list[int]]:
    """Which classes each client owns in PρCς (FedMR, authors' code): deal every class once, then draw at
    random.

    Draws are CPython's `random.Random(seed).randint`, whose stream is part of the published golden
    values. Raises UsageError if a client would own more classes than there are, or a class would have no
    owner.
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
    """Every class cut evenly among its owners in client order, sizes differing by at most 1, the first
    larger.

    purpose: of the stream that shuffles the classes.
    Raises UsageError if a class has fewer samples than owners: a client would miss a class that it should
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
    """`by_class_lists` twice with a re-shuffle, as FedMR's code does (docs/papers/fedmr.md §8 no. 2): every
    sample is listed twice.

    Sole owners of a class have each of its samples twice, several owners overlap.
    """
    purposes = ("class order", "class order, second pass")
    first, second = (by_class_lists(labels, num_classes, lists, seed, purpose) for purpose in purposes)
    return [np.concatenate(both) for both in zip(first, second, strict=True)]


def iid(labels: IntArray, num_classes: int, clients: int, seed: int) -> list[IntArray]:
    """Every class dealt round to all clients, each class starting where the one before it stopped.

    So client sizes differ by at most 1, as do the sizes inside a class; where every class size is a multiple
    of `clients` (Fashion-MNIST, CIFAR, 10 clients) this is PρCς with ς = C.
    """
    dealt = np.concatenate(shuffled_classes(labels, num_classes, seed))
    return [dealt[client::clients] for client in range(clients)]


def incomplete(labels: IntArray, num_classes: int, clients: int, seed: int) -> list[IntArray]:
    """MAP's random class subsets: nc_k ~ Uniform{2..C}, A_k a random set of nc_k classes, D[k,c] = 1/nc_k on
    A_k.

    Rows times LogNormal(0, 0.3), columns normalised, counts = round(D n_c) as consecutive ranges of each
    class, the last one clipped; what rounding leaves over stays unused. Differs from the authors: classes
    are shuffled once before slicing; classes without a holder are drawn again. Raises UsageError if
    10,000 draws leave a class without holder, or rounding leaves a client under 2 classes.
    """
    if num_classes < 2:
        raise UsageError(f"incomplete: the data has {num_classes} class; at least 2 are needed")
    rng = stream(seed, "incomplete")
    owned = _drawn_subsets(rng, clients, num_classes, np.bincount(labels, minlength=num_classes) > 0)
    shares = owned / owned.sum(axis=1, keepdims=True) * rng.lognormal(0.0, QUANTITY_SIGMA, size=(clients, 1))
    shares = shares / np.maximum(shares.sum(axis=0, keepdims=True), np.finfo(np.float64).tiny)
    totals = np.bincount(labels, minlength=num_classes)
    ends = np.minimum(np.cumsum(np.rint(shares * totals).astype(np.int64), axis=0), totals)
    parts = _sliced(shuffled_classes(labels, num_classes, seed), ends)
    held = np.count_nonzero(np.diff(ends, axis=0, prepend=0), axis=1)
    if held.min() < 2:
        raise UsageError(
            f"incomplete:{clients}: client {int(held.argmin())} would hold {int(held.min())} classes; "
            f"{len(labels)} samples are too few for {clients} clients"
        )
    return parts


def dirichlet(labels: IntArray, num_classes: int, clients: int, alpha: float, seed: int) -> list[IntArray]:
    """Each class over the clients by p_c ~ Dir(alpha 1_N) (Yurochkin et al. 2019), every sample used.

    Without the often copied rule that stops giving to clients above the mean size. Clients may come out
    empty; `with_minimum` mends that.
    """
    logs = _log_dirichlet(stream(seed, "dirichlet"), alpha, (num_classes, clients)).T
    return _apportioned(labels, num_classes, logs, seed)


def dirichlet_client(
    labels: IntArray, num_classes: int, clients: int, alpha: float, seed: int
) -> list[IntArray]:
    """MAP's Dirichlet: π_k ~ Dir(alpha 1_C) per client, times LogNormal(0, 0.3), columns normalised.

    Differs from the authors: cumulative shares are rounded, not each share, so that every sample is used.
    """
    rng = stream(seed, "dirichlet-client")
    logs = _log_dirichlet(rng, alpha, (clients, num_classes)) + rng.normal(
        0.0, QUANTITY_SIGMA, size=(clients, 1)
    )
    return _apportioned(labels, num_classes, logs, seed)


def shards(labels: IntArray, num_classes: int, clients: int, each: int, seed: int) -> list[IntArray]:
    """Sort by label, cut into clients x each pieces of (almost) one size, deal `each` pieces to every
    client.
    """
    if clients * each > len(labels):
        raise UsageError(f"shards:{clients}:{each}: {clients * each} shards of {len(labels)} samples")
    pieces = np.array_split(np.concatenate(shuffled_classes(labels, num_classes, seed)), clients * each)
    order = stream(seed, "shards").permutation(len(pieces)).reshape(clients, each)
    return [np.concatenate([pieces[piece] for piece in row]) for row in order]


def equal(
    train: Sequence[IntArray], test: Sequence[IntArray], clients: int, each: int, duplicates: bool, seed: int
) -> tuple[list[IntArray], list[IntArray]]:
    """MpFedcon's (N, S): S classes a client in equal counts, class c cut into S·N/C shards, test images by
    the same sets.

    train, test: the shuffled indices of every class. `duplicates`: as FedRep's code, a client may get a
    class twice. Where classes differ in size, the smallest sets the shard size; the rest stays unused.
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
    """MpFedcon's FEMNIST: client u has classes u..u+S-1 (mod C), n_u = 58 + LogNormal(4, 1) samples (mean
    148), at most 500.

    ⌊n_u / S⌋ of each class, 2 at least, disjoint as long as the class lasts, then from its beginning
    again. Differs from FedRep's script, whose images are reused by many clients and number 190 on
    average.
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
    """One client a group, in the order of the group numbers; with `clients`, the first ones only."""
    order = np.argsort(groups, kind="stable")
    _, starts = np.unique(groups[order], return_index=True)
    members = np.split(order.astype(np.int64), starts[1:])
    if clients is not None and clients > len(members):
        raise UsageError(f"natural:{clients}: the data has {len(members)} groups")
    return members[:clients]


def with_minimum(parts: list[IntArray], minimum: int) -> tuple[list[IntArray], int]:
    """Move single samples from whoever is largest (first of equals) until every client has `minimum`.

    Always ends: each move lowers the deficit by one. Needs sum of sizes >= minimum x clients. Also: samples
    moved.
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
    """The indices of every class, each shuffled once, from one stream in label order."""
    rng = stream(seed, purpose)
    return [rng.permutation(np.flatnonzero(labels == label).astype(np.int64)) for label in range(num_classes)]


def _drawn_subsets(
    rng: np.random.RandomState, clients: int, num_classes: int, present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Bool [clients, C]: a random subset of 2..C classes per client such that every class present has a
    holder.
    """
    for _ in range(MAX_REDRAWS):
        sizes = rng.randint(2, num_classes + 1, size=clients, dtype=np.int64)
        ranks = np.argsort(np.argsort(rng.random_sample((clients, num_classes)), axis=1), axis=1)
        owned = ranks < sizes[:, None]
        if np.all(owned.any(axis=0) | ~present):
            return np.asarray(owned)
    raise UsageError(
        f"incomplete:{clients}: {clients} clients do not cover {num_classes} classes; use more clients"
    )


def _log_dirichlet(rng: np.random.RandomState, alpha: float, shape: tuple[int, int]) -> FloatArray:
    """Log of rows ~ Dir(alpha), up to a constant a row. Gamma(a) is Gamma(a+1) U^(1/a): no underflow for
    tiny a.
    """
    logs = np.log(rng.gamma(alpha + 1.0, size=shape)) + np.log1p(-rng.random_sample(shape)) / alpha
    peak = logs.max(axis=1, keepdims=True)
    return np.asarray(logs - peak - np.log(np.exp(logs - peak).sum(axis=1, keepdims=True)))


def _apportioned(labels: IntArray, num_classes: int, logs: FloatArray, seed: int) -> list[IntArray]:
    """Samples of class c over clients in proportion to exp(logs[client, c]), cumulative shares rounded."""
    weights = np.exp(logs - logs.max(axis=0, keepdims=True))
    cumulative = np.cumsum(weights, axis=0)
    totals = np.bincount(labels, minlength=num_classes)
    ends = np.rint(cumulative / cumulative[-1] * totals).astype(np.int64)
    return _sliced(shuffled_classes(labels, num_classes, seed), ends)


def _sliced(classes: list[IntArray], ends: IntArray) -> list[IntArray]:
    """Client k gets classes[c][ends[k-1, c] : ends[k, c]] of every class c."""
    starts = np.vstack([np.zeros((1, ends.shape[1]), dtype=np.int64), ends[:-1]])
    return [
        np.concatenate(
            [indices[low:high] for indices, low, high in zip(classes, row_low, row_high, strict=True)]
        )
        for row_low, row_high in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
