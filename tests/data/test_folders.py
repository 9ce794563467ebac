"""CINIC-10 and Tiny-ImageNet as unpacked: tiny copies in the published layout, and one thing wrong at a
time.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from raffed.data.catalogue import DATASETS
from raffed.data.datasets import load_dataset
from raffed.errors import DataFileError

Images = dict[str, np.ndarray]  # path inside the data root → [H, W, 3]
WNIDS = ("n02", "n10", "n01")


def picture(side: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def save(path: Path, pixels: np.ndarray) -> None:
    """Lossless, whatever the ending says: what is read must be what was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, format="PNG")


@pytest.fixture
def cinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Images:
    """Two training images and one test image a class."""
    info = DATASETS["cinic10"]
    monkeypatch.setitem(DATASETS, "cinic10", dataclasses.replace(info, num_train=20, num_test=10))
    made = {}
    for c, label in enumerate(info.class_names):
        for part, files in (("train", ("b.png", "a.png")), ("test", ("t.png",)), ("valid", ("v.png",))):
            for i, file in enumerate(files):
                made[f"CINIC-10/{part}/{label}/{file}"] = picture(32, 10 * c + i + len(part))
    for path, pixels in made.items():
        save(tmp_path / path, pixels)
    return made


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Images:
    """Three classes with two training images and one validation image each."""
    info = dataclasses.replace(DATASETS["tiny-imagenet"], num_classes=3, num_train=6, num_test=3)
    monkeypatch.setitem(DATASETS, "tiny-imagenet", info)
    made, root = {}, "tiny-imagenet-200"
    for c, wnid in enumerate(WNIDS):
        for i in range(2):
            made[f"{root}/train/{wnid}/images/{wnid}_{i}.JPEG"] = picture(64, 10 * c + i)
        made[f"{root}/val/images/val_{c}.JPEG"] = picture(64, 100 + c)
    for path, pixels in made.items():
        save(tmp_path / path, pixels)
    (tmp_path / root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    lines = [f"val_{c}.JPEG\t{wnid}\t0\t32\t44\t62" for c, wnid in enumerate(WNIDS)]
    (tmp_path / root / "val" / "val_annotations.txt").write_text("\n".join(reversed(lines)) + "\n")
    return made


def test_cinic_10_gives_every_class_folder_its_label_and_leaves_the_validation_part_out(
    cinic: Images, tmp_path: Path
) -> None:
    got, names = load_dataset("cinic-10", tmp_path), DATASETS["cinic10"].class_names
    assert names == tuple(sorted(names))
    wanted = [cinic[f"CINIC-10/train/{label}/{file}"] for label in names for file in ("a.png", "b.png")]
    np.testing.assert_array_equal(got.x, np.stack(wanted).transpose(0, 3, 1, 2))
    assert got.y.tolist() == [c for c in range(10) for _ in range(2)]
    assert got.y_test.tolist() == list(range(10))
    np.testing.assert_array_equal(got.x_test[3].transpose(1, 2, 0), cinic["CINIC-10/test/cat/t.png"])
    assert (got.x.dtype, got.y.dtype, got.clients) == (np.uint8, np.int64, None)


def test_tiny_imagenet_s_labels_are_the_sorted_wnids_and_its_test_set_the_validation_part(
    tiny: Images, tmp_path: Path
) -> None:
    got = load_dataset("tiny-imagenet", tmp_path)
    order = sorted(WNIDS)
    assert got.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert got.y_test.tolist() == [0, 1, 2]
    for label, wnid in enumerate(order):
        first = tiny[f"tiny-imagenet-200/train/{wnid}/images/{wnid}_0.JPEG"]
        np.testing.assert_array_equal(got.x[2 * label].transpose(1, 2, 0), first)
        np.testing.assert_array_equal(
            got.x_test[label].transpose(1, 2, 0),
            tiny[f"tiny-imagenet-200/val/images/val_{WNIDS.index(wnid)}.JPEG"],
        )


def test_a_grey_image_is_read_as_three_equal_channels(tiny: Images, tmp_path: Path) -> None:
    """Some images of Tiny-ImageNet are stored in grey."""
    grey = picture(64, 7)[..., 0]
    save(tmp_path / "tiny-imagenet-200/train/n01/images/n01_0.JPEG", grey)
    got = load_dataset("tiny-imagenet", tmp_path).x[0]
    np.testing.assert_array_equal(got, np.stack([grey] * 3))


def test_a_missing_image_is_counted_and_its_folder_named(cinic: Images, tmp_path: Path) -> None:
    (tmp_path / "CINIC-10/train/dog/a.png").unlink()
    with pytest.raises(DataFileError, match=r"train/dog holds 1 files \*\.png, but 2 were published"):
        load_dataset("cinic10", tmp_path)


@pytest.mark.parametrize("fault", ["garbage", "truncated", "empty"])
def test_a_damaged_image_is_named(fault: str, cinic: Images, tmp_path: Path) -> None:
    path = tmp_path / "CINIC-10/test/ship/t.png"
    raw = path.read_bytes()
    path.write_bytes({"garbage": b"no picture", "truncated": raw[: len(raw) // 2], "empty": b""}[fault])
    with pytest.raises(DataFileError, match=r"ship/t\.png is damaged"):
        load_dataset("cinic10", tmp_path)


def test_an_image_of_another_size_is_named_with_both_sizes(cinic: Images, tmp_path: Path) -> None:
    save(tmp_path / "CINIC-10/train/frog/a.png", picture(31, 0))
    with pytest.raises(
        DataFileError, match=r"frog/a\.png is 31x31 pixels, but the published images are 32x32"
    ):
        load_dataset("cinic10", tmp_path)
