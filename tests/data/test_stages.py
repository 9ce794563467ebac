"""GLDP's split [N, S, M]: the counts, slots and constraints of docs/papers/gldp.md §EA2, seats of its
tests, and when a client has which part.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from raffed.data import schemes, stages
from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.splits import parse_split
from raffed.data.stages import Stages
from raffed.errors import UsageError

LONG_TAILS = [  # docs/papers/gldp.md §EA1: C, n_max, IF, total, last class
    (10, 5000, 10, 20_431, 500),
    (10, 5000, 100, 12_406, 50),
    (200, 500, 50, 25_082, 10),
]
SLOTS = [  # §EA2, U = 100: S, IF, k
    (4, 10, [98, 76, 59, 45, 35, 27, 21, 16, 13, 10]),
    (4, 100, [100, 100, 81, 49, 29, 18, 11, 6, 4, 2]),
    (5, 100, [100, 100, 100, 82, 49, 30, 18, 11, 6, 4]),
]
TABLES = [  # every setting of GLDP's tables 1-4: C, n_max, N, S, M, and the mean unit size of §EA1 by IF
    (10, 5000, 100, 4, 1, {10: 204, 50: 140, 100: 124}),
    (10, 5000, 20, 4, 5, {10: 204, 50: 140, 100: 124}),
    (100, 500, 100, 20, 1, {10: 196, 50: 126, 100: 108}),
    (100, 500, 20, 20, 5, {10: 196, 50: 126, 100: 108}),
    (200, 500, 100, 20, 1, {50: 251}),
]
CASES = [(c, n, k, s, m, imbalance) for c, n, k, s, m, means in TABLES for imbalance in means]


def labels_of(classes: int, each: int) -> np.ndarray:
    return np.arange(classes * each, dtype=np.int64) % classes


@lru_cache
def drawn(
    classes: int, n_max: int, clients: int, each: int, count: int, imbalance: int, seed: int = 0
) -> tuple[list, int]:
    pools = schemes.shuffled_classes(labels_of(classes, n_max), classes, seed)
    return stages.units(pools, clients, each, count, imbalance, None, "waterfill", seed)


def made(
    text: str, seed: int = 0, classes: int = 10, each: int = 500
) -> tuple[Partition, np.ndarray, np.ndarray]:
    labels, tests = labels_of(classes, each), labels_of(classes, each // 5)
    return make_partition(parse_split(text), labels, classes, None, seed, None, tests), labels, tests


@pytest.mark.parametrize(("classes", "n_max", "imbalance", "total", "last"), LONG_TAILS)
def test_long_tails_are_the_sheet_s(classes: int, n_max: int, imbalance: int, total: int, last: int) -> None:
    counts = schemes.long_tail(np.full(classes, n_max), imbalance)
    assert (counts[0], counts[-1], counts.sum()) == (n_max, last, total)


def test_a_long_tail_takes_the_largest_head_that_every_class_allows_and_refuses_a_larger_one() -> None:
    """IF 4 over three classes: shares 1, 1/2, 1/4. 30 of the last class allow a head of 120; 50 of the
    second one of 100. CIFAR-10's at IF 50 is written out in the sheet.
    """
    written_out = [5000, 3237, 2096, 1357, 878, 568, 368, 238, 154, 100]
    assert schemes.long_tail(np.full(10, 5000), 50).tolist() == written_out
    assert schemes.long_tail(np.array([500, 50, 30]), 4).tolist() == [100, 50, 25]
    assert schemes.long_tail(np.array([500, 50, 30]), 4, n_max=40).tolist() == [40, 20, 10]
    with pytest.raises(UsageError, match=r"n101: .* the data has 100"):
        schemes.long_tail(np.array([500, 50, 30]), 4, n_max=101)
    with pytest.raises(UsageError, match="if1000: the last class would have no sample"):
        schemes.long_tail(np.array([500, 500]), 1000)


@pytest.mark.parametrize(("each", "imbalance", "slots"), SLOTS)
def test_waterfill_gives_the_sheet_s_slots(each: int, imbalance: int, slots: list[int]) -> None:
    counts = schemes.long_tail(np.full(10, 5000), imbalance)
    assert schemes.waterfill_slots(counts, 100, each).tolist() == slots


@pytest.mark.parametrize(
    ("classes", "n_max", "clients", "each", "count", "imbalance"),
    [pytest.param(*one, marks=[pytest.mark.slow] if one[0] > 100 or one[5] == 50 else []) for one in CASES],
)
def test_every_table_s_split_has_equal_units_of_exactly_s_classes_and_loses_little(
    classes: int, n_max: int, clients: int, each: int, count: int, imbalance: int
) -> None:
    units, _ = drawn(classes, n_max, clients, each, count, imbalance)
    labels, tail = labels_of(classes, n_max), schemes.long_tail(np.full(classes, n_max), imbalance)
    counts = np.stack([np.bincount(labels[unit], minlength=classes) for unit in units])
    assert counts.shape == (clients * count, classes)
    assert set((counts > 0).sum(axis=1)) == {each}
    assert len(set(counts.sum(axis=1))) == 1
    assert len(np.unique(np.concatenate(units))) == counts.sum()
    assert (counts.sum(axis=0) <= tail).all()
    assert (counts.sum(axis=0) >= 0.9 * tail).all()
    mean = next(row[-1] for row in TABLES if row[:5] == (classes, n_max, clients, each, count))[imbalance]
    assert round(tail.sum() / 100) == mean
    assert 0.93 * mean <= counts.sum(axis=1)[0] <= mean


@pytest.mark.parametrize("case", [case for case in CASES if case[4] == 5 and case[0] == 10])
def test_later_stages_bring_new_classes_but_for_the_few_the_sheet_counts(case: tuple[int, ...]) -> None:
    """§EA2 step 7: none stale for CIFAR-10 at IF 10; some 15-24 of 80 at 50 and 100."""
    units, stale = drawn(*case)
    classes, n_max, clients, _, count, imbalance = case
    labels, found = labels_of(classes, n_max), 0
    for client in range(clients):
        seen: set[int] = set()
        for unit in units[client * count : (client + 1) * count]:
            own = set(labels[unit].tolist())
            found += own <= seen
            seen |= own
    assert found == stale <= (24 if imbalance > 10 else 0)


def test_fedrep_shards_give_every_class_equally_many_slots_and_sorted_shards_equal_units() -> None:
    p, labels, _ = made("stages:4:3:5:if10:fedrep_shards")
    held = [set(labels[p.train_at(k, m)].tolist()) for k in range(4) for m in range(5)]
    assert {len(own) for own in held} == {3}
    assert [sum(c in own for own in held) for c in range(10)] == [20 * 3 // 10] * 10
    assert p.recipe["leftovers"] == 5000 - schemes.long_tail(np.full(10, 500), 10).sum()
    q = made("stages:4:3:5:if10:sorted_shards")[0]
    assert len(set(p.stages.train.flatten().tolist())) > 1 == len(set(q.stages.train.flatten().tolist()))
    assert min(len(set(labels[q.train_at(k, m)].tolist())) for k in range(4) for m in range(5)) < 3 * 2
    with pytest.raises(UsageError, match="not a multiple of the 10 classes"):
        made("stages:3:3:1:if10:fedrep_shards")


@pytest.mark.parametrize("mix", ["", ":balanced"])
def test_a_stage_s_test_part_has_its_size_and_the_mix_of_its_training_part_or_equal_counts(mix: str) -> None:
    """A stage is tested on all parts up to its own."""
    p, labels, tests = made(f"stages:4:4:5:if10{mix}")
    assert p.test_pool == "test"
    assert set(p.stages.test.flatten().tolist()) == {1000 // 20}
    for client in range(4):
        assert np.array_equal(np.concatenate([p.train_at(client, m) for m in range(5)]), p.train[client])
        assert np.array_equal(p.train_at(client, None), p.train[client])
        for stage in range(5):
            assert np.array_equal(p.test_at(client, stage), p.test[client][: 50 * (stage + 1)])
            own = p.test[client][50 * stage : 50 * (stage + 1)]
            assert len(set(own.tolist())) == 50
            counts = np.bincount(labels[p.train_at(client, stage)], minlength=10)
            wanted = stages.apportioned(counts > 0 if mix else counts, 50)
            assert np.bincount(tests[own], minlength=10).tolist() == wanted.tolist()


def test_inner_order_visits_all_stages_in_every_round_and_outer_order_each_once() -> None:
    """docs/papers/gldp.md §10 no. 15: K = 2, M = 3 are six exchanges: 1,2,3,1,2,3 or 1,1,2,2,3,3; two
    drawings of participants if inner.
    """
    lengths = np.ones((1, 3), dtype=np.int64)
    inner, outer = Stages(lengths, lengths), Stages(lengths, lengths, "outer")
    assert [inner.at(t, 6) + 1 for t in range(6)] == [1, 2, 3, 1, 2, 3]
    assert [outer.at(t, 6) + 1 for t in range(6)] == [1, 1, 2, 2, 3, 3]
    assert [inner.draw(t) for t in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [outer.draw(t) for t in range(6)] == [0, 1, 2, 3, 4, 5]
    assert (inner.rounds_per_cycle, outer.rounds_per_cycle) == (3, 1)
    with pytest.raises(UsageError, match=r"rounds = 7 is not a multiple of the 3 stages"):
        inner.at(0, 7)


@pytest.mark.parametrize("text", ["stages:4:4:5:if10", "stages:4:4:5:if10:outer", "equal:10:3"])
def test_a_saved_partition_with_stages_or_foreign_tests_comes_back_whole(text: str, tmp_path: Path) -> None:
    p, labels, tests = made(text)
    p.save(tmp_path / "p.npz")
    split = parse_split(f"file:{tmp_path / 'p.npz'}")
    back = make_partition(split, labels, 10, None, 5, None, tests)
    assert (back.sha256(), back.test_pool, back.recipe) == (p.sha256(), p.test_pool, p.recipe)
    assert p.sha256() != made(text, seed=1)[0].sha256()
    if p.stages is not None and back.stages is not None:
        assert back.stages.order == p.stages.order == ("outer" if "outer" in text else "inner")
        assert np.array_equal(back.stages.train, p.stages.train)
    with pytest.raises(UsageError, match="but the data has 10 test samples"):
        make_partition(split, labels, 10, None, 5, None, tests[:10])
    with pytest.raises(UsageError, match="no test set from which local test parts"):
        make_partition(parse_split(text), labels, 10, None, 0)
    with pytest.raises(UsageError, match="leave local_test out"):
        make_partition(parse_split(text), labels, 10, None, 0, 0.2, tests)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stages:100:10:5:if10", "2040 samples cannot fill 500 x 10 places"),
        ("stages:100:4:3:if1", "3 test samples a stage for 4 classes"),
    ],
)
def test_what_the_data_cannot_give_in_stages_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("counts", "size", "seats"),
    [
        ([50, 30, 0, 20], 10, [5, 3, 0, 2]),
        ([97, 2, 1], 10, [8, 1, 1]),  # 9.7, 0.2, 0.1: one each for the small ones
        ([1, 1, 1], 4, [2, 1, 1]),  # the lowest first
        ([45, 35, 20], 8, [4, 3, 1]),  # 3.6, 2.8, 1.6: two seats to .8 and .6
    ],
)
def test_seats_go_by_largest_remainder(counts: list[int], size: int, seats: list[int]) -> None:
    assert stages.apportioned(np.array(counts), size).tolist() == seats
    with pytest.raises(UsageError, match="2 test samples a stage for 3 classes"):
        stages.apportioned(np.array([1, 1, 1]), 2)
