"""Where the code of a reference lies, found without importing it, so that it can be compared before it runs.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NOTEBOOK: Final = "notebook"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
PLACES: dict[str, CodeLocation] = {}  # what stands before the colon → its place, by `place_at`


@dataclass(frozen=True)
class CodeLocation:
    """Where the code of a reference was found.

    Attributes:
        home: What stands before the colon of the reference, such as "mylab.methods" or "./prox.py".
        file: Absolute path of the file that defines it.
        root: Absolute path of the folder from which it is imported: the folder that holds the top package,
            or the folder of the file.
    """

    home: str
    file: str
    root: str


def is_reference(text: str) -> bool:
    """Return whether a text has the form of a reference. Nothing is imported.

    Args:
        text: What a person typed, such as "mylab.methods:myprox".
    """
    home, colon, name = text.rpartition(":")
    if not colon or not _DOTTED.fullmatch(name):
        return False
    return is_file(home) or _DOTTED.fullmatch(home) is not None


def is_file(home: str) -> bool:
    """Return whether what stands before the colon names a Python file rather than a module."""
    return home.endswith(".py")


def place_at(place: CodeLocation) -> None:
    """Note where the code of a reference lies, for `located`."""
    PLACES[place.home] = place


def installed(home: str) -> CodeLocation | None:
    """Return where the code of a reference lies, if `place_at` has said so."""
    return PLACES.get(home)


def located(home: str) -> CodeLocation | None:
    """Return where the code of a reference lies on this machine, or None if it is not there.

    Args:
        home: What stands before the colon of the reference: a file, or a module whose top package may be in
            the current folder.
    """
    if home in PLACES:
        return PLACES[home]
    if home == NOTEBOOK or is_file(home):
        path = Path(home).absolute()
        return CodeLocation(home, str(path), str(path.parent)) if path.is_file() else None
    top, *inner = home.split(".")
    for root in _roots_of(top):
        place = module_at(root, [top, *inner])
        if place is not None:
            return CodeLocation(home, str(place), str(root))
    return None


def module_at(root: Path, parts: list[str]) -> Path | None:
    """Return the file of a module below a folder, or None."""
    path = root.joinpath(*parts)
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((one for one in candidates if one.is_file()), None)


def _roots_of(top: str) -> list[Path]:
    """Return the folders from which Python would import a top package or module; the current one is last."""
    known = sys.modules.get(top)
    try:
        spec = known.__spec__ if known is not None else importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    found = _folders(spec) if spec is not None else []
    return [*found, Path(os.getcwd())]


def _folders(spec: importlib.machinery.ModuleSpec) -> list[Path]:
    if spec.submodule_search_locations is not None:
        return [Path(one).absolute().parent for one in spec.submodule_search_locations]
    return [Path(spec.origin).absolute().parent] if spec.origin else []


__all__ = [
    "NOTEBOOK",
    "CodeLocation",
    "installed",
    "is_file",
    "is_reference",
    "located",
    "module_at",
    "place_at",
]
