"""Data sets: only the published bytes are read, and whatever is wrong is said with file, md5 and remedy."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from raffed.core.errors import DataFileError, UnknownNameError
from raffed.data import datasets
from raffed.data.datasets import DATASETS, DataFile, Dataset, load_dataset


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
    assert digits.x_train.shape == (1442, 1, 8, 8)
    assert digits.x_test.shape == (355, 1, 8, 8)
    assert digits.x_train.dtype == np.uint8
    assert digits.y_train.dtype == np.int64
    np.testing.assert_array_equal(np.bincount(digits.y_test), totals // 5)
    np.testing.assert_array_equal(np.bincount(digits.y_train), totals - totals // 5)
    assert digits.x_train.max() == digits.max_value == 16


def test_digits_train_and_test_together_are_the_1797_images(digits: Dataset) -> None:
    from sklearn.datasets import load_digits

    ours = np.concatenate([digits.x_train, digits.x_test]).reshape(-1, 64)
    theirs = load_digits().data.astype(np.uint8)
    np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


@pytest.mark.parametrize("name", ["digits", "DIGITS", " digits "])
def test_names_are_read_in_any_case(name: str) -> None:
    assert load_dataset(name).name == "digits"


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="nearest: digits"):
        load_dataset("digit")


def test_listing_imports_neither_torch_nor_sklearn_nor_matplotlib() -> None:
    code = (
        "import sys, raffed.data.datasets, raffed.data.partition, raffed.data.picture;"
        "print([m for m in ('torch', 'sklearn', 'torchvision', 'matplotlib', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_data_root_the_error_names_the_variable_and_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_mnist_layout_is_read_unpacked_or_packed(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, files = small_mnist(tmp_path, packed)
    monkeypatch.setitem(DATASETS, "mnist", dataclasses.replace(DATASETS["mnist"], files=files))
    got = load_dataset("mnist", tmp_path)
    np.testing.assert_array_equal(got.x_train[:, 0], arrays[0])
    np.testing.assert_array_equal(got.y_train, arrays[1])
    np.testing.assert_array_equal(got.x_test[:, 0], arrays[2])
    np.testing.assert_array_equal(got.y_test, arrays[3])
    assert got.x_train.flags.writeable


def test_a_stale_processed_file_of_old_torchvision_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, files = small_mnist(tmp_path, packed=False)
    monkeypatch.setitem(DATASETS, "mnist", dataclasses.replace(DATASETS["mnist"], files=files))
    (tmp_path / "MNIST" / "processed").mkdir()
    for name in ("training.pt", "test.pt"):
        (tmp_path / "MNIST" / "processed" / name).write_bytes(b"anything")
    assert load_dataset("mnist", tmp_path).y_train.tolist() == arrays[1].tolist()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100", "svhn"])
def test_a_failed_download_says_which_files_to_put_where(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torchvision.datasets as vision

    def unreachable(*args: object, **kwargs: object) -> None:
        raise URLError("no route to host")

    for loader in ("MNIST", "FashionMNIST", "CIFAR10", "CIFAR100", "SVHN"):
        monkeypatch.setattr(vision, loader, unreachable)
    with pytest.raises(DataFileError) as caught:
        load_dataset(name, tmp_path, download=True)
    for part in ("no route to host", str(tmp_path), DATASETS[name].files[0].path):
        assert part in str(caught.value)


def test_femnist_cannot_be_downloaded(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="LEAF"):
        load_dataset("femnist", tmp_path, download=True)


def test_every_loader_has_an_entry_and_every_entry_a_loader() -> None:
    assert set(datasets._LOADERS) == {name for name, info in DATASETS.items() if info.files}
    assert len(DATASETS) == 7


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "most"), [("fashion-mnist", 6000), ("cifar10", 5000)])
def test_the_real_sets_have_the_published_sizes(name: str, most: int, real: Callable[[str], Dataset]) -> None:
    got, info = real(name), DATASETS[name]
    assert got.x_train.shape == (info.num_train, *info.shape)
    assert got.x_test.shape == (info.num_test, *info.shape)
    np.testing.assert_array_equal(np.bincount(got.y_train), [most] * 10)
    np.testing.assert_array_equal(np.bincount(got.y_test), [1000] * 10)
    assert got.x_train.flags.c_contiguous


@pytest.mark.realdata
def test_the_real_images_are_those_that_torchvision_reads(
    real: Callable[[str], Dataset], real_root: Callable[[str], Path]
) -> None:
    from torchvision.datasets.mnist import read_image_file

    raw = real_root("fashion-mnist") / DATASETS["fashion-mnist"].files[2].path
    if not raw.exists():
        pytest.skip("no unpacked Fashion-MNIST")
    np.testing.assert_array_equal(real("fashion-mnist").x_test[:, 0], read_image_file(str(raw)).numpy())


@pytest.mark.realdata
def test_a_truncated_real_label_file_is_refused(tmp_path: Path, real_root: Callable[[str], Path]) -> None:
    root = real_root("fashion-mnist")
    shutil.copytree(root / "FashionMNIST", tmp_path / "FashionMNIST", copy_function=shutil.copyfile)
    files = DATASETS["fashion-mnist"].files
    labels = gzip.decompress((root / (files[3].path + ".gz")).read_bytes())
    (tmp_path / files[3].path).unlink(missing_ok=True)
    (tmp_path / files[3].path).write_bytes(labels[:-1])
    with pytest.raises(DataFileError, match="t10k-labels-idx1-ubyte is damaged"):
        load_dataset("famnist", tmp_path)


@pytest.mark.realdata
def test_real_femnist_has_the_writers_and_sizes_of_its_description(real: Callable[[str], Dataset]) -> None:
    got = real("femnist")
    assert got.x_train.shape == (54558, 1, 28, 28)
    assert got.x_test.shape == (0, 1, 28, 28)
    assert got.y_test.shape == (0,)
    sizes = np.bincount(got.groups)
    assert (len(sizes), sizes.min(), sizes.max()) == (240, 19, 426)
    per_class = np.bincount(got.y_train)
    assert (len(per_class), per_class.min(), per_class.max()) == (62, 147, 2969)
    assert np.median(got.x_train[:, 0, 0, 0]) == 255, "the background is white"


def test_the_digits_are_scikit_learn_s_own() -> None:
    from sklearn.datasets import load_digits

    ours, theirs = load_dataset("digits"), load_digits()
    pixels = np.concatenate([ours.x_train, ours.x_test]).reshape(-1, 64)
    assert sorted(map(bytes, pixels)) == sorted(map(bytes, theirs.images.astype(np.uint8).reshape(-1, 64)))
    assert np.bincount(np.concatenate([ours.y_train, ours.y_test])).tolist() == np.bincount(theirs.target).tolist()
