"""Data sets, also FEMNIST's files of strangers: only right bytes are read, and what is wrong is said with a
remedy.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raffed.data.catalogue import DATASETS, DataFile
from raffed.data.dataset import Dataset, fewer
from raffed.data.datasets import load_dataset
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split
from raffed.errors import DataFileError, UnknownNameError, UsageError
from tests.fuzz.strangers import Trap


def idx(array: np.ndarray) -> bytes:
    """LeCun's IDX format, written down from its description."""
    sizes = b"".join(struct.pack(">I", size) for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def small_mnist(root: Path, packed: bool) -> tuple[list[np.ndarray], tuple[DataFile, ...]]:
    """Four files in MNIST's layout with three training and two test images, and their own md5s."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 256, (3, 28, 28)),
        np.array([7, 0, 9]),
        rng.integers(0, 256, (2, 28, 28)),
        np.array([1, 2]),
    ]
    files = []
    for published, array in zip(DATASETS["mnist"].files, arrays, strict=True):
        raw, path = idx(array), root / published.path
        path.parent.mkdir(parents=True, exist_ok=True)
        zipped = gzip.compress(raw)
        (path.with_name(path.name + ".gz") if packed else path).write_bytes(zipped if packed else raw)
        files.append(DataFile(published.path, hashlib.md5(raw).hexdigest(), hashlib.md5(zipped).hexdigest()))
    return arrays, tuple(files)


def test_digits_are_scikit_learn_s_with_a_fifth_of_every_class_for_tests(digits: Dataset) -> None:
    from sklearn.datasets import load_digits

    whole = load_digits()
    totals = np.bincount(whole.target)
    assert (digits.x.shape, digits.x_test.shape) == ((1442, 1, 8, 8), (355, 1, 8, 8))
    assert (digits.x.dtype, digits.y.dtype) == (np.uint8, np.int64)
    np.testing.assert_array_equal(np.bincount(digits.y_test), totals // 5)
    np.testing.assert_array_equal(np.bincount(digits.y), totals - totals // 5)
    assert digits.x.max() == digits.max_value == 16
    ours = np.concatenate([digits.x, digits.x_test]).reshape(-1, 64)
    labels = np.concatenate([digits.y, digits.y_test]).tolist()
    theirs = zip(map(bytes, whole.data.astype(np.uint8)), whole.target.tolist(), strict=True)
    assert sorted(zip(map(bytes, ours), labels, strict=True)) == sorted(theirs)


def test_names_have_any_case_and_a_root_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_dataset(" DIGITS ").name == "digits"
    with pytest.raises(UnknownNameError, match="nearest: digits"):
        load_dataset("digit")
    monkeypatch.delenv("RAFFED_DATA", raising=False)
    with pytest.raises(DataFileError, match=r"RAFFED_DATA.*--data-root"):
        load_dataset("mnist")
    monkeypatch.setenv("RAFFED_DATA", str(tmp_path))
    with pytest.raises(DataFileError, match=str(tmp_path)):
        load_dataset("mnist")


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_a_missing_and_a_damaged_file_are_named_with_their_md5(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=str(tmp_path)) as missing:
        load_dataset(name, tmp_path)
    if not DATASETS[name].files:
        return
    first = DATASETS[name].files[0]
    for part in (first.path, first.md5, "RAFFED_DATA", "--data-root", "--download"):
        assert part in str(missing.value)
    path = tmp_path / first.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not the published file")
    with pytest.raises(DataFileError) as damaged:
        load_dataset(name, tmp_path)
    for part in (str(path), first.md5, hashlib.md5(b"not the published file").hexdigest(), "delete it"):
        assert part in str(damaged.value)


def test_a_pickle_that_is_not_the_published_one_is_never_unpickled(tmp_path: Path) -> None:
    mark, files = tmp_path / "exploded", DATASETS["cifar10"].files
    for file in files:
        (tmp_path / file.path).parent.mkdir(exist_ok=True)
        (tmp_path / file.path).write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(DataFileError, match="md5"):
        load_dataset("cifar10", tmp_path)
    assert not mark.exists()
    pickle.loads((tmp_path / files[0].path).read_bytes())
    assert mark.exists(), "the trap works"


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_layout_may_be_packed(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, files = small_mnist(tmp_path, packed)
    monkeypatch.setitem(DATASETS, "mnist", dataclasses.replace(DATASETS["mnist"], files=files))
    got = load_dataset("mnist", tmp_path)
    np.testing.assert_array_equal(got.x[:, 0], arrays[0])
    np.testing.assert_array_equal(got.y, arrays[1])
    np.testing.assert_array_equal(got.x_test[:, 0], arrays[2])
    np.testing.assert_array_equal(got.y_test, arrays[3])
    assert got.x.flags.writeable


def test_cifar_100_is_read_with_its_fine_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four training and two test images."""
    from torchvision.datasets import CIFAR100

    data = np.random.default_rng(0).integers(0, 256, (6, 3072), dtype=np.uint8)
    labels, md5 = [99, 0, 41, 7, 12, 99], {}
    files = {
        "train": {"data": data[:4], "fine_labels": labels[:4]},
        "test": {"data": data[4:], "fine_labels": labels[4:]},
        "meta": {"fine_label_names": [f"class {c}" for c in range(100)]},
    }
    (tmp_path / "cifar-100-python").mkdir()
    for name, content in files.items():
        raw = pickle.dumps(content)
        (tmp_path / "cifar-100-python" / name).write_bytes(raw)
        md5[name] = hashlib.md5(raw).hexdigest()
    own = tuple(DataFile(f.path, md5[Path(f.path).name]) for f in DATASETS["cifar100"].files)
    monkeypatch.setitem(DATASETS, "cifar100", dataclasses.replace(DATASETS["cifar100"], files=own))
    monkeypatch.setattr(CIFAR100, "train_list", [["train", md5["train"]]])
    monkeypatch.setattr(CIFAR100, "test_list", [["test", md5["test"]]])
    monkeypatch.setattr(CIFAR100, "meta", {**CIFAR100.meta, "md5": md5["meta"]})
    got = load_dataset("cifar-100", tmp_path)
    np.testing.assert_array_equal(np.concatenate([got.x, got.x_test]).reshape(6, 3072), data)
    assert (got.y.tolist(), got.y_test.tolist(), got.num_classes) == (labels[:4], labels[4:], 100)


def test_svhn_is_read_and_its_label_10_is_the_digit_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scipy.io import savemat
    from torchvision.datasets import SVHN

    images = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 5), dtype=np.uint8)
    splits, files = {}, []
    for published, part, labels in zip(
        DATASETS["svhn"].files, (slice(0, 3), slice(3, 5)), ([1, 10, 9], [10, 2]), strict=True
    ):
        savemat(
            tmp_path / published.path,
            {"X": images[..., part], "y": np.array(labels, dtype=np.uint8)[:, None]},
        )
        md5 = hashlib.md5((tmp_path / published.path).read_bytes()).hexdigest()
        files.append(DataFile(published.path, md5))
        splits[published.path.split("_")[0]] = ["", published.path, md5]
    monkeypatch.setitem(DATASETS, "svhn", dataclasses.replace(DATASETS["svhn"], files=tuple(files)))
    monkeypatch.setattr(SVHN, "split_list", splits)
    got = load_dataset("svhn", tmp_path)
    np.testing.assert_array_equal(np.concatenate([got.x, got.x_test]), images.transpose(3, 2, 0, 1))
    assert (got.y.tolist(), got.y_test.tolist()) == ([1, 0, 9], [0, 2])


