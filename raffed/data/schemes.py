"""The schemes of splits: each function takes labels and returns one list of sample indices per client.

All randomness comes from the seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from raffed.data.files import IntArray
from raffed.data.randomness import stream
from raffed.errors import UsageError

# Decide which units hold which classes: S distinct classes each, with a given number of holders for each
# class.
#
# A unit is whatever receives one share of the data: a client, or one stage of a client. The splits of GLDP
# and MpFedcon use this (docs/papers/gldp.md §EA2, docs/papers/mpfedcon.md §EA4).


SWAPS = 20  # swaps tried for each slot; enough to remove the order in which classes were given out
TINY = 1e-6  # 5000 · 100^-1 is 49.99… in floating point
LAST = 1e18  # more samples than any class has


def long_tail(available: IntArray, imbalance: float, n_max: int | None = None) -> IntArray:
    """Return long-tailed class sizes n_c = ⌊n_max · IF^(-c/(C-1))⌋, int64 [C]  (Cao et al. 2019, LDAM).

    Args:
        available: Number of samples of each class, int64 [C].
        imbalance: IF, the ratio of the largest to the smallest class, at least 1.
        n_max: Size of class 0. With None, the largest size that `available` allows.

    Raises:
        UsageError: A class has fewer samples than it needs, or would get none.
    """
    classes = len(available)
    if not available.all():
        raise UsageError(f"class {np.argmin(available)} has no sample for the long tail; leave the class out")
    shares = float(imbalance) ** (-np.arange(classes) / max(classes - 1, 1))
    most = int(np.floor((available / shares).min() + TINY))
    if n_max is not None and n_max > most:
        raise UsageError(
            f"n{n_max}: at imbalance {imbalance:g} the data has {most} samples for the largest class"
        )
    counts = np.floor((most if n_max is None else n_max) * shares + TINY).astype(np.int64)
    if counts.min() < 1:
        raise UsageError(f"if{imbalance:g}: the last class would have no sample; use a smaller imbalance")
    return counts


def waterfill_slots(counts: IntArray, units: int, each: int) -> IntArray:
    """Return k_c [C]: the number of `units` that hold class c, such that all units come out (almost) equal.

    The numbers add up to units · each. Classes that are too frequent for slots of one size go to every unit.
    Every other class gets one slot for each `a` samples.
    """
    if counts.sum() < units * each:
        raise UsageError(
            f"{int(counts.sum())} samples cannot fill {units} x {each} places; use fewer clients or stages"
        )
    everywhere = np.zeros(len(counts), dtype=bool)
    while True:
        a = counts[~everywhere].sum() / (units * max(each - int(everywhere.sum()), 1))
        more = ~everywhere & (counts > units * a)
        if not more.any():
            break
        everywhere |= more
    wanted = counts / a if a > 0 else np.zeros(len(counts))
    slots = np.where(everywhere, units, np.maximum(np.floor(wanted + TINY), 1)).astype(np.int64)
    most = np.minimum(units, counts)
    return _summing_to(units * each, np.minimum(slots, most), np.where(everywhere, LAST, wanted), most)


def _summing_to(total: int, slots: IntArray, wanted: npt.NDArray[np.float64], most: IntArray) -> IntArray:
    """Add or take away single slots until they add up to `total`.

    A slot is added where `wanted` exceeds the slots most, and taken where it does so least. Classes of weight
    LAST are used only if nothing else is left.
    """
    while (missing := total - int(slots.sum())) != 0:
        gap = wanted - slots
        gap[(slots >= most) if missing > 0 else (slots < 2)] = np.nan
        if np.isnan(gap).all():
            raise UsageError(
                f"{total} places cannot be divided among {len(slots)} classes; use fewer clients or classes"
            )
        slots[np.nanargmax(gap) if missing > 0 else np.nanargmin(gap)] += np.sign(missing)
    return slots


def draw_sets(slots: IntArray, units: int, each: int, rng: np.random.RandomState) -> list[set[int]]:
    """Draw `units` sets of `each` distinct classes, with class c in slots[c] of them.

    Needs Σ slots = units · each and slots ≤ units. Classes with more slots come first, and each goes to the
    units with most room, with ties broken at random. This always succeeds. Random swaps of classes between
    two units follow.
    """
    room = np.full(units, each, dtype=np.int64)
    sets: list[set[int]] = [set() for _ in range(units)]
    for label in np.argsort(-slots, kind="stable").tolist():
        ties = rng.random_sample(units)
        for unit in np.lexsort((ties, -room))[: slots[label]].tolist():
            sets[unit].add(label)
            room[unit] -= 1
    _swap(sets, SWAPS * units * each, rng)
    return sets


def _swap(sets: list[set[int]], tries: int, rng: np.random.RandomState) -> None:
    pairs = rng.randint(0, len(sets), size=(tries, 2), dtype=np.int64).tolist()
    picks = rng.random_sample((tries, 2)).tolist()
    for (u, v), (first, second) in zip(pairs, picks, strict=True):
        x = sorted(sets[u])[int(first * len(sets[u]))]
        y = sorted(sets[v])[int(second * len(sets[v]))]
        if x not in sets[v] and y not in sets[u]:
            sets[u] ^= {x, y}
            sets[v] ^= {x, y}


def cut_lists(classes: int, units: int, each: int, rng: np.random.RandomState) -> list[list[int]]:
    """Cut a shuffled list that has every class equally often, as FedRep's code does. A unit may get a class
    twice.
    """
    deck = rng.permutation(np.repeat(np.arange(classes), units * each // classes))
    return [row.tolist() for row in deck.reshape(units, each)]


def equal_slots(classes: int, units: int, each: int, what: str) -> IntArray:
    """Return units · each / C slots for each class, int64 [C].

    Raises:
        UsageError: The number of slots is not an integer.
    """
    if units * each % classes:
        raise UsageError(f"{what}: {units} x {each} places are not a multiple of the {classes} classes")
    return np.full(classes, units * each // classes, dtype=np.int64)


def class_lists(clients: int, classes: int, num_classes: int, seed: int) -> list[list[int]]:
    """Draw which classes each client owns in PρCς (FedMR, authors' code).

    Every class is dealt once, and the rest is drawn at random. The draws are CPython's
    `random.Random(seed).randint`, whose stream is part of the published golden values. Needs ς ≤ C.

    Raises:
        UsageError: A class would have no owner.
    """
    if clients * classes < num_classes:
        raise UsageError(
            f"p{clients}c{classes}: {clients} x {classes} places cannot hold {num_classes} classes"
        )
    draws = random.Random(int(seed))
    lists: list[list[int]] = []
    dealt = 0
    for _ in range(clients):
        labels: list[int] = []
        for _ in range(classes):
            label = dealt
            if dealt < num_classes:
                dealt += 1
            else:
                label = draws.randint(0, num_classes - 1)
                while label in labels:
                    label = draws.randint(0, num_classes - 1)
            labels.append(label)
        lists.append(labels)
    return lists


def cut_evenly(
    classes: Sequence[IntArray], lists: Sequence[Sequence[int]], absent: bool = False
) -> list[IntArray]:
    """Cut every class evenly among its owners, in client order.

    Sizes differ by at most 1, and larger ones come first.

    Args:
        classes: The shuffled indices of every class.
        lists: The classes of every client. A class may have no owner.
        absent: Whether a class may have no sample.

    Raises:
        UsageError: A class has fewer samples than owners, so that a client would miss a class that it should
            own.
    """
    parts: list[list[IntArray]] = [[] for _ in lists]
    for label, indices in enumerate(classes):
        owners = [client for client, held in enumerate(lists) if label in held]
        if len(indices) < len(owners) and (len(indices) or not absent):
            raise UsageError(
                f"class {label} has {len(indices)} samples for {len(owners)} owners; use fewer clients"
            )
        for owner, part in zip(owners, np.array_split(indices, len(owners) or 1), strict=False):
            parts[owner].append(part)
    return [np.concatenate(pieces) for pieces in parts]


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


# Schemes in which clients have random shares of the classes: MAP's subsets and the Dirichlet splits.
#
# All randomness comes from the seed.


FloatArray = npt.NDArray[np.float64]
QUANTITY_SIGMA = 0.3  # as in MAP's code, every client's amount of data is multiplied by LogNormal(0, 0.3)
MAX_REDRAWS = 10_000


def dirichlet(labels: IntArray, num_classes: int, clients: int, alpha: float, seed: int) -> list[IntArray]:
    """Divide each class over the clients by p_c ~ Dir(alpha 1_N) (Yurochkin et al. 2019). Every sample is
    used.

    The often copied rule that stops giving to clients above the mean size is not applied. Clients may come
    out empty; `with_minimum` repairs that.
    """
    logs = log_dirichlet(stream(seed, "dirichlet"), alpha, (num_classes, clients)).T
    return in_proportion(labels, num_classes, logs, seed)


def drawn_subsets(
    rng: np.random.RandomState, clients: int, num_classes: int, present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return bool [clients, C]: a random subset of 2..C classes per client, such that each present class has
    a holder.
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


def log_dirichlet(rng: np.random.RandomState, alpha: float, shape: tuple[int, int]) -> FloatArray:
    """Return the logarithm of rows ~ Dir(alpha), up to a constant per row.

    Gamma(a) is computed as Gamma(a+1) U^(1/a), which does not underflow for tiny a.
    """
    logs = np.log(rng.gamma(alpha + 1.0, size=shape)) + np.log1p(-rng.random_sample(shape)) / alpha
    peak = logs.max(axis=1, keepdims=True)
    return np.asarray(logs - peak - np.log(np.exp(logs - peak).sum(axis=1, keepdims=True)))


def in_proportion(labels: IntArray, num_classes: int, logs: FloatArray, seed: int) -> list[IntArray]:
    """Divide the samples of each class in proportion to exp(logs[client, c]), with cumulative shares
    rounded.
    """
    weights = np.exp(logs - logs.max(axis=0, keepdims=True))
    cumulative = np.cumsum(weights, axis=0)
    totals = np.bincount(labels, minlength=num_classes)
    ends = np.rint(cumulative / cumulative[-1] * totals).astype(np.int64)
    return sliced(shuffled_classes(labels, num_classes, seed), ends)


def sliced(classes: list[IntArray], ends: IntArray) -> list[IntArray]:
    """Give client k the samples classes[c][ends[k-1, c] : ends[k, c]] of every class c."""
    starts = np.vstack([np.zeros((1, ends.shape[1]), dtype=np.int64), ends[:-1]])
    return [
        np.concatenate(
            [indices[low:high] for indices, low, high in zip(classes, row_low, row_high, strict=True)]
        )
        for row_low, row_high in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
