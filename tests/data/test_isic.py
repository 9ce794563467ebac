"""ISIC2019 by FLamby's centres: its table checked against the published counts, its preprocessing against
the formulas.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from raffed.data import folders
from raffed.data.catalogue import DATASETS
from raffed.data.datasets import load_dataset
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split
from raffed.errors import DataFileError

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


def write_table(
    root: Path, rows: list[tuple[str, object, object, str]], name: str = "train_test_split"
) -> None:
    (root / "ISIC2019").mkdir(exist_ok=True)
    (root / "ISIC2019" / name).write_text("\n".join([HEADER, *(line(*row) for row in rows)]) + "\n")


def picture(height: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Two centres, three training images and one for testing, preprocessed: 224 x 300 and the like."""
    monkeypatch.setattr(folders, "TRAIN_COUNTS", ((0,) * 7 + (1,), (1, 1) + (0,) * 6))
    monkeypatch.setattr(folders, "TEST_SIZES", (1, 0))
    write_table(tmp_path, ROWS)
    folder = tmp_path / "ISIC2019" / "ISIC_2019_Training_Input_preprocessed"
    folder.mkdir()
    made = {}
    for i, (image, *_) in enumerate(ROWS):
        made[image] = picture(224, 300 - 7 * i, i) if i % 2 else picture(298, 224, i)
        Image.fromarray(made[image]).save(folder / f"{image}.jpg", format="PNG")
    return made


def test_the_counts_are_the_sheet_s_centre_by_centre_and_class_by_class() -> None:
    """docs/papers/fedmr.md §E1."""
    assert list(folders.CLASSES) == ["MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC"]
    assert [list(row) for row in folders.TRAIN_COUNTS] == [
        [2279, 3363, 2245, 606, 923, 97, 87, 330],
        [20, 2977, 2, 0, 96, 23, 45, 0],
        [533, 1470, 174, 20, 379, 40, 64, 11],
        [276, 649, 223, 86, 406, 20, 3, 144],
        [166, 349, 0, 0, 140, 0, 0, 0],
        [58, 276, 5, 0, 6, 4, 2, 0],
    ]
    assert list(folders.TEST_SIZES) == [2483, 791, 672, 452, 164, 88]


def test_the_sheet_s_counts_add_up_to_the_published_sizes() -> None:
    assert (sum(map(sum, folders.TRAIN_COUNTS)), sum(folders.TEST_SIZES)) == (18_597, 4_650)
    assert (DATASETS["isic2019"].num_train, DATASETS["isic2019"].num_test) == (18_597, 4_650)
    assert len(folders.CLASSES) == 8


@pytest.mark.parametrize("name", ["train_test_split", "train_test_split.csv"])
def test_images_labels_and_centres_come_in_the_table_s_order(
    name: str, small: dict[str, np.ndarray], tmp_path: Path
) -> None:
    (tmp_path / "ISIC2019" / "train_test_split").rename(tmp_path / "ISIC2019" / name)
    got = load_dataset("isic", tmp_path)
    assert got.x.shape == (3, 3, 224, 224)
    assert (got.y.tolist(), got.y_test.tolist(), got.num_classes) == ([0, 7, 1], [2], 8)
    assert got.clients is not None
    assert got.clients.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(got.x[0].transpose(1, 2, 0), small["ISIC_3"][37:261])
    np.testing.assert_array_equal(got.x[1].transpose(1, 2, 0), small["ISIC_1"][:, 34:258])


def test_the_natural_split_has_a_client_for_each_centre(small: dict[str, np.ndarray], tmp_path: Path) -> None:
    got = load_dataset("isic2019", tmp_path)
    p = make_partition(parse_split("natural"), got.y, 8, got.clients, 0, local_test=0.0)
    assert [sorted(part.tolist()) for part in p.train] == [[1], [0, 2]]


def test_images_as_published_are_preprocessed_as_in_flamby(
    small: dict[str, np.ndarray], tmp_path: Path
) -> None:
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
    norms = (folders.colour_constancy(tinted).astype(float) ** 6).mean((0, 1)) ** (1 / 6)
    assert np.ptp(norms) / norms.mean() < 0.02
    grey = np.repeat(picture(40, 50, 4)[..., :1], 3, axis=2)
    assert np.abs(folders.colour_constancy(grey).astype(int) - grey).max() <= 1
    bright = folders.colour_constancy(np.full((4, 4, 3), (255, 255, 40), dtype=np.uint8))
    assert bright.min() > 200, "clipped at 255 and not wrapped round"
    assert folders.colour_constancy(np.zeros((2, 2, 3), dtype=np.uint8)).max() == 0


@pytest.mark.parametrize(
    ("shape", "wanted"), [((448, 600), (224, 300)), ((1024, 767), (299, 224)), ((100, 100), (224, 224))]
)
def test_the_shorter_side_becomes_224_and_the_other_follows_rounded_down(
    shape: tuple[int, int], wanted: tuple[int, int]
) -> None:
    assert folders.shorter_side(picture(*shape, 0)).shape[:2] == wanted


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("ISIC_7", 0, 1, "train"), "centre 1 trains on 2 images of MEL, in the published file on 1"),
        (("ISIC_7", 0, 1, "test"), r"the centres have \[1, 1\] test images"),
        (("ISIC_7", 8, 1, "train"), "class 8, centre 1"),
        (("ISIC_7", 0, 6, "train"), "class 0, centre 6"),
        (("ISIC_7", "x", 1, "train"), "is not FLamby's table"),
        (("ISIC_7", 0, 1, "validation"), "is not FLamby's table"),
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


@pytest.mark.slow
def test_a_round_over_the_centres_trains_efficientnet_on_bent_200x200_crops_and_repeats_to_the_bit(
    small: dict[str, np.ndarray], tmp_path: Path
) -> None:
    import raffed
    from raffed import Data, Federation, Local, Model, RunConfig, Runtime

    config = RunConfig(
        data=Data("isic2019", "natural", str(tmp_path), transform="fedmr", local_test=0.0),
        model=Model("efficientnet_b0"),
        local=Local(epochs=1, batch_size=2, lr=0.01),
        federation=Federation(rounds=1),
        runtime=Runtime(execution="serial"),
    )
    first, again = raffed.run(config), raffed.run(config)
    assert first.hashes == again.hashes
    rows = first.to_pandas()
    assert rows[(rows["split"] == "train") & rows["client"].notna()]["n"].tolist() == [1, 2]
    assert first.accuracy in (0.0, 1.0), "one test image"
    plain = raffed.run(
        config.from_dict({**config.as_dict(), "data": {**config.as_dict()["data"], "transform": "plain"}})
    )
    assert plain.hashes != first.hashes
