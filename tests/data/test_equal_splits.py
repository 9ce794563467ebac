"""MpFedcon's splits: equal counts of S classes (docs/papers/mpfedcon.md §EA4), log-normal sizes of
neighbouring classes (§EA5).
"""

from __future__ import annotations

import numpy as np
import pytest

from raffed.data import schemes
from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.splits import parse_split
from raffed.errors import UsageError

# §EA4: C, clients, classes, shards per class, images per shard train / test, per party train / test
STATED = [
    (10, 100, 2, 20, 250, 50, 500, 100),
    (10, 100, 5, 50, 100, 20, 500, 100),
    (10, 50, 5, 25, 200, 40, 1000, 200),
    (100, 100, 5, 5, 100, 20, 500, 100),
    (100, 100, 20, 20, 25, 5, 500, 100),
    (10, 1000, 2, 200, 25, 5, 50, 10),
]


def cifar(classes: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(50_000, dtype=np.int64) % classes, np.arange(10_000, dtype=np.int64) % classes


def equal(classes: int, clients: int, each: int, seed: int = 0, word: str = "") -> Partition:
    labels, tests = cifar(classes)
    return make_partition(
        parse_split(f"equal:{clients}:{each}{word}"), labels, classes, None, seed, None, tests
    )


@pytest.mark.parametrize(
    ("classes", "clients", "each", "k", "shard", "test_shard", "party", "test_party"), STATED
)
def test_equal_splits_have_the_sheet_s_sizes(
    classes, clients, each, k, shard, test_shard, party, test_party
) -> None:
    p, (labels, tests) = equal(classes, clients, each), cifar(classes)
    train = p.class_counts(labels)
    test = np.stack([np.bincount(tests[own], minlength=classes) for own in p.test])
    assert set(np.unique(train)) == {0, shard}
    assert set(np.unique(test)) == {0, test_shard}
    assert set(train.sum(axis=1)) == {party}
    assert set(test.sum(axis=1)) == {test_party}
    assert ((train > 0) == (test > 0)).all()
    assert set((train > 0).sum(axis=0)) == {k}
    for lists in (p.train, p.test):
        everything = np.concatenate(lists)
        assert len(np.unique(everything)) == len(everything)
    assert p.test_pool == "test"
    assert p.recipe["leftovers"] == p.recipe["reused"] == 0


def test_the_seed_decides_the_class_sets() -> None:
    assert equal(10, 100, 5).sha256() == equal(10, 100, 5).sha256()
    assert equal(10, 100, 5).sha256() != equal(10, 100, 5, seed=1).sha256()


def test_with_duplicates_a_third_of_the_clients_miss_a_class_of_their_five_as_in_fedrep_s_code() -> None:
    """Cutting a deck with every class 50 times: all five distinct with probability 10·9·8·7·6·50^5 /
    (500·499·498·497·496) = 0.309, so some 69 % have one twice; the 30 % stated for FedRep's code counts the
    distinct ones. Binomial(1000, 0.691), five deviations.
    """
    labels, _ = cifar(10)
    held = []
    for seed in range(10):
        p = equal(10, 100, 5, seed=seed, word=":duplicates")
        counts = p.class_counts(labels)
        assert set(counts.sum(axis=1)) == {500}
        assert set(np.unique(counts % 100)) == {0}
        held += (counts > 0).sum(axis=1).tolist()
    expected = 1 - np.prod([(10 - i) * 50 / (500 - i) for i in range(5)])
    assert abs(sum(n < 5 for n in held) - 1000 * expected) < 5 * np.sqrt(1000 * expected * (1 - expected))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("equal:100:11", "11 classes each, but the data has 10"),
        ("equal:7:3", "7 x 3 places are not a multiple of the 10 classes"),
        ("equal:10000:10", "10000 shards of a class, but the smallest has 1000 samples"),
        ("lognormal:10:11", "11 classes a client, but the data has 10"),
    ],
)
def test_what_the_data_cannot_give_is_refused(text: str, said: str) -> None:
    labels, tests = cifar(10)
    with pytest.raises(UsageError) as caught:
        make_partition(parse_split(text), labels, 10, None, 0, None, tests)
    assert said in str(caught.value)


def test_lognormal_clients_have_neighbouring_classes_in_equal_counts_and_148_samples_on_average() -> None:
    """n = 58 + LN(4, 1): mean 58 + e^4.5 = 148.0, sd e^4.5 sqrt(e - 1) = 118.0 without the cap at 500 (E
    lost: 3.9).
    """
    parts = schemes.lognormal([np.arange(200_000) * 10 + c for c in range(10)], 2000, 3, seed=0)
    sizes = np.array([len(part) for part in parts])
    for client, part in enumerate(parts):
        counts = np.bincount(part % 10, minlength=10)
        assert set(np.flatnonzero(counts)) == {(client + step) % 10 for step in range(3)}
        assert len(set(counts[counts > 0])) == 1
    assert sizes.min() >= 57
    assert sizes.max() == 498, "500 cut to a multiple of 3"
    assert abs(sizes.mean() - (148 - 4.9)) < 5 * 118 / np.sqrt(2000)
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything)


def test_an_exhausted_class_starts_again_and_the_recipe_says_how_often() -> None:
    labels = np.arange(1000, dtype=np.int64) % 10
    p = make_partition(parse_split("lognormal:20:3"), labels, 10, None, 0)
    everything = np.concatenate([*p.train, *p.test])
    assert p.recipe["reused"] == len(everything) - len(np.unique(everything)) > 0
    for train, test in zip(p.train, p.test, strict=True):
        own = np.concatenate([train, test])
        assert len(np.unique(own)) == len(own)
        assert len(test) == int(0.1 * len(own))


def test_a_partition_with_reused_samples_is_read_back_and_one_that_hides_them_is_not(tmp_path) -> None:
    labels = np.arange(1000, dtype=np.int64) % 10
    p = make_partition(parse_split("lognormal:20:3"), labels, 10, None, 0)
    p.save(tmp_path / "p.npz")
    assert Partition.load(tmp_path / "p.npz", 1000).sha256() == p.sha256()
    Partition(p.train, p.test, 10, {**p.recipe, "reused": 0}).save(tmp_path / "q.npz")
    with pytest.raises(UsageError, match="listed twice"):
        Partition.load(tmp_path / "q.npz", 1000)