def test_fewer_samples_are_equally_many_of_every_class_in_the_pool_s_order(digits: Dataset) -> None:
    few = fewer(digits, 100, seed=3)
    assert np.bincount(few.y).tolist() == [10] * 10
    places = [int(np.flatnonzero((digits.x == image).all(axis=(1, 2, 3)))[0]) for image in few.x]
    assert places == sorted(places)
    np.testing.assert_array_equal(digits.y[places], few.y)
    assert few.x_test is digits.x_test
    assert not np.array_equal(few.x, fewer(digits, 100, seed=4).x)
    assert fewer(digits, 0, seed=3) is digits
    most = 10 * np.bincount(digits.y).min()
    for wrong in (101, 10_000):
        said = f"data.samples = {wrong} for digits: it must be a multiple of 10 up to {most}"
        with pytest.raises(UsageError, match=said):
            fewer(digits, wrong, seed=0)


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "most"), [("fashion-mnist", 6000), ("cifar10", 5000)])
def test_the_real_sets_have_the_published_sizes(name: str, most: int, real: Callable[[str], Dataset]) -> None:
    got, info = real(name), DATASETS[name]
    assert got.x.shape == (info.num_train, *info.shape)
    assert got.x_test.shape == (info.num_test, *info.shape)
    np.testing.assert_array_equal(np.bincount(got.y), [most] * 10)
    np.testing.assert_array_equal(np.bincount(got.y_test), [1000] * 10)


def npz_arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (5, 28, 28), dtype=np.uint8),
        "labels": np.array([0, 61, 5, 5, 10], dtype=np.uint8),
        "writer": np.array([1, 1, 0, 2, 2], dtype=np.uint16),
        "writer_ids": np.array(["a", "b", "c"]),
    }
    return arrays | changes


def write_npz(root: Path, arrays: dict[str, Any], name: str = "some.npz") -> Path:
    (root / "FEMNIST").mkdir(exist_ok=True)
    np.savez(root / "FEMNIST" / name, **arrays)
    return root / "FEMNIST" / name


def leaf(users: dict[str, list[int]]) -> dict[str, Any]:
    """LEAF's json: user -> labels; each image is constant, label / 255."""
    data = {
        user: {"x": [[label / 255] * 784 for label in labels], "y": labels} for user, labels in users.items()
    }
    return {
        "users": list(users),
        "num_samples": [len(labels) for labels in users.values()],
        "user_data": data,
    }


