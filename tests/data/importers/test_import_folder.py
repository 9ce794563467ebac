"""Folders of images: the folders' names are classes and clients, and a fault names the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from raffed.data.importers.images import import_folder
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
    found = import_folder(classes, test=0.0)
    assert found.class_names == ("cat", "dog")
    assert found.x.shape == (10, 3, 6, 4)
    assert found.x.dtype == np.uint8
    assert found.x[:, 0, 0, 0].tolist() == list(range(10))
    assert found.y.tolist() == [0] * 5 + [1] * 5
    assert found.clients is None


def test_a_fifth_of_each_class_is_the_test_set(classes: Path) -> None:
    found = import_folder(classes)
    assert found.y_test.tolist() == [0, 1]


def test_folders_above_the_classes_are_the_clients(tmp_path: Path) -> None:
    for client, label, value in (("s1", "cat", 1), ("s1", "dog", 2), ("s2", "cat", 3), ("s2", "dog", 4)):
        save(tmp_path / client / label / "a.jpg", value)
    found = import_folder(tmp_path, test=0.0)
    assert found.client_names == ("s1", "s2")
    assert found.clients is not None
    assert found.clients.tolist() == [0, 0, 1, 1]
    assert found.y.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("client", ["", "s1/"])
def test_train_and_test_are_parts_and_not_clients(tmp_path: Path, client: str) -> None:
    for part, label in ((part, label) for part in ("train", "test") for label in ("cat", "dog")):
        save(tmp_path / part / f"{client}{label}" / "a.png")
    found = import_folder(tmp_path)
    assert (len(found.x), len(found.x_test)) == (2, 2)
    assert (found.test_clients is not None) == bool(client)


def test_grey_images_have_one_channel_and_one_colour_image_makes_all_colour(classes: Path) -> None:
    for path in classes.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    assert import_folder(classes).x.shape[1] == 1
    assert import_folder(classes, colour="rgb").x.shape[1] == 3
    save(classes / "cat" / "a.png")
    assert import_folder(classes).x.shape[1] == 3
    assert import_folder(classes, colour="grey").x.shape[1] == 1


def test_a_size_makes_images_of_all_sizes_alike(classes: Path) -> None:
    save(classes / "cat" / "large.png", 200, (30, 20))
    with pytest.raises(DataFileError, match=r"large\.png is 20x30 pixels, .*a\.png is 4x6; give size=N"):
        import_folder(classes)
    found = import_folder(classes, size=5, test=0.0)
    assert found.x.shape == (11, 3, 5, 5)
    assert (found.x[5] == 200).all()


def test_an_image_is_turned_as_its_camera_says(classes: Path) -> None:
    path = save(classes / "cat" / "turned.jpg", 9, (4, 6))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    Image.open(path).save(path, exif=exif)
    assert import_folder(classes).x.shape[2:] == (6, 4)


def test_hidden_files_and_files_beside_the_classes_are_not_data(classes: Path) -> None:
    (classes / ".DS_Store").write_bytes(b"x")
    (classes / "cat" / ".DS_Store").write_bytes(b"x")
    (classes / "cat" / "Thumbs.db").write_bytes(b"x")
    (classes / "LICENSE").write_text("free")
    assert len(import_folder(classes, test=0.0).x) == 10


def _text(root: Path) -> None:
    (root / "cat" / "notes.txt").write_text("a text")


def _cut(root: Path) -> None:
    path = root / "dog" / "b.png"
    path.write_bytes(path.read_bytes()[:45])


def _deep(root: Path) -> None:
    save(root / "cat" / "x" / "y" / "z.png")


def _mixed(root: Path) -> None:
    save(root / "client" / "cat" / "z.png")


def _sixteen_bits(root: Path) -> None:
    Image.fromarray(np.zeros((6, 4), np.uint16)).save(root / "cat" / "deep.png")


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "an empty class": (lambda root: (root / "eel").mkdir(), "eel is empty"),
    "a file that is not an image": (_text, r"notes\.txt is not an image"),
    "a damaged image": (_cut, r"b\.png is damaged"),
    "an image too deep": (_deep, r"z\.png lies too deep"),
    "two layouts": (_mixed, "lie at different depths"),
    "16 bits": (_sixteen_bits, r"deep\.png has pixels of mode I;16"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_is_refused_in_one_line_that_names_the_file(classes: Path, case: str) -> None:
    spoil, words = REFUSED[case]
    spoil(classes)
    with pytest.raises(UsageError, match=words) as error:
        import_folder(classes)
    assert "\n" not in str(error.value)


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="nowhere is missing"):
        import_folder(tmp_path / "nowhere")
    with pytest.raises(DataFileError, match="holds no images"):
        import_folder(tmp_path)
    save(tmp_path / "cat" / "a.png")
    with pytest.raises(UsageError, match="the one class 'cat'"):
        import_folder(tmp_path)
    with pytest.raises(UsageError, match="colour"):
        import_folder(tmp_path, colour="blue")


def test_links_to_folders_are_followed(classes: Path, tmp_path: Path) -> None:
    """A class that lies on another disk would be missing without a word."""
    (classes / "dog").rename(tmp_path / "elsewhere")
    (classes / "dog").symlink_to(tmp_path / "elsewhere")
    found = import_folder(classes, test=0.0)
    assert found.class_names == ("cat", "dog")
    assert found.x[:, 0, 0, 0].tolist() == list(range(10))


def test_a_link_that_leads_back_is_refused(classes: Path) -> None:
    (classes / "dog" / "more").symlink_to(classes / "dog")
    with pytest.raises(DataFileError, match="lies too deep"):
        import_folder(classes, test=0.0)


def test_a_folder_that_cannot_be_read_is_refused(classes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    def denied(folder: Path) -> Iterator[os.DirEntry[str]]:
        if Path(folder).name == "dog":
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(DataFileError, match=r"dog cannot be read \(Permission denied\)"):
        import_folder(classes, test=0.0)
