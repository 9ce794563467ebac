"""Which folders of a folder of images hold the images for training, validation and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raffed.data.importers.values import Part, are_parts, part_named, parts_named
from raffed.errors import DataFileError

NOT_DATA = ("thumbs.db", "desktop.ini", "__macosx")


@dataclass(frozen=True)
class ImageParts:
    """Where the parts lie.

    Attributes:
        train: Folder with the training images; the whole folder if it has no parts.
        test: Folder with the test images, if there is one.
        notes: What a user may not expect of it.
    """

    train: Path
    test: Path | None = None
    notes: tuple[str, ...] = ()


def is_data(inside: Sequence[str]) -> bool:
    """Return whether a path, given by its parts below the folder, belongs to the data.

    What an operating system leaves in folders, such as hidden files, does not.
    """
    return not any(one.startswith(".") or one.lower() in NOT_DATA for one in inside)


def image_parts(root: Path) -> ImageParts:
    """Find the parts of a folder of images by the names of the folders in it.

    The rule: with a folder for training (train, Training, train_set, ...), the folder for tests (test,
    Testing, ...) is the test set. If there is none, the folder for validation (val, valid, validation, dev,
    ...) is. With both, the validation images are not used. Folders that hold no folders are classes.

    Raises:
        DataFileError: Two folders mean the same part, the training part is missing, or other folders lie
            beside the parts.
    """
    below = [path.name for path in _folders(root)]
    named = parts_named(below)
    if not {"train", "test"} & set(named.values()):
        return ImageParts(root)
    if not any(_folders(root / one) for one in named):
        return ImageParts(root)  # classes
    _check_names(root, below, named)
    place = {part: root / name for name, part in named.items()}
    rest = place.get("test", place.get("validation"))
    return ImageParts(_inner(place["train"]), _inner(rest) if rest else None, _notes(root, place))


def _check_names(root: Path, below: Sequence[str], named: Mapping[str, Part]) -> None:
    other = next((name for name in below if name not in named), None)
    if other is not None:
        first = next(name for name, part in named.items() if part != "validation")
        raise DataFileError(
            f"{root}: {first!r} is the name of a part of a data set, and {other!r} beside it is not; leave "
            f"only parts there (train, test, val), or rename {first!r} if it is a client or class"
        )
    for part in ("train", "test", "validation"):
        twice = [name for name, one in named.items() if one == part]
        if len(twice) > 1:
            raise DataFileError(
                f"{root}: the folders {twice[0]!r} and {twice[1]!r} both mean the {part} part; join them, or "
                "remove one"
            )
    if "train" not in named.values():
        raise DataFileError(
            f"{root} holds {' and '.join(map(repr, named))}, and no folder for training; add one named train"
        )


def _notes(root: Path, place: Mapping[Part, Path]) -> tuple[str, ...]:
    """Say what is done with the parts, unless they are just train and test."""
    train, rest = place["train"].name, place.get("test", place.get("validation"))
    if rest is None:
        return (f"{root}: the images in {train!r} are the training part, and a test set is drawn from them",)
    spare = place["validation"] if {"test", "validation"} <= set(place) else None
    if spare is None and (train, rest.name) == ("train", "test"):
        return ()
    why = "" if "test" in place else " (there is no folder for tests)"
    said = f"{root}: the images in {train!r} are trained on, and those in {rest.name!r} are the test set{why}"
    if spare is None:
        return (said,)
    count = sum(path.is_file() and is_data(path.relative_to(root).parts) for path in spare.rglob("*"))
    return (
        f"{said}; the {count} in {spare.name!r} are not used: move them into {train!r} to train on them "
        "(--validation 0.1 then holds a part of the training images out)",
    )


def _inner(folder: Path) -> Path:
    """Return the folder inside if it is the only one and means the same part, as in seg_train/seg_train."""
    below = _folders(folder)
    same = len(below) == 1 and part_named(below[0].name) == part_named(folder.name)
    return below[0] if same else folder


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and is_data([path.name]))


def parts_inside(root: Path) -> str:
    """Return the end of a message if the parts lie in a folder of their own, one level further down."""
    below = _folders(root)
    for folder in below:
        inside = [path.name for path in _folders(folder)]
        if are_parts(inside):
            advice = f"folder:{folder}" if len(below) == 1 else f"{inside[0]}/{folder.name}/…"
            return f"; {folder} holds {' and '.join(inside)}, so write {advice}"
    return ""


__all__ = ["ImageParts", "image_parts", "is_data", "parts_inside"]
