"""Splits whose lists are those of published code: NIID-Bench, Flower's baselines, PFLlib and FedVLS.

The hashes are SHA-256 sums of lists that were made apart from raffed, class by class, with the generators and
seeds of the published code. Sizes that need only the sizes of classes are checked without the real data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from raffed.data.dataset import Dataset
from raffed.data.files import IntArray
from raffed.data.importers.client_folders import DividedData, export, import_pfllib
from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.published_splits import Draws, drawn_classes
from raffed.data.splits import parse_split
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
SMALL = (
    "label-count:7:3",
    "label-count:12:3:flower",
    "capped-dirichlet:7:0.5",
    "capped-dirichlet:7:0.3:5:pfllib",
    "capped-dirichlet:7:0.5:10:flower:0:3",
    "class-groups:10:2",
    "class-groups:10:2:fedvls:4",
    "power-law:10:2:1:5:flower:42",
)


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


@pytest.mark.parametrize("text", SMALL)
def test_no_sample_is_with_two_clients_or_in_two_roles_and_none_is_lost(text: str) -> None:
    """A quarter of each client, rounded up, is its local test part."""
    labels = classes_of(70)
    for local_test in (None, 0.0, 0.25, 0.9):
        found = divided(text, labels, seed=2, local_test=local_test)
        everything = np.concatenate([*found.train, *found.test])
        assert len(np.unique(everything)) == len(everything)
        assert len(everything) + int(found.recipe["leftovers"] or 0) == len(labels)
        assert min(sizes(found)) >= 1
        for train, test in zip(found.train, found.test, strict=True):
            assert local_test != 0.25 or len(train) == 3 * (len(train) + len(test)) // 4


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


def exported(x: np.ndarray = X, tests: bool = True) -> DividedData:
    test = TEST if tests else [np.zeros(0, np.int64)] * 2
    return Dataset(x, Y).divided(TRAIN, test, "train", "p2c4")


def test_pfllib_reads_back_what_was_written(tmp_path: Path) -> None:
    """PFLlib's `read_data` is np.load(file, allow_pickle=True)["data"].tolist()."""
    path = export(exported(), f"pfllib:{tmp_path / 'out'}")
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
