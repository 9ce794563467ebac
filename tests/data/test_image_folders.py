"""CINIC-10, Tiny-ImageNet and ISIC2019 as unpacked: tiny copies in the published layout, and one fault at a
time.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from raffed.data import files
from raffed.data.catalogue import DATASETS
from raffed.data.datasets import load_dataset
from raffed.errors import DataFileError

Images = dict[str, np.ndarray]  # path inside the data root → [H, W, 3]
WNIDS = ("n02", "n10", "n01")


def picture(height: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


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
        for part, names in (("train", ("b.png", "a.png")), ("test", ("t.png",)), ("valid", ("v.png",))):
            for i, file in enumerate(names):
                made[f"CINIC-10/{part}/{label}/{file}"] = picture(32, 32, 10 * c + i + len(part))
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
            made[f"{root}/train/{wnid}/images/{wnid}_{i}.JPEG"] = picture(64, 64, 10 * c + i)
        made[f"{root}/val/images/val_{c}.JPEG"] = picture(64, 64, 100 + c)
    for path, pixels in made.items():
        save(tmp_path / path, pixels)
    (tmp_path / root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    lines = [f"val_{c}.JPEG\t{wnid}\t0\t32\t44\t62" for c, wnid in enumerate(WNIDS)]
    (tmp_path / root / "val" / "val_annotations.txt").write_text("\n".join(reversed(lines)) + "\n")
    return made


def test_cinic_10_s_folders_are_labels_without_the_validation_part(cinic: Images, tmp_path: Path) -> None:
    got, names = load_dataset("cinic-10", tmp_path), DATASETS["cinic10"].class_names
    assert names == tuple(sorted(names))
    wanted = [cinic[f"CINIC-10/train/{label}/{file}"] for label in names for file in ("a.png", "b.png")]
    np.testing.assert_array_equal(got.x, np.stack(wanted).transpose(0, 3, 1, 2))
    assert got.y.tolist() == [c for c in range(10) for _ in range(2)]
    assert got.y_test.tolist() == list(range(10))
    np.testing.assert_array_equal(got.x_test[3].transpose(1, 2, 0), cinic["CINIC-10/test/cat/t.png"])
    assert (got.x.dtype, got.y.dtype, got.clients) == (np.uint8, np.int64, None)


def test_tiny_imagenet_is_tested_on_its_validation_part(tiny: Images, tmp_path: Path) -> None:
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
    grey = picture(64, 64, 7)[..., 0]
    save(tmp_path / "tiny-imagenet-200/train/n01/images/n01_0.JPEG", grey)
    got = load_dataset("tiny-imagenet", tmp_path).x[0]
    np.testing.assert_array_equal(got, np.stack([grey] * 3))


def test_a_missing_a_damaged_and_an_image_of_another_size_are_named(cinic: Images, tmp_path: Path) -> None:
    path = tmp_path / "CINIC-10/test/ship/t.png"
    raw = path.read_bytes()
    for damaged, said in ((b"no picture", "not an image"), (raw[: len(raw) // 2], "damaged")):
        path.write_bytes(damaged)
        with pytest.raises(DataFileError, match=rf"ship/t\.png is {said}"):
            load_dataset("cinic10", tmp_path)
    save(path, picture(31, 31, 0))
    with pytest.raises(
        DataFileError, match=r"ship/t\.png is 31x31 pixels, but the published images are 32x32"
    ):
        load_dataset("cinic10", tmp_path)
    (tmp_path / "CINIC-10/train/dog/a.png").unlink()
    with pytest.raises(DataFileError, match=r"train/dog holds 1 files \*\.png, but 2 were published"):
        load_dataset("cinic10", tmp_path)


HEADER = "image,MEL,NV,BCC,AK,BKL,DF,VASC,SCC,UNK,target,center,fold,fold2"
ROWS = [  # image, target, centre, fold
    ("ISIC_3", 0, 1, "train"),
    ("ISIC_1", 7, 0, "train"),
    ("ISIC_2_downsampled", 1, 1, "train"),
    ("ISIC_9", 2, 0, "test"),
]


def line(image: str, target: object, centre: object, fold: str) -> str:
    ones = ",".join("1.0" if c == target else "0.0" for c in range(9))
    return f"{image},{ones},{target},{centre},{fold},{fold}_{centre}"


def write_table(root: Path, rows: list[tuple[str, object, object, str]]) -> None:
    (root / "ISIC2019").mkdir(exist_ok=True)
    lines = [HEADER, *(line(*row) for row in rows)]
    (root / "ISIC2019" / "train_test_split").write_text("\n".join(lines) + "\n")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Two centres, three training images and one for testing, preprocessed: 224 x 300 and the like."""
    monkeypatch.setattr(files, "TRAIN_COUNTS", ((0,) * 7 + (1,), (1, 1) + (0,) * 6))
    monkeypatch.setattr(files, "TEST_SIZES", (1, 0))
    write_table(tmp_path, ROWS)
    folder = tmp_path / "ISIC2019" / "ISIC_2019_Training_Input_preprocessed"
    folder.mkdir()
    made = {}
    for i, (image, *_) in enumerate(ROWS):
        made[image] = picture(224, 300 - 7 * i, i) if i % 2 else picture(298, 224, i)
        Image.fromarray(made[image]).save(folder / f"{image}.jpg", format="PNG")
    return made


