"""Which units hold which classes: exactly S distinct ones each, with a given number of holders a class.

A unit is whatever gets one share of data: a client, or one stage of a client. Used by the splits of GLDP and
MpFedcon (docs/papers/gldp.md §EA2, docs/papers/mpfedcon.md §EA4).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raffed.data.files import IntArray
from raffed.errors import UsageError

SWAPS = 20  # tried swaps a slot: enough to remove the order in which classes were given out
TINY = 1e-6  # 5000 · 100^-1 is 49.99… in floating point
LAST = 1e18  # more samples than any class has


def long_tail(available: IntArray, imbalance: float, n_max: int | None = None) -> IntArray:
    """n_c = ⌊n_max · IF^(−c/(C−1))⌋, int64 [C], in label order  (Cao et al. 2019, LDAM).

    n_max: of class 0; None: the largest that `available` [C] allows. Raises UsageError if a class has fewer,
    or gets none.
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
        raise UsageError(f"if{imbalance:g}: the last class would have no sample; use less imbalance")
    return counts


def waterfill_slots(counts: IntArray, units: int, each: int) -> IntArray:
    """k_c [C]: how many of `units` hold class c, Σ k_c = units · each, such that all units come out (almost)
    equal.

    Classes too frequent for slots of one size go to every unit; the others get a slot for every `a`
    samples.
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
    """Single slots added where `wanted` exceeds them most, or taken where it does least; LAST: only if
    nothing else is left.
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
    """`units` sets of `each` distinct classes, class c in slots[c] of them (Σ slots = units · each, slots ≤
    units).

    Classes by decreasing slots, each to the units with most room, ties at random: that always completes.
    Then random swaps of one class for another between two units.
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
    """FedRep's code: a list with every class equally often, shuffled and cut; a unit may get a class
    twice.
    """
    deck = rng.permutation(np.repeat(np.arange(classes), units * each // classes))
    return [row.tolist() for row in deck.reshape(units, each)]


def equal_slots(classes: int, units: int, each: int, what: str) -> IntArray:
    """[C] times units · each / C; raises UsageError if that is no whole number, or more than `units`."""
    if each > classes:
        raise UsageError(f"{what}: {each} classes each, but the data has {classes}")
    if units * each % classes:
        raise UsageError(f"{what}: {units} x {each} places are no multiple of {classes} classes")
    return np.full(classes, units * each // classes, dtype=np.int64)
