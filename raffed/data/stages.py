"""GLDP's split [N, S, M]: N clients with M stages of S classes each, and their test sets.

All units have equal sizes, and the class sizes have a global long tail. The algorithm `waterfill` is that of
docs/papers/gldp.md §EA2, and the test mixes are those of §EA3. A unit is one stage of one client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raffed.data import schemes
from raffed.data.files import IntArray
from raffed.data.randomness import stream
from raffed.errors import UsageError

ALGORITHMS = ("waterfill", "sorted_shards", "fedrep_shards")
ORDERS = ("inner", "outer")
KEPT = 0.9  # share of every class that is kept when units are made equal
SWAPS = 100  # swaps tried for each unit, towards a new class in every stage


@dataclass(frozen=True, eq=False)
class Stages:
    """When a client has which part of its lists.

    Attributes:
        train, test: The lengths of the stages' parts, int64 [clients, M].
        order: With `inner`, every M rounds visit stages 1..M in turn. With `outer`, one M-th of all rounds is
            spent on each stage, and no stage is visited again.
    """

    train: IntArray
    test: IntArray
    order: str = "inner"

    @property
    def count(self) -> int:
        """The number of stages M."""
        return int(self.train.shape[1])

    def at(self, round: int, rounds: int) -> int:
        """Return the stage, from 0, of round `round` (from 0) of `rounds`.

        Raises:
            UsageError: `rounds` is not a multiple of M.
        """
        self.check_rounds(self.count, rounds)
        return round % self.count if self.order == "inner" else round * self.count // rounds

    @staticmethod
    def check_rounds(count: int, rounds: int) -> None:
        """Raise a UsageError unless `rounds` is a multiple of the number of stages."""
        if rounds % count:
            raise UsageError(f"federation.rounds = {rounds} is not a multiple of the {count} stages")

    @property
    def rounds_per_cycle(self) -> int:
        """Number of rounds that together are one round of GLDP's Algorithm 1.

        In `inner` order these are the M rounds that visit every stage once. `outer` has no such group, so it
        is 1.
        """
        return self.count if self.order == "inner" else 1

    def draw(self, round: int) -> int:
        """Return the number of the drawing of participants that serves this round.

        In `inner` order all stages share one drawing (GLDP's Algorithm 1).
        """
        return round // self.rounds_per_cycle


def units(
    classes: Sequence[IntArray],
    clients: int,
    each: int,
    stages: int,
    imbalance: float,
    n_max: int | None,
    algorithm: str,
    seed: int,
) -> tuple[list[IntArray], int]:
    """Return the sample indices of each unit (client · stages + stage).

    Also returns how many later stages bring no class that is new to their client. All units have equally many
    samples, except with `fedrep_shards`. `classes` are the shuffled indices of every class.
    """
    counts = schemes.long_tail(np.array([len(indices) for indices in classes]), imbalance, n_max)
    kept = [indices[:count] for indices, count in zip(classes, counts.tolist(), strict=True)]
    rng, total = stream(seed, "stages"), clients * stages
    if algorithm == "sorted_shards":
        parts = _sorted_shards(kept, total, each, rng)
    else:
        slots = (
            schemes.waterfill_slots(counts, total, each)
            if algorithm == "waterfill"
            else schemes.equal_slots(len(counts), total, each, "fedrep_shards")
        )
        parts = _handed_out(kept, schemes.draw_sets(slots, total, each, rng), rng)
        if algorithm == "waterfill":
            parts = _equalised(parts, counts)
    sets = [frozenset(label for label, indices in enumerate(part) if len(indices)) for part in parts]
    order, stale = _ordered(sets, clients, stages, rng)
    return [np.concatenate(parts[unit]) for unit in order], stale


def _handed_out(
    kept: list[IntArray], sets: list[set[int]], rng: np.random.RandomState
) -> list[list[IntArray]]:
    """Cut each class among its holders, with sizes that differ by at most 1.

    The larger parts go to the units that are smallest so far.
    """
    parts: list[list[IntArray]] = [[] for _ in sets]
    sizes = np.zeros(len(sets), dtype=np.int64)
    for label, indices in enumerate(kept):
        holders = np.array([unit for unit, held in enumerate(sets) if label in held], dtype=np.int64)
        if len(indices) < len(holders):
            raise UsageError(
                f"class {label} has {len(indices)} samples for {len(holders)} holders; use fewer clients or "
                f"stages"
            )
        ranked = holders[np.lexsort((rng.random_sample(len(holders)), sizes[holders]))]
        cut = dict(zip(ranked.tolist(), np.array_split(indices, max(len(ranked), 1)), strict=False))
        for unit in range(len(sets)):
            parts[unit].append(cut.get(unit, indices[:0]))
            sizes[unit] += len(parts[unit][-1])
    return parts


def _equalised(parts: list[list[IntArray]], counts: IntArray) -> list[list[IntArray]]:
    """Cut every unit to the size of the smallest one.

    Samples are removed one by one from the unit's largest class, as long as there is one among those that
    keep nine tenths of their `counts` samples over all units. The parts are in random order.
    """
    goal = min(sum(map(len, part)) for part in parts)
    left = counts.copy()
    for part in parts:
        for _ in range(sum(map(len, part)) - goal):
            sizes = np.array([len(indices) for indices in part])
            spare = np.where(left - 1 >= KEPT * counts, sizes, 0)
            largest = int((spare if spare.max() > 1 else sizes).argmax())
            part[largest] = part[largest][:-1]
            left[largest] -= 1
    return parts


def _sorted_shards(
    kept: list[IntArray], total: int, each: int, rng: np.random.RandomState
) -> list[list[IntArray]]:
    """Sort the long-tailed data by label and cut them into equal shards, `each` of which go to a unit at
    random.

    A unit has at most `each` classes.
    """
    labels, joined = np.repeat(np.arange(len(kept)), [len(indices) for indices in kept]), np.concatenate(kept)
    size = len(joined) // (total * each)
    if size == 0:
        raise UsageError(
            f"{len(joined)} samples cannot give {total} x {each} shards; use fewer clients or stages"
        )
    order = rng.permutation(total * each).reshape(total, each)
    places = [
        np.concatenate([np.arange(shard * size, (shard + 1) * size) for shard in row])
        for row in order.tolist()
    ]
    return [[joined[place][labels[place] == label] for label in range(len(kept))] for place in places]


def _ordered(
    sets: list[frozenset[int]], clients: int, stages: int, rng: np.random.RandomState
) -> tuple[list[int], int]:
    """Assign units to (client, stage) at random, then swap so that every later stage brings a new class, if
    possible.
    """
    order = rng.permutation(len(sets)).tolist()

    def stale(client: int) -> list[int]:
        seen: set[int] = set()
        places = []
        for place in range(client * stages, (client + 1) * stages):
            if sets[order[place]] <= seen:
                places.append(place)
            seen |= sets[order[place]]
        return places

    left = [stale(client) for client in range(clients)]
    for _ in range(SWAPS * len(sets)):
        flat = [place for places in left for place in places]
        if not flat:
            break
        here, there = flat[rng.randint(len(flat))], int(rng.randint(len(sets)))
        both = {here // stages, there // stages}
        before = sum(len(left[client]) for client in both)
        order[here], order[there] = order[there], order[here]
        after = {client: stale(client) for client in both}
        if sum(map(len, after.values())) > before:
            order[here], order[there] = order[there], order[here]
        else:
            left = [after.get(client, places) for client, places in enumerate(left)]
    return order, sum(map(len, left))


def matching_tests(
    mixes: IntArray, tests: Sequence[IntArray], size: int, mix: str, rng: np.random.RandomState
) -> list[IntArray]:
    """Draw the test indices of one client's stages: `size` for each stage, in the mix of its training
    classes.

    Every class that is held gets at least one. A client's stages share no test sample as long as its classes
    have enough. Different clients may share test samples.

    Args:
        mixes: Training samples of each stage and class, int [M, C].
        tests: The test indices of every class.
        size: Test samples for each stage.
        mix: `matched` for largest remainders, `balanced` for equally many of each class that is held.
        rng: Source of the random order.
    """
    decks = [rng.permutation(indices) for indices in tests]
    used = [0] * len(tests)
    parts = []
    for counts in mixes:
        shares = counts if mix == "matched" else (counts > 0).astype(np.int64)
        part = []
        for label, number in enumerate(apportioned(shares, size).tolist()):
            if number > len(decks[label]):
                raise UsageError(
                    f"class {label} has {len(decks[label])} test samples, but one stage needs {number} "
                    "of it; stage"
                )
            if number:
                part.append(decks[label][(used[label] + np.arange(number)) % len(decks[label])])
                used[label] += number
        parts.append(np.concatenate(part))
    return parts


def apportioned(shares: IntArray, size: int) -> IntArray:
    """Distribute `size` seats in proportion to `shares` [C] by largest remainders (Hamilton).

    Every positive share gets at least one seat. Of equal remainders the lower label comes first.

    Raises:
        UsageError: There are fewer seats than positive shares.
    """
    held = shares > 0
    if size < held.sum():
        raise UsageError(
            f"{size} test samples a stage for {int(held.sum())} classes; use fewer clients or stages"
        )
    exact = shares / shares.sum() * size
    seats = np.where(held, np.maximum(np.floor(exact + schemes.TINY), 1), 0).astype(np.int64)
    while (missing := size - int(seats.sum())) != 0:
        gap = np.where(held if missing > 0 else seats > 1, exact - seats, np.nan)
        seats[np.nanargmax(np.round(gap, 9)) if missing > 0 else np.nanargmin(np.round(gap, 9))] += np.sign(
            missing
        )
    return seats