def write_leaf(root: Path, content: Any, name: str = "all.json") -> None:
    path = root / "FEMNIST" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_the_npz_layout_gives_images_labels_and_writers(tmp_path: Path) -> None:
    arrays = npz_arrays()
    write_npz(tmp_path, arrays)
    got = load_dataset("femnist", tmp_path)
    np.testing.assert_array_equal(got.x[:, 0], arrays["images"])
    assert got.y.tolist() == [0, 61, 5, 5, 10]
    assert got.clients.tolist() == [1, 1, 0, 2, 2]
    assert (got.x_test.shape, got.num_classes, got.max_value) == ((0, 1, 28, 28), 62, 255)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": np.array([0, 62, 5, 5, 10])}, "y goes from 0 to 62, but must stay within 0 to 61"),
        ({"images": np.zeros((5, 28, 27), np.uint8)}, r"images are uint8 \(5, 28, 27\)"),
        ({"writer_ids": np.array([{}], dtype=object)}, "allow_pickle=False"),
        ({"writer": None}, "lacks the arrays writer"),
    ],
)
def test_an_npz_with_a_wrong_array_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    arrays = {name: one for name, one in npz_arrays(**changes).items() if one is not None}
    write_npz(tmp_path, arrays)
    with pytest.raises(DataFileError, match=said):
        load_dataset("femnist", tmp_path)


def test_leaf_json_gives_the_same_whatever_the_order_of_users_and_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_leaf(one, leaf({"b": [3], "a": [1, 2]}))
    write_leaf(two, leaf({"a": [1, 2]}), "train/z.json")
    write_leaf(two, leaf({"b": [3], "empty": []}), "train/y.json")
    for root in (one, two):
        got = load_dataset("femnist", root)
        assert got.y.tolist() == [1, 2, 3]
        assert got.clients.tolist() == [0, 0, 1]
        np.testing.assert_array_equal(got.x[:, 0, 14, 14], [1, 2, 3], "value / 255 comes back exactly")
        assert len(got.x_test) == 0


@pytest.mark.parametrize(
    "fault",
    [
        {"users": ["a", "b"], "num_samples": [1, 1]},
        {"users": ["a", "a"], "num_samples": [1, 1]},
        {"num_samples": [2]},
        {"label": 62},
    ],
    ids=["a user without data", "a user twice", "another number of samples", "label 62"],
)
def test_a_leaf_file_with_one_fault_is_refused(fault: dict[str, Any], tmp_path: Path) -> None:
    label = fault.get("label", 1)
    write_leaf(tmp_path, leaf({"a": [label]}) | fault)
    with pytest.raises(DataFileError, match="FEMNIST"):
        load_dataset("femnist", tmp_path)


def test_the_letters_are_a_to_j_numbered_from_0_with_their_writers_numbered_anew(tmp_path: Path) -> None:
    """Labels 36 to 45 of 62 are a to j; writer 0 has none of them here."""
    labels = np.array([36, 45, 35, 46, 40], dtype=np.uint8)
    arrays = npz_arrays(labels=labels, writer=np.array([1, 2, 0, 0, 1], dtype=np.uint16))
    write_npz(tmp_path, arrays)
    got = load_dataset("femnist-letters", tmp_path)
    np.testing.assert_array_equal(got.x[:, 0], arrays["images"][[0, 1, 4]])
    assert (got.y.tolist(), got.num_classes) == ([0, 9, 4], 10)
    assert got.clients.tolist() == [0, 1, 0]
    write_npz(tmp_path, npz_arrays())
    with pytest.raises(DataFileError, match="none of the letters a to j"):
        load_dataset("femnist-letters", tmp_path)


def test_leaf_s_own_tree_is_found_and_its_test_rows_are_the_writers_own(tmp_path: Path) -> None:
    """`all_data`, which LEAF leaves beside its train and test parts, is read where nothing was divided."""
    trained, tested = {"a": [1, 2], "b": [3]}, {"b": [4], "a": [5], "z": [6]}
    for part, users in (("all_data", {"a": [1]}), ("train", trained), ("test", tested)):
        path = tmp_path / "femnist" / "data" / part / "all_data_0.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(leaf(users)))
        if part == "all_data":
            alone = load_dataset("femnist", tmp_path)
            assert (alone.y.tolist(), len(alone.y_test), alone.test_clients) == ([1], 0, None)
    got = load_dataset("femnist", tmp_path)
    assert (got.y.tolist(), got.clients.tolist()) == ([1, 2, 3], [0, 0, 1])
    assert (got.y_test.tolist(), got.test_clients.tolist()) == ([5, 4, 6], [0, 1, -1])
    request = parse_split("natural"), got.y, 62, got.clients, 0
    own = make_partition(*request, None, got.y_test, got.test_clients)
    assert own.test_pool == "test"
    assert [part.tolist() for part in own.test] == [[0], [1]]
    cut = make_partition(*request, 0.0, got.y_test, got.test_clients)
    assert [part.tolist() for part in cut.test] == [[], []]
