"""Decide which units hold which classes: S distinct classes each, with a given number of holders for each
class.

A unit is whatever receives one share of the data: a client, or one stage of a client. The splits of GLDP and
MpFedcon use this (docs/papers/gldp.md §EA2, docs/papers/mpfedcon.md §EA4).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raffed.data.files import IntArray
from raffed.errors import UsageError

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
    if each > len(counts):
        raise UsageError(f"{each} classes a unit, but the data has {len(counts)}")
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
    for (u, v), (one, other) in zip(pairs, picks, strict=True):
        x = sorted(sets[u])[int(one * len(sets[u]))]
        y = sorted(sets[v])[int(other * len(sets[v]))]
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
        UsageError: The number of slots is not an integer, or exceeds `units`.
    """
    if each > classes:
        raise UsageError(f"{what}: {each} classes each, but the data has {classes}")
    if units * each % classes:
        raise UsageError(f"{what}: {units} x {each} places are not a multiple of the {classes} classes")
    return np.full(classes, units * each // classes, dtype=np.int64)
