"""The data sets as they are published, where they are on this machine."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raffed.data.catalogue import DATASETS
from raffed.data.dataset import Dataset
from raffed.data.datasets import load_dataset
from raffed.errors import DataFileError


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "most"), [("fashion-mnist", 6000), ("cifar10", 5000)])
def test_the_real_sets_have_the_published_sizes(name: str, most: int, real: Callable[[str], Dataset]) -> None:
    got, info = real(name), DATASETS[name]
    assert got.x.shape == (info.num_train, *info.shape)
    assert got.x_test.shape == (info.num_test, *info.shape)
    np.testing.assert_array_equal(np.bincount(got.y), [most] * 10)
    np.testing.assert_array_equal(np.bincount(got.y_test), [1000] * 10)
    assert got.x.flags.c_contiguous


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
    assert got.x.shape == (54558, 1, 28, 28)
    assert got.x_test.shape == (0, 1, 28, 28)
    assert got.y_test.shape == (0,)
    sizes = np.bincount(got.clients)
    assert (len(sizes), sizes.min(), sizes.max()) == (240, 19, 426)
    per_class = np.bincount(got.y)
    assert (len(per_class), per_class.min(), per_class.max()) == (62, 147, 2969)
    assert np.median(got.x[:, 0, 0, 0]) == 255, "the background is white"
