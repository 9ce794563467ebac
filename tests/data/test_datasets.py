"""Data sets: only the published bytes are read, and whatever is wrong is said with file, md5 and remedy."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raffed.data.catalogue import DATASETS, DataFile
from raffed.data.dataset import Dataset, fewer
from raffed.data.datasets import load_dataset
from raffed.errors import DataFileError, UnknownNameError, UsageError


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


def test_digits_are_divided_into_1442_and_355_with_the_same_fifth_of_every_class(digits: Dataset) -> None:
    from sklearn.datasets import load_digits

    totals = np.bincount(load_digits().target)
    assert digits.x.shape == (1442, 1, 8, 8)
    assert digits.x_test.shape == (355, 1, 8, 8)
    assert digits.x.dtype == np.uint8
    assert digits.y.dtype == np.int64
    np.testing.assert_array_equal(np.bincount(digits.y_test), totals // 5)
    np.testing.assert_array_equal(np.bincount(digits.y), totals - totals // 5)
    assert digits.x.max() == digits.max_value == 16


def test_digits_train_and_test_together_are_the_1797_images(digits: Dataset) -> None:
    from sklearn.datasets import load_digits

    ours = np.concatenate([digits.x, digits.x_test]).reshape(-1, 64)
    theirs = load_digits().data.astype(np.uint8)
    np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


@pytest.mark.parametrize("name", ["digits", "DIGITS", " digits "])
def test_names_are_read_in_any_case(name: str) -> None:
    assert load_dataset(name).name == "digits"


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="nearest: digits"):
        load_dataset("digit")


def test_without_a_data_root_the_error_names_the_variable_and_the_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAFFED_DATA", raising=False)
    with pytest.raises(DataFileError, match=r"RAFFED_DATA.*--data-root"):
        load_dataset("mnist")


def test_the_environment_gives_the_data_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAFFED_DATA", str(tmp_path))
    with pytest.raises(DataFileError, match=str(tmp_path)):
        load_dataset("mnist")


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if info.files])
def test_a_missing_file_is_named_with_its_md5_and_the_remedy(name: str, tmp_path: Path) -> None:
    first = DATASETS[name].files[0]
    with pytest.raises(DataFileError) as caught:
        load_dataset(name, tmp_path)
    for part in (first.path, first.md5, "RAFFED_DATA", "--data-root", "--download"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if info.files])
def test_a_damaged_file_is_named_with_both_md5s(name: str, tmp_path: Path) -> None:
    first = DATASETS[name].files[0]
    path = tmp_path / first.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not the published file")
    with pytest.raises(DataFileError) as caught:
        load_dataset(name, tmp_path)
    for part in (str(path), first.md5, hashlib.md5(b"not the published file").hexdigest(), "delete it"):
        assert part in str(caught.value)


class Bomb:
    """A pickle that would create a file when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_pickle_that_is_not_the_published_one_is_never_unpickled(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "exploded"
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists(), "the bomb works"
    mark.unlink()
    for file in DATASETS[name].files:
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(DataFileError, match="md5"):
        load_dataset(name, tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_layout_is_read_unpacked_or_packed(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, files = small_mnist(tmp_path, packed)
    monkeypatch.setitem(DATASETS, "mnist", dataclasses.replace(DATASETS["mnist"], files=files))
    got = load_dataset("mnist", tmp_path)
    np.testing.assert_array_equal(got.x[:, 0], arrays[0])
    np.testing.assert_array_equal(got.y, arrays[1])
    np.testing.assert_array_equal(got.x_test[:, 0], arrays[2])
    np.testing.assert_array_equal(got.y_test, arrays[3])
    assert got.x.flags.writeable


def small_cifar100(root: Path) -> tuple[np.ndarray, list[int], dict[str, bytes]]:
    """CIFAR-100's three pickles with four training and two test images."""
    data = np.random.default_rng(0).integers(0, 256, (6, 3072), dtype=np.uint8)
    labels = [99, 0, 41, 7, 12, 99]
    fine = {"fine_label_names": [f"class {c}" for c in range(100)]}
    files = {
        "train": pickle.dumps({"data": data[:4], "fine_labels": labels[:4]}),
        "test": pickle.dumps({"data": data[4:], "fine_labels": labels[4:]}),
        "meta": pickle.dumps(fine),
    }
    (root / "cifar-100-python").mkdir()
    for name, raw in files.items():
        (root / "cifar-100-python" / name).write_bytes(raw)
    return data, labels, files


def test_cifar_100_is_read_in_its_layout_with_its_fine_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import CIFAR100

    data, labels, files = small_cifar100(tmp_path)
    md5 = {name: hashlib.md5(raw).hexdigest() for name, raw in files.items()}
    own = tuple(DataFile(f.path, md5[Path(f.path).name]) for f in DATASETS["cifar100"].files)
    monkeypatch.setitem(DATASETS, "cifar100", dataclasses.replace(DATASETS["cifar100"], files=own))
    monkeypatch.setattr(CIFAR100, "train_list", [["train", md5["train"]]])
    monkeypatch.setattr(CIFAR100, "test_list", [["test", md5["test"]]])
    monkeypatch.setattr(CIFAR100, "meta", {**CIFAR100.meta, "md5": md5["meta"]})
    got = load_dataset("cifar-100", tmp_path)
    np.testing.assert_array_equal(np.concatenate([got.x, got.x_test]).reshape(6, 3072), data)
    assert (got.y.tolist(), got.y_test.tolist(), got.num_classes) == (labels[:4], labels[4:], 100)


def test_svhn_is_read_in_its_layout_and_its_label_10_is_the_digit_0(
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


def test_every_data_set_but_the_digits_has_a_loader_that_names_the_missing_file(tmp_path: Path) -> None:
    for name, info in DATASETS.items():
        assert bool(info.files) + bool(info.folder) == (name != "digits")
        if name != "digits":
            with pytest.raises(DataFileError, match=str(tmp_path)):
                load_dataset(name, tmp_path)
    assert len(DATASETS) == 11


def test_the_digits_are_scikit_learn_s_own() -> None:
    from sklearn.datasets import load_digits

    ours, theirs = load_dataset("digits"), load_digits()
    pixels = np.concatenate([ours.x, ours.x_test]).reshape(-1, 64)
    assert sorted(map(bytes, pixels)) == sorted(map(bytes, theirs.images.astype(np.uint8).reshape(-1, 64)))
    assert np.bincount(np.concatenate([ours.y, ours.y_test])).tolist() == np.bincount(theirs.target).tolist()


def test_fewer_samples_are_equally_many_of_every_class_in_the_pool_s_order() -> None:
    digits = load_dataset("digits")
    few = fewer(digits, 100, seed=3)
    assert np.bincount(few.y).tolist() == [10] * 10
    places = [int(np.flatnonzero((digits.x == image).all(axis=(1, 2, 3)))[0]) for image in few.x]
    assert places == sorted(places)
    np.testing.assert_array_equal(digits.y[places], few.y)
    assert few.x_test is digits.x_test
    assert not np.array_equal(few.x, fewer(digits, 100, seed=4).x)
    assert fewer(digits, 0, seed=3) is digits


@pytest.mark.parametrize("samples", [5, 101, 10_000])
def test_a_pool_that_cannot_be_equal_by_class_is_refused_with_what_can(samples: int) -> None:
    most = 10 * np.bincount(load_dataset("digits").y).min()
    with pytest.raises(
        UsageError, match=f"data.samples = {samples} for digits: it must be a multiple of 10 up to {most}"
    ):
        fewer(load_dataset("digits"), samples, seed=0)
