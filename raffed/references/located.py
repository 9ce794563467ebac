"""Where the code of a reference lies, found without importing it, so that it can be compared before it runs.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

from raffed.references.resolve import NOTEBOOK, CodeLocation, installed, is_file


def located(home: str) -> CodeLocation | None:
    """Return where the code of a reference lies on this machine, or None if it is not there.

    Args:
        home: What stands before the colon of the reference: a file, or a module whose top package may be in
            the current folder.
    """
    if home == NOTEBOOK or is_file(home):
        path = installed(home) or Path(home).absolute()
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


__all__ = ["located", "module_at"]
