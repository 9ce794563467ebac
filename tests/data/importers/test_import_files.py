"""Files that a stranger may have made: npz, PFLlib's and LEAF's folders, folders of images, and the names of
a data set's parts: classes, clients and test sets, and what is ambiguous.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import raffed
from raffed.data.importers.arrays import import_npz
from raffed.data.importers.client_folders import import_pfllib
from raffed.data.importers.images import import_folder
from raffed.data.importers.reference import import_reference
from raffed.data.importers.values import part_named
from raffed.errors import DataFileError, UsageError
from tests.fuzz.strangers import Trap

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 2


def test_a_fault_of_an_npz_file_is_named_and_no_pickle_is_carried_out(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"PK nonsense")
    with pytest.raises(DataFileError, match=r"a\.npz cannot be read as an npz file"):
        import_npz(path)
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    for arrays, words in (
        ({"x": X}, r"lacks the arrays y; it holds x"),
        ({"first": X, "second": Y}, r"holds first, second; .*a\.npz\?x=NAME&y=NAME"),
        ({"x": trap, "y": Y}, r"Object arrays cannot be loaded when allow_pickle=False"),
        ({"x": X, "y": Y[:3]}, r"a\.npz: y has 3 labels for 20 samples"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(UsageError, match=words):
            import_npz(path)
    assert not (tmp_path / "sprung").exists()


@pytest.fixture
def pfllib(tmp_path: Path) -> Path:
    """Three clients, written as PFLlib's dataset/utils/dataset_utils.py writes them."""
    for part, client in ((part, client) for part in ("train", "test") for client in range(3)):
        (tmp_path / part).mkdir(exist_ok=True)
        data = {"x": X + client, "y": Y}
        with (tmp_path / part / f"{client}.npz").open("wb") as file:
            np.savez_compressed(file, data=data)
    (tmp_path / "config.json").write_text(json.dumps({"num_clients": 3, "num_classes": 2}))
    return tmp_path


def test_a_folder_of_pfllib_has_a_client_for_each_file(pfllib: Path) -> None:
    found = import_pfllib(pfllib)
    assert np.array_equal(found.x, np.concatenate([X, X + 1, X + 2]))
    assert found.clients.tolist() == found.test_clients.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    assert found.client_names == ("0", "1", "2")


def _pickled(path: Path, content: object) -> None:
    np.savez_compressed(path, data=np.array(content, dtype=object))


def test_the_classes_that_config_json_names_are_compared_with_those_that_were_read(pfllib: Path) -> None:
    assert import_pfllib(pfllib).facts.notes == ()
    (pfllib / "config.json").write_text(json.dumps({"num_clients": 3, "num_classes": 10}))
    assert "names 10 classes, and the training samples have 2" in import_pfllib(pfllib).facts.notes[0]


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "another number of clients": (
        lambda folder: (folder / "config.json").write_text('{"num_clients": 4}'),
        r"config\.json names 4 clients, but .*train holds 3 files",
    ),
    "no test file": (lambda folder: (folder / "test" / "2.npz").unlink(), r"test/2\.npz is missing"),
    "a client twice": (
        lambda folder: (folder / "train" / "2.npz").rename(folder / "train" / "01.npz"),
        r"01\.npz and .*1\.npz are both client 1",
    ),
    "shapes": (
        lambda folder: _pickled(folder / "train" / "1.npz", {"x": X[:, :2], "y": Y}),
        r"1\.npz: samples are numbers \(2,\), labels \(\), the first client's numbers \(3,\)",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_fault_of_a_folder_is_refused_in_one_line_that_names_the_file(pfllib: Path, case: str) -> None:
    spoil, words = SPOILT[case]
    spoil(pfllib)
    with pytest.raises(DataFileError, match=words) as error:
        import_pfllib(pfllib)
    assert "\n" not in str(error.value)


# Folders of LEAF's tasks: lists of numbers, texts of one length with the next character, and other texts.


def write(root: Path, part: str, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    """One file of LEAF's with these users' samples and labels."""
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    place = root / part / f"all_data_{part}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    sizes = [len(y) for _, y in users.values()]
    place.write_text(json.dumps({"users": list(users), "num_samples": sizes, "user_data": data}))


NUMBERS = {"u2": ([[0.5, 1.0], [1.5, 2.0]], [0, 1]), "u1": ([[2.5, 3.0]], [1]), "empty": ([], [])}


@pytest.mark.parametrize("below", ["", "data"])
def test_users_are_clients_by_name_and_test_on_their_own_samples(below: str, tmp_path: Path) -> None:
    write(tmp_path / below, "train", NUMBERS)
    write(tmp_path / below, "test", {"u2": ([[9.0, 9.0]], [1])})
    found = import_reference(f"leaf:{tmp_path}")
    assert found.client_names == ("u1", "u2")
    assert found.clients is not None
    assert found.test_clients is not None
    assert (found.clients.tolist(), found.test_clients.tolist()) == ([0, 1, 1], [1])
    assert found.x.dtype == np.float32
    assert (found.x.tolist(), found.y.tolist()) == ([[2.5, 3.0], [0.5, 1.0], [1.5, 2.0]], [1, 0, 1])
    assert (found.x_test.tolist(), found.y_test.tolist()) == ([[9.0, 9.0]], [1])


def test_texts_of_one_length_become_ids_of_their_characters_in_both_parts(tmp_path: Path) -> None:
    """Characters are numbered in their order over both parts: blank 0, a 1, b 2, c 3."""
    write(tmp_path, "train", {"u": (["ab ", "ba "], [" ", "a"])})
    write(tmp_path, "test", {"u": (["cab"], ["a"])})
    found = import_reference(f"leaf:{tmp_path}")
    assert found.x.dtype == np.int64
    assert (found.x.tolist(), found.x_test.tolist()) == ([[1, 2, 0], [2, 1, 0]], [[3, 1, 2]])
    assert found.class_names == ("' '", "'a'")
    assert "ids of 4 characters" in found.facts.notes[0]


def test_other_texts_and_samples_of_different_lengths_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "train", {"u": (["good day", "bad"], [0, 1])})
    with pytest.raises(DataFileError, match="tokenizer"):
        import_reference(f"leaf:{tmp_path}")
    write(tmp_path, "train", {"u": ([[1.0], [1.0, 2.0]], [0, 1])})
    with pytest.raises(UsageError, match="different lengths"):
        import_reference(f"leaf:{tmp_path}")


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


ROWS = np.arange(24, dtype=np.float32).reshape(12, 2)
LABELS = np.arange(12) % 2


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
    "names", [("X_train", "y_train", "X_test", "y_test"), ("X", "labels", "X_val", "labels_val")]
)
def test_arrays_are_known_by_the_usual_names_of_their_parts(tmp_path: Path, names: tuple[str, ...]) -> None:
    arrays = dict(zip(names, (ROWS, LABELS, ROWS[:4] + 100, LABELS[:4]), strict=True))
    np.savez(tmp_path / "a.npz", **arrays, groups=LABELS, class_names=["no", "yes"], mean=[0.0])
    found = import_npz(tmp_path / "a.npz")
    assert np.array_equal(found.x, ROWS)
    assert np.array_equal(found.x_test, ROWS[:4] + 100)
    assert found.y_test.tolist() == LABELS[:4].tolist()
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
