"""A value is scaled only if it is a pixel, and what pictures hold beside their colours is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import raffed
from raffed.data.importers.reference import import_reference

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


def saved(folder: Path, modes: dict[str, int]) -> str:
    """A folder of 4x4 pictures of these modes and least opacities, two of each in each class."""
    for label in ("a", "b"):
        for mode, least in modes.items():
            for number in range(2):
                image = Image.new(mode, (4, 4), 255 if mode == "L" else (9, 9, 9, 255)[-len(mode) :])
                if mode.endswith("A"):
                    image.putpixel((0, 0), (*image.getpixel((0, 0))[:-1], least))
                (folder / label).mkdir(parents=True, exist_ok=True)
                image.save(folder / label / f"{mode}{number}.png")
    return f"folder:{folder}"


@pytest.mark.parametrize(
    ("modes", "note"),
    [
        ({"RGBA": 0}, "transparency is not used (4 of 4 images)"),
        ({"LA": 254, "L": 255}, "transparency is not used (4 of 8 images)"),
        ({"RGBA": 255}, ""),
        ({"RGB": 255}, ""),
    ],
)
@pytest.mark.parametrize("size", ["", "?size=2"])
def test_transparency_that_shows_is_named(
    modes: dict[str, int], note: str, size: str, tmp_path: Path
) -> None:
    notes = import_reference(saved(tmp_path, modes) + size).facts.notes
    assert [one.partition(": ")[2] for one in notes] == ([note] if note else [])


def test_pictures_with_several_frames_give_their_first_one_with_a_note(tmp_path: Path) -> None:
    frames = [Image.new("L", (4, 4), shade) for shade in (10, 200)]
    for label in ("a", "b"):
        for number in range(2):
            (tmp_path / label).mkdir(exist_ok=True)
            frames[0].save(tmp_path / label / f"{number}.gif", save_all=True, append_images=frames[1:])
    found = import_reference(f"folder:{tmp_path}")
    assert set(np.unique(found.x)) == {10}
    assert found.facts.notes[0].endswith("only the first frame is used (4 of 4 images)")
