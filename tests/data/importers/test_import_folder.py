"""Folders of images, and the names of a data set's parts: classes, clients and test sets, and what is
ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import raffed
from raffed.data.importers.arrays import import_npz
from raffed.data.importers.images import import_folder
from raffed.data.importers.reference import import_reference
from raffed.data.importers.values import part_named
from raffed.errors import DataFileError, UsageError


def save(path: Path, value: int = 0, side: tuple[int, int] = (6, 4), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (*side, 3) if mode == "RGB" else side
    Image.fromarray(np.full(shape, value, np.uint8)).save(path)
    return path


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    for number, (label, file) in enumerate((label, file) for label in ("cat", "dog") for file in "abcde"):
        save(tmp_path / "images" / label / f"{file}.png", number)
    return tmp_path / "images"


def test_the_folders_are_the_classes_and_every_image_is_itself(classes: Path) -> None:
    """Hidden files and files beside the classes are no data."""
    for other in (".DS_Store", "cat/.DS_Store", "cat/Thumbs.db", "LICENSE"):
        (classes / other).write_bytes(b"x")
    found = import_folder(classes, test=0.0)
    assert found.class_names == ("cat", "dog")
    assert (found.x.shape, found.x.dtype) == ((10, 3, 6, 4), np.uint8)
    assert found.x[:, 0, 0, 0].tolist() == list(range(10))
    assert found.y.tolist() == [0] * 5 + [1] * 5
    assert found.clients is None
    assert import_folder(classes).y_test.tolist() == [0, 1], "a fifth of each class"


def test_folders_above_the_classes_are_the_clients(tmp_path: Path) -> None:
    for client, label, value in (("s1", "cat", 1), ("s1", "dog", 2), ("s2", "cat", 3), ("s2", "dog", 4)):
        save(tmp_path / client / label / "a.jpg", value)
    found = import_folder(tmp_path, test=0.0)
    assert found.client_names == ("s1", "s2")
    assert found.clients.tolist() == [0, 0, 1, 1]
    assert found.y.tolist() == [0, 1, 0, 1]


def test_grey_images_have_one_channel_and_one_colour_image_makes_all_colour(classes: Path) -> None:
    for path in classes.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    assert import_folder(classes).x.shape[1] == 1
    assert import_folder(classes, colour="rgb").x.shape[1] == 3
    save(classes / "cat" / "a.png")
    assert import_folder(classes).x.shape[1] == 3
    assert import_folder(classes, colour="grey").x.shape[1] == 1


def test_a_size_makes_images_alike_and_they_are_turned_as_their_camera_says(classes: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    turned = save(classes / "cat" / "turned.jpg", 9, (4, 6))
    Image.open(turned).save(turned, exif=exif)
    assert import_folder(classes).x.shape[2:] == (6, 4)
    save(classes / "cat" / "large.png", 200, (30, 20))
    with pytest.raises(DataFileError, match=r"large\.png is 20x30 pixels, .*a\.png is 4x6; give size=N"):
        import_folder(classes)
    found = import_folder(classes, size=5, test=0.0)
    assert found.x.shape == (12, 3, 5, 5)
    assert (found.x[5] == 200).all()


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "an empty class": (lambda root: (root / "eel").mkdir(), "eel is empty"),
    "a damaged image": (
        lambda root: (root / "dog" / "b.png").write_bytes((root / "dog" / "b.png").read_bytes()[:45]),
        r"b\.png is damaged",
    ),
    "a link that leads back": (
        lambda root: (root / "dog" / "more").symlink_to(root / "dog"),
        "lies too deep",
    ),
    "two layouts": (lambda root: save(root / "client" / "cat" / "z.png"), "lie at different depths"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_is_refused_in_one_line_that_names_the_file(classes: Path, case: str) -> None:
    spoil, words = REFUSED[case]
    spoil(classes)
    with pytest.raises(UsageError, match=words) as error:
        import_folder(classes)
    assert "\n" not in str(error.value)


X = np.arange(24, dtype=np.float32).reshape(12, 2)
Y = np.arange(12) % 2


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("train", "train Train TRAINING training_set trainset train-images train2017 seg_train train_data"),
        ("test", "test Test testing TestSet test_images tst"),
        ("validation", "val Valid validation VALIDATION_SET dev eval val2017 valid-set"),
        (None, "cat trainer test1 latest valley device alice x_test_2"),
    ],
)
def test_a_part_is_known_in_any_spelling(part: str | None, names: str) -> None:
    assert {name: part_named(name) for name in names.split()} == dict.fromkeys(names.split(), part)


def folder(root: Path, *images: str) -> Path:
    """Make a folder of images; the value of each image is its place in the list."""
    for value, name in enumerate(images):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((3, 3), value, np.uint8)).save(root / name)
    return root


def of_parts(*parts: str) -> list[str]:
    return [f"{part}/{label}/{file}.png" for part in parts for label in ("cat", "dog") for file in "ab"]


VALIDATION = "'val' is the test set (there is no part for tests)"


@pytest.mark.parametrize(
    ("parts", "note"),
    [
        (("train", "test"), None),
        (("train", "val"), VALIDATION),
        (("seg_train/seg_train", "seg_test/seg_test"), None),
    ],
)
def test_a_test_folder_has_any_spelling(tmp_path: Path, parts: tuple[str, str], note: str | None) -> None:
    folder(tmp_path, *of_parts(*parts))
    (tmp_path / "__MACOSX" / "train").mkdir(parents=True)
    (tmp_path / "__MACOSX" / "train" / "._a.png").write_bytes(b"x")
    found = import_folder(tmp_path)
    assert found.x[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert found.x_test[:, 0, 0, 0].tolist() == [4, 5, 6, 7]
    assert (found.clients, found.class_names) == (None, ("cat", "dog"))
    assert note is None or note in found.facts.notes[0]
    if parts == ("train", "test"):
        assert found.facts.notes == ()


AMBIGUOUS = {
    "two test folders": (
        of_parts("train", "Test", "testing"),
        "'Test' and 'testing' both mean the test part",
    ),
    "a client beside them": (of_parts("train", "test", "alice"), "'alice' beside it is not"),
    "parts in clients": (
        [f"alice/{part}/{name}.png" for part in ("train", "test") for name in "ab"],
        "named test and train, so these would be the classes",
    ),
    "the whole one level down": (
        [f"x-ray/{name}" for name in of_parts("train/alice", "test/alice")],
        "folders for training and tests outside of these",
    ),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_what_is_ambiguous_is_refused_with_the_names_of_the_folders(tmp_path: Path, case: str) -> None:
    images, words = AMBIGUOUS[case]
    with pytest.raises(UsageError, match=words) as error:
        import_folder(folder(tmp_path, *images))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "names",
    [
        ("X_train", "y_train", "X_test", "y_test"),
        ("X", "labels", "X_val", "labels_val"),
    ],
)
def test_arrays_are_known_by_the_usual_names_of_their_parts(tmp_path: Path, names: tuple[str, ...]) -> None:
    arrays = dict(zip(names, (X, Y, X[:4] + 100, Y[:4]), strict=True))
    np.savez(tmp_path / "a.npz", **arrays, groups=Y, class_names=["no", "yes"], mean=[0.0])
    found = import_npz(tmp_path / "a.npz")
    assert np.array_equal(found.x, X)
    assert np.array_equal(found.x_test, X[:4] + 100)
    assert found.y_test.tolist() == Y[:4].tolist()
    assert (found.class_names, found.clients is None) == (("no", "yes"), False)
    notes = [note.partition("a.npz: ")[2] for note in found.facts.notes]
    told = ["X_val is the test set (there is no array for tests)"] if "X_val" in names else []
    assert notes == [*told, "not used: mean"]


# A value is scaled only if it is a pixel.

COUNTS = np.arange(40, dtype=np.uint8).reshape(20, 2)
CLASSES = np.arange(20) % 2


def test_bytes_with_one_axis_are_numbers_with_a_note_and_pictures_are_pixels(tmp_path: Path) -> None:
    np.savez(tmp_path / "counts.npz", x=COUNTS, y=CLASSES, x_test=COUNTS[:4], y_test=CLASSES[:4])
    counts = import_reference(f"npz:{tmp_path / 'counts.npz'}")
    assert counts.x.dtype == counts.x_test.dtype == np.float32
    assert np.array_equal(counts.x, COUNTS)
    assert "not divided by 255" in counts.facts.notes[0]
    pictures = raffed.Dataset.from_arrays(COUNTS.reshape(20, 1, 2), CLASSES)
    assert pictures.x.dtype == np.uint8
