"""Splits whose lists are those of published code: NIID-Bench, Flower's baselines, PFLlib and FedVLS; and
GLDP's split [N, S, M]: the counts, slots and constraints of docs/papers/gldp.md §EA2, and when a client has
which part.

The hashes are SHA-256 sums of lists that were made apart from raffed, class by class, with the generators and
seeds of the published code. Sizes that need only the sizes of classes are checked without the real data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from raffed.data import schemes, stages
from raffed.data.dataset import Dataset
from raffed.data.files import IntArray
from raffed.data.importers.client_folders import export, import_pfllib
from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.published_splits import Draws, drawn_classes
from raffed.data.splits import parse_split
from raffed.data.stages import Stages
from raffed.errors import UsageError

HASHES = {
    ("fashion-mnist", "label-count:10:2:flower:42"): "05bce522bc5e90abe11c350e39b25d59",
    ("mnist", "label-count:10:2:flower:42"): "2387a99bf32fedcf9ea0f4afa9c64c44",
    ("mnist", "capped-dirichlet:10:0.5:10:flower:0:42"): "58163133431b20362181685481fab96f",
    ("mnist", "power-law:1000:2:2:5:flower:42"): "1673aea87ef3aabe65ad400af053e26a",  # by flwr-datasets 0.6.1
    ("cifar10", "label-count:10:2:flower:42"): "01f13ea66c685932a581a6fd4ab78e48",
    ("cifar10", "label-count:10:2:niid-bench:0"): "7f2a827deb35532a178b4427b24e7d99",
    ("cifar10", "label-count:100:2:niid-bench:0"): "22dda5325f07a89466918d40b8f0adcd",
    ("cifar10", "capped-dirichlet:10:0.5:10:niid-bench:0:0"): "9289690c3c5ddcaf76a89b850fac98f0",
    ("cifar10", "capped-dirichlet:100:0.5:10:niid-bench:0:0"): "1589246a85a8507bdc2e44ec7e9f1ca4",
    ("cifar10", "capped-dirichlet:10:0.5:10:pfllib:0:0"): "29995f3fe0aa756442795b1375df083c",  # MOON
    ("cifar10", "capped-dirichlet:16:0.1:10:pfllib:0:2020"): "32001147a16324f46d88e39729f581b2",  # FedNova
    ("cifar10", "capped-dirichlet:10:0.5:10:pfllib:0:1"): "c1d1a83a73cd928e72690fe5582c1977",  # FedVLS
    ("cifar10", "class-groups:10:2:fedvls:1"): "e240a49a6e65ac586a35460f74f69a24",
}
JOINED_HASHES = {  # of training and test part together; PFLlib keeps a quarter of each client for its test
    ("fashion-mnist", "class-groups:20:2:pfllib:1", 0.25): "f4c7126e73229d9164b317707e521499",
    ("fashion-mnist", "capped-dirichlet:20:0.1:40:pfllib:0:1", 0.25): "7bf86bf8cfa66680a28fd77d0682edac",
    ("mnist", "capped-dirichlet:10:0.5:256:pfllib:0.25:1", 0.0): "557017bb886efe86364a63b07d332499",
}


def classes_of(size: int) -> IntArray:
    """Labels of ten classes of one size each, in no order."""
    return np.random.default_rng(1).permutation(np.arange(10 * size, dtype=np.int64) % 10)


def divided(text: str, labels: IntArray, seed: int = 0, local_test: float | None = None) -> Partition:
    return make_partition(parse_split(text), labels, 10, None, seed, local_test)


def sizes(partition: Partition) -> list[int]:
    return [len(part) for part in partition.train]


@pytest.mark.realdata
@pytest.mark.parametrize(("data", "split"), HASHES)
def test_the_lists_are_the_published_ones(data: str, split: str, real: Callable[[str], Dataset]) -> None:
    lists = divided(split, real(data).y, seed=77, local_test=0.0)
    assert lists.sha256()[:32] == HASHES[data, split]


@pytest.mark.realdata
@pytest.mark.parametrize(("data", "split", "share"), JOINED_HASHES)
def test_the_lists_of_joined_pools_are_the_published_lists(
    data: str, split: str, share: float, real: Callable[[str], Dataset]
) -> None:
    pool = real(data)
    lists = divided(split, np.concatenate([pool.y, pool.y_test]), seed=77, local_test=share)
    own = lists if share else Partition(lists.train, tuple(part[:0] for part in lists.test), 10)
    assert own.sha256()[:32] == JOINED_HASHES[data, split, share]


@pytest.mark.parametrize(
    ("code", "seed", "each", "owners"),
    [
        ("flower", 42, 2, "07 16 24 34 48 50 62 70 85 97"),
        ("niid-bench", 0, 2, "06 16 20 34 48 57 64 75 89 93"),
    ],
)
def test_owners_of_classes_are_those_of_published_code(code: str, seed: int, each: int, owners: str) -> None:
    drawn = drawn_classes(10, each, 10, Draws.of(code, seed))
    assert " ".join("".join(map(str, own)) for own in drawn) == owners


def test_sizes_that_need_only_the_sizes_of_the_classes_are_the_published_ones() -> None:
    """Flower's FedNova, FedVLS, and PFLlib's pathological Fashion-MNIST."""
    labels = classes_of(7000)
    fednova = divided("capped-dirichlet:16:0.1:10:pfllib:0:2020", classes_of(5000))
    assert sizes(fednova)[:8] == [298, 1077, 4862, 1743, 3713, 3867, 1600, 3271]
    fedvls = divided("class-groups:10:2:fedvls:1", classes_of(5000), local_test=0.0)
    assert sizes(fedvls) == [4715, 5285, 4168, 5832, 3539, 6461, 7522, 2478, 5164, 4836]
    found = divided("class-groups:20:2:pfllib:1", labels)
    assert sizes(found)[:8] == [1737, 975, 1719, 6068, 1544, 751, 1419, 6784]
    held = [sorted(set(labels[part].tolist())) for part in found.train]
    assert held == [[c, c + 1] for c in (0, 2, 4, 6, 8) for _ in range(4)]


def test_the_seed_of_the_run_counts_only_where_the_split_names_none() -> None:
    labels = classes_of(70)
    for text, named in (("capped-dirichlet:7:0.5:10:niid-bench:0", ":5"), ("label-count:7:3:flower", ":5")):
        assert divided(text + named, labels, 1).sha256() == divided(text + named, labels, 2).sha256()
        assert divided(text, labels, 5).sha256() == divided(text + named, labels, 1).sha256()
        assert divided(text, labels, 1).sha256() != divided(text, labels, 2).sha256()


def test_a_client_that_has_its_share_gets_no_sample_of_a_later_class() -> None:
    labels = classes_of(500)
    found = divided("capped-dirichlet:10:0.2", labels)
    counts = found.class_counts(labels)
    before = np.cumsum(counts, axis=1) - counts
    assert (counts[before >= len(labels) / 10] == 0).all()
    assert (counts.sum(), min(sizes(found)) >= 10) == (len(labels), True)
    assert min(sizes(divided("capped-dirichlet:8:1.0:20", classes_of(40)))) >= 20
    few = divided("label-count:4:1", classes_of(50))
    assert (sizes(few), few.recipe["leftovers"]) == ([50] * 4, 300), "classes without an owner are left over"


@pytest.mark.parametrize(
    ("text", "local_test", "said"),
    [
        ("capped-dirichlet:10:0.5:60", None, "500 samples cannot give 10 clients 60 each"),
        ("capped-dirichlet:10:0.00001:45", None, "use a larger alpha, fewer clients or a smaller"),
        ("capped-dirichlet:10:0.5:10:pfllib:0.2", 0.2, "set local_test to 0"),
        ("class-groups:40:2:fedvls:1", None, "use pfllib or another seed"),
        ("power-law:15:2", None, "must be a multiple of the 10 classes"),
        ("power-law:50:2", None, "class 0 has 50 samples for 10 clients"),
    ],
)
def test_what_cannot_be_divided_is_refused_with_the_remedy(
    text: str, local_test: float | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raffed.data.published_splits.TRIES", 50)
    with pytest.raises(UsageError, match=said):
        divided(text, classes_of(50), local_test=local_test)
    with pytest.raises(UsageError, match="a seed from 0 to"):
        divided("label-count:7:3", classes_of(70), seed=2**40)


X = np.random.RandomState(0).randint(0, 256, (40, 1, 3, 2)).astype(np.uint8)
Y = np.arange(40) % 4
TRAIN = [np.array([3, 1, 2, 8, 9]), np.array([20, 10, 11, 12, 13, 14, 15])]
TEST = [np.array([4, 5]), np.array([6])]


def test_pfllib_reads_back_what_was_written(tmp_path: Path) -> None:
    """PFLlib's `read_data` is np.load(file, allow_pickle=True)["data"].tolist()."""
    path = export(Dataset(X, Y).divided(TRAIN, TEST, "train", "p2c4"), f"pfllib:{tmp_path / 'out'}")
    found = import_pfllib(path)
    rows, tests = np.concatenate(TRAIN), np.concatenate(TEST)
    assert np.array_equal(found.x, X[rows].astype(np.float32) / np.float32(255))
    assert (found.y.tolist(), found.y_test.tolist()) == (Y[rows].tolist(), Y[tests].tolist())
    assert found.clients.tolist() == [0] * 5 + [1] * 7
    with (path / "train" / "1.npz").open("rb") as file:
        data = np.load(file, allow_pickle=True)["data"].tolist()
    assert data["y"].tolist() == Y[TRAIN[1]].tolist()


def test_exported_pixels_are_divided_by_the_value_that_means_1(tmp_path: Path) -> None:
    """As in training: those of digits go up to 16, so a pixel of 4 is 0.25."""
    y = np.array([0, 1, 0, 1])
    sixteenths = np.array([4, 8, 12, 16], np.uint8).reshape(4, 1, 1, 1)
    lists = [np.arange(3)], [np.array([3])]
    data = Dataset(sixteenths, y, max_value=16).divided(*lists, "train", "iid:1")
    found = import_pfllib(export(data, f"pfllib:{tmp_path / 'p'}"))
    assert (found.x.ravel().tolist(), found.x_test.ravel().tolist()) == ([0.25, 0.5, 0.75], [1.0])
    path = export(data, f"flwr:{tmp_path / 'f'}")
    table = parquet.read_table(path / "train.parquet").to_pydict()
    assert np.ravel(table["x"]).tolist() == [0.25, 0.5, 0.75]
    assert table["client"] == [0, 0, 0]
    assert "NaturalIdPartitioner" in (path / "README.txt").read_text()


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
