"""The schemes against docs/papers/map.md and fedmr.md, and against the distributions they claim."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raffed.data import schemes
from raffed.errors import UsageError

GOLDEN = [  # docs/papers/fedmr.md §E2: clients, classes, C, hash of the lists, times a class is owned
    (5, 2, 10, "82f2251eb4bb0fe8", [1] * 10),
    (10, 2, 10, "69820e371426e431", [2, 1, 1, 1, 3, 2, 3, 3, 2, 2]),
    (10, 3, 10, "f237071db79fde68", [2, 2, 3, 2, 5, 2, 3, 3, 4, 4]),
    (10, 5, 10, "d5f2ad1427f881a7", [4, 5, 3, 3, 6, 5, 5, 7, 7, 5]),
    (50, 3, 10, "dec90c78752135dd", [12, 22, 10, 16, 15, 16, 10, 14, 16, 19]),
    (100, 3, 10, "3c4f0a60da54ab79", [31, 38, 27, 29, 31, 29, 22, 31, 28, 34]),
    (10, 10, 100, "b833f71e5f34bd69", (1, 1)),
    (10, 20, 100, "629880863edab9e8", (1, 5)),
    (10, 30, 100, "8f269272d0e0d638", (1, 6)),
    (10, 50, 100, "acf2ba50a59b9b09", (1, 8)),
    (50, 10, 100, "900dd1d44c7fb82b", (1, 10)),
    (100, 10, 100, "508c0859c2230d5d", (4, 19)),
]


@pytest.mark.parametrize(("clients", "classes", "num_classes", "hashed", "times"), GOLDEN)
def test_class_lists_at_seed_0_are_the_published_ones(
    clients: int, classes: int, num_classes: int, hashed: str, times: list[int] | tuple[int, int]
) -> None:
    lists = schemes.class_lists(clients, classes, num_classes, 0)
    assert hashlib.sha256(json.dumps(lists, separators=(",", ":")).encode()).hexdigest()[:16] == hashed
    owned = np.bincount(np.concatenate(lists), minlength=num_classes)
    assert (owned.tolist() if isinstance(times, list) else (owned.min(), owned.max())) == times


def test_p10c2_at_seed_0_written_out() -> None:
    expected = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [6, 0], [4, 8], [7, 6], [4, 7], [5, 9]]
    assert schemes.class_lists(10, 2, 10, 0) == expected


def test_p10c2_client_sizes_on_cifar_are_the_published_ones(cifar_labels: np.ndarray) -> None:
    parts = schemes.by_class_lists(cifar_labels, 10, schemes.class_lists(10, 2, 10, 0), seed=0)
    expected = [7500, 10000, 4167, 3333, 5000, 4167, 4167, 3333, 3333, 5000]
    np.testing.assert_allclose([len(part) for part in parts], expected, atol=1)


@pytest.mark.parametrize(
    ("clients", "classes", "num_classes", "low", "high"),
    [
        (10, 2, 10, 2250, 10000),
        (10, 3, 10, 2833, 11250),
        (10, 5, 10, 3720, 9214),
        (50, 3, 10, 726, 1488),
        (100, 3, 10, 388, 659),
        (10, 20, 100, 3266, 8166),
        (50, 10, 100, 650, 2018),
        (100, 10, 100, 372, 787),
    ],
)
def test_client_sizes_over_50_seeds_span_the_published_range(
    clients: int, classes: int, num_classes: int, low: int, high: int
) -> None:
    """CIFAR: 5,000 or 500 samples a class, each divided evenly among its owners."""
    sizes = []
    for seed in range(50):
        lists = schemes.class_lists(clients, classes, num_classes, seed)
        times = np.bincount(np.concatenate(lists), minlength=num_classes)
        sizes += [sum(50_000 / num_classes / times[label] for label in own) for own in lists]
    assert min(sizes) == pytest.approx(low, abs=2)
    assert max(sizes) == pytest.approx(high, abs=2)


@settings(deadline=None)
@given(
    clients=st.integers(1, 40),
    classes=st.integers(1, 12),
    num_classes=st.integers(1, 12),
    seed=st.integers(0, 2**40),
)
def test_class_lists_have_exactly_the_classes_asked_for_or_are_refused(
    clients: int, classes: int, num_classes: int, seed: int
) -> None:
    if classes > num_classes or clients * classes < num_classes:
        with pytest.raises(UsageError, match=f"p{clients}c{classes}"):
            schemes.class_lists(clients, classes, num_classes, seed)
        return
    lists = schemes.class_lists(clients, classes, num_classes, seed)
    assert [len(set(own)) for own in lists] == [classes] * clients
    assert set().union(*lists) == set(range(num_classes))


@settings(deadline=None, max_examples=40)
@given(
    clients=st.integers(1, 30),
    classes=st.integers(1, 6),
    seed=st.integers(0, 1000),
    extra=st.integers(0, 200),
)
def test_pxcy_uses_every_sample_once_in_parts_that_differ_by_at_most_one(
    clients: int, classes: int, seed: int, extra: int
) -> None:
    if clients * classes < 6:
        return
    labels = np.random.default_rng(seed).permutation(np.arange(6 * 40 + extra, dtype=np.int64) % 6)
    lists = schemes.class_lists(clients, classes, 6, seed)
    parts = schemes.by_class_lists(labels, 6, lists, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    for label in range(6):
        sizes = [
            int(np.sum(labels[part] == label)) for part, own in zip(parts, lists, strict=True) if label in own
        ]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True), "the first parts are the larger ones"
    for part, own in zip(parts, lists, strict=True):
        assert set(labels[part].tolist()) == set(own)


@pytest.mark.parametrize(("clients", "classes", "num_classes"), [(5, 2, 10), (10, 10, 100)])
def test_exactly_disjoint_splits_have_equal_clients_without_a_common_class(
    clients: int, classes: int, num_classes: int
) -> None:
    labels = np.arange(50_000, dtype=np.int64) % num_classes
    parts = schemes.by_class_lists(
        labels, num_classes, schemes.class_lists(clients, classes, num_classes, 3), seed=3
    )
    assert {len(part) for part in parts} == {50_000 // clients}
    held = [set(labels[part].tolist()) for part in parts]
    assert sum(len(classes_) for classes_ in held) == len(set().union(*held)) == num_classes


def test_pxcy_with_fewer_samples_than_owners_of_a_class_is_refused() -> None:
    labels = np.array([0, 1, 1, 1, 1], dtype=np.int64)
    with pytest.raises(UsageError, match="class 0 has 1 samples for 2 owners"):
        schemes.by_class_lists(labels, 2, [[0, 1], [1, 0]], seed=0)


def test_pxcy_with_all_classes_has_the_sizes_of_iid(cifar_labels: np.ndarray) -> None:
    every = schemes.by_class_lists(cifar_labels, 10, schemes.class_lists(10, 10, 10, 0), seed=0)
    even = schemes.iid(cifar_labels, 10, 10, seed=0)
    for one, other in zip(every, even, strict=True):
        np.testing.assert_array_equal(np.bincount(cifar_labels[one]), np.bincount(cifar_labels[other]))


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_iid_clients_differ_by_at_most_one_sample_in_total_and_in_every_class(data: st.DataObject) -> None:
    labels = np.array(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=200)), dtype=np.int64)
    clients = data.draw(st.integers(1, len(labels)))
    parts = schemes.iid(labels, 5, clients, seed=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    counts = np.stack([np.bincount(labels[part], minlength=5) for part in parts])
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1


def test_incomplete_number_of_classes_is_uniform_from_2_to_c() -> None:
    """docs/papers/map.md §E2.3 S4: 1000 clients, 9 equally likely values; chi-square with 8 degrees of
    freedom exceeds 26.1 once in 1000.
    """
    labels = np.arange(200_000, dtype=np.int64) % 10
    parts = schemes.incomplete(labels, 10, 1000, seed=0)
    held = np.bincount([len(np.unique(labels[part])) for part in parts], minlength=11)[2:]
    assert len(held) == 9
    assert np.sum((held - 1000 / 9) ** 2 / (1000 / 9)) < 26.1


def test_incomplete_has_the_simulated_statistics_of_the_sheet(cifar_labels: np.ndarray) -> None:
    """CIFAR-10, 100 clients, 20 seeds: 6.0 classes and 500 samples a client, sd 30 %, 53 to 67 holders a
    class.
    """
    held, sizes, holders, leftovers = [], [], [], []
    for seed in range(20):
        parts = schemes.incomplete(cifar_labels, 10, 100, seed)
        counts = np.stack([np.bincount(cifar_labels[part], minlength=10) for part in parts])
        held.append(np.count_nonzero(counts, axis=1))
        sizes.append(counts.sum(axis=1))
        holders.append(np.count_nonzero(counts, axis=0))
        leftovers.append(50_000 - counts.sum())
    assert np.mean(held) == pytest.approx(6.0, abs=0.2)
    assert np.mean(sizes) == pytest.approx(500, abs=1)
    assert np.std(sizes) / np.mean(sizes) == pytest.approx(0.30, abs=0.04)
    assert np.mean(holders) == pytest.approx(60, abs=1.5)
    assert max(leftovers) <= 70, "rounding misses a class by 7 at most"
    assert min(leftovers) >= 0


def test_incomplete_of_a_hundred_classes_has_the_statistics_of_the_sheet() -> None:
    """CIFAR-100: 51.5 classes (the mean of 2 to 100 is 51) and 499 samples a client; within a client
    max/min is 2.2, up to 11.
    """
    labels, held, sizes, ratios = np.arange(50_000, dtype=np.int64) % 100, [], [], []
    for seed in range(20):
        for part in schemes.incomplete(labels, 100, 100, seed):
            counts = np.bincount(labels[part], minlength=100)
            counts = counts[counts > 0]
            held.append(len(counts))
            sizes.append(counts.sum())
            ratios.append(counts.max() / counts.min())
    assert np.mean(held) == pytest.approx(51.5, abs=1.5)
    assert np.mean(sizes) == pytest.approx(499, abs=1)
    assert np.mean(ratios) == pytest.approx(2.2, abs=0.3)


def test_incomplete_classes_of_a_client_are_nearly_balanced(cifar_labels: np.ndarray) -> None:
    """docs/papers/map.md §E2.1: within-client max/min class ratio 1.35 for C = 10."""
    ratios = []
    for part in schemes.incomplete(cifar_labels, 10, 100, seed=1):
        counts = np.bincount(cifar_labels[part])
        ratios.append(counts.max() / counts[counts > 0].min())
    assert np.mean(ratios) == pytest.approx(1.35, abs=0.15)


def test_incomplete_covers_all_classes_even_with_one_client_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = np.arange(100, dtype=np.int64) % 10
    (only,) = schemes.incomplete(labels, 10, 1, seed=0)
    assert set(labels[only].tolist()) == set(range(10))
    with pytest.raises(UsageError, match="too few for 50 clients"):
        schemes.incomplete(labels, 10, 50, seed=0)
    monkeypatch.setattr(schemes, "MAX_REDRAWS", 3)
    with pytest.raises(UsageError, match="2 clients do not cover 2000 classes"):
        schemes.incomplete(np.arange(2000, dtype=np.int64), 2000, 2, seed=1)


def test_dirichlet_shares_have_the_distributions_mean_and_variance() -> None:
    """p ~ Dir(α 1_N): mean 1/N, variance (1/N)(1 - 1/N)/(N α + 1); here N = 5, α = 0.5, over 1000 classes."""
    labels = np.arange(200_000, dtype=np.int64) % 1000
    parts = schemes.dirichlet(labels, 1000, 5, 0.5, seed=0)
    shares = np.stack([np.bincount(labels[part], minlength=1000) for part in parts]) / 200
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    np.testing.assert_allclose(shares.mean(axis=1), 0.2, atol=0.03)
    assert shares.var() == pytest.approx(0.2 * 0.8 / 3.5, rel=0.06)


def test_dirichlet_client_with_a_huge_alpha_differs_in_quantity_alone() -> None:
    """π is uniform, so every client has the same number of each class, in proportion to LogNormal(0, 0.3)."""
    labels = np.arange(1_000_000, dtype=np.int64) % 10
    parts = schemes.dirichlet_client(labels, 10, 200, 1e6, seed=0)
    counts = np.stack([np.bincount(labels[part], minlength=10) for part in parts])
    assert (counts.max(axis=1) / counts.min(axis=1)).max() < 1.05
    assert np.log(counts.sum(axis=1)).std() == pytest.approx(0.3, abs=0.05)


def test_dirichlet_client_draws_each_clients_shares_of_the_classes() -> None:
    """π_k ~ Dir(a·1_C), here a = 0.1, C = 10: a share has variance 0.09/(10a + 1) = 0.045. Sizes vary as
    LogNormal(0, 0.3) does, about 0.31 of their mean; were each class dealt over the clients by Dir(a), they
    would by 1.0.
    """
    labels = np.arange(1_000_000, dtype=np.int64) % 10
    parts = schemes.dirichlet_client(labels, 10, 1000, 0.1, seed=0)
    counts = np.stack([np.bincount(labels[part], minlength=10) for part in parts])
    sizes = counts.sum(axis=1)
    assert (counts / sizes[:, None]).var() == pytest.approx(0.045, rel=0.05)
    assert sizes.std() / sizes.mean() == pytest.approx(0.31, abs=0.03)


@settings(deadline=None, max_examples=30)
@given(
    alpha=st.sampled_from([1e-6, 1e-3, 0.01, 0.5, 1e6]),
    clients=st.integers(1, 60),
    seed=st.integers(0, 10**6),
)
def test_both_dirichlets_use_every_sample_once(alpha: float, clients: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 7, 300)
    for scheme in (schemes.dirichlet, schemes.dirichlet_client):
        parts = scheme(labels, 7, clients, alpha, seed)
        assert len(parts) == clients
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(300))


@settings(deadline=None, max_examples=100)
@given(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=30), minimum=st.integers(1, 3))
def test_with_minimum_moves_as_few_samples_as_can_be(sizes: list[int], minimum: int) -> None:
    if sum(sizes) < minimum * len(sizes):
        return
    parts = np.split(np.arange(sum(sizes), dtype=np.int64), np.cumsum(sizes)[:-1])
    got, moved = schemes.with_minimum(list(parts), minimum)
    assert min(len(part) for part in got) >= minimum
    assert moved == sum(max(minimum - size, 0) for size in sizes)
    np.testing.assert_array_equal(np.sort(np.concatenate(got)), np.arange(sum(sizes)))


def test_with_minimum_takes_from_the_largest_first() -> None:
    parts = [np.arange(0, 4), np.arange(4, 4), np.arange(4, 9), np.arange(9, 9)]
    got, moved = schemes.with_minimum(parts, 1)
    assert ([part.tolist() for part in got], moved) == ([[0, 1, 2], [8], [4, 5, 6, 7], [3]], 2)


def test_shards_are_pieces_of_the_sorted_labels(cifar_labels: np.ndarray) -> None:
    """McMahan et al.: 200 shards of 250 lie inside one class each, so a client of two has at most two
    classes.
    """
    parts = schemes.shards(cifar_labels, 10, 100, 2, seed=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(50_000))
    assert {len(part) for part in parts} == {500}
    assert {len(np.unique(cifar_labels[part])) for part in parts} == {1, 2}


def test_natural_clients_are_the_groups_in_order_and_natural_k_the_first() -> None:
    groups = np.array([5, 2, 5, 9, 2], dtype=np.int64)
    assert [part.tolist() for part in schemes.natural(groups, None)] == [[1, 4], [0, 2], [3]]
    assert [part.tolist() for part in schemes.natural(groups, 2)] == [[1, 4], [0, 2]]
    with pytest.raises(UsageError, match="natural:4: the data has 3 groups"):
        schemes.natural(groups, 4)