def test_the_table_has_the_order_of_images(small: dict[str, np.ndarray], tmp_path: Path) -> None:
    got = load_dataset("isic", tmp_path)
    assert got.x.shape == (3, 3, 224, 224)
    assert (got.y.tolist(), got.y_test.tolist(), got.num_classes) == ([0, 7, 1], [2], 8)
    assert got.clients.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(got.x[0].transpose(1, 2, 0), small["ISIC_3"][37:261])
    np.testing.assert_array_equal(got.x[1].transpose(1, 2, 0), small["ISIC_1"][:, 34:258])


def test_published_images_are_prepared_as_in_flamby(small: dict[str, np.ndarray], tmp_path: Path) -> None:
    """A uniform 448 x 600 image stays uniform: resized, its colour becomes the grey of the same norm,
    (R²+G²+B²)^½ / √3.
    """
    folder = tmp_path / "ISIC2019"
    (folder / "ISIC_2019_Training_Input_preprocessed").rename(folder / "elsewhere")
    (folder / "ISIC_2019_Training_Input").mkdir()
    for image, *_ in ROWS:
        uniform = np.full((448, 600, 3), (30, 60, 60), dtype=np.uint8)
        Image.fromarray(uniform).save(folder / "ISIC_2019_Training_Input" / f"{image}.jpg", format="PNG")
    got = load_dataset("isic2019", tmp_path).x
    assert got.shape == (3, 3, 224, 224)
    assert got.min() >= int(90 / np.sqrt(3)) - 1
    assert got.max() <= int(90 / np.sqrt(3)) + 1


def test_colour_constancy_evens_the_channels_sixth_order_norms_and_leaves_grey_alone() -> None:
    tinted = np.clip(picture(40, 50, 3) * np.array([0.9, 0.6, 0.5]), 0, 255).astype(np.uint8)
    norms = (files.colour_constancy(tinted).astype(float) ** 6).mean((0, 1)) ** (1 / 6)
    assert np.ptp(norms) / norms.mean() < 0.02
    grey = np.repeat(picture(40, 50, 4)[..., :1], 3, axis=2)
    assert np.abs(files.colour_constancy(grey).astype(int) - grey).max() <= 1
    bright = files.colour_constancy(np.full((4, 4, 3), (255, 255, 40), dtype=np.uint8))
    assert bright.min() > 200, "clipped at 255 and not wrapped round"
    assert files.colour_constancy(np.zeros((2, 2, 3), dtype=np.uint8)).max() == 0


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("ISIC_7", 0, 1, "train"), "centre 1 trains on 2 images of MEL, in the published file on 1"),
        (("ISIC_7", 8, 1, "train"), "class 8, centre 1"),
        (("ISIC_3", 0, 1, "test"), "listed twice"),
        (("../ISIC_7", 0, 1, "train"), r"image '\.\./ISIC_7'"),
    ],
)
def test_a_table_that_is_not_the_published_one_is_refused(
    row: tuple[str, object, object, str], said: str, small: dict[str, np.ndarray], tmp_path: Path
) -> None:
    write_table(tmp_path, [*ROWS, row])
    with pytest.raises(DataFileError, match=said):
        load_dataset("isic2019", tmp_path)
