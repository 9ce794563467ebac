"""`raffed new` and `raffed adopt`: a project for code of one's own, and what an author's checkout says."""

from __future__ import annotations

import importlib.metadata
import keyword
import re
import sys
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from raffed.adopted.checkout import AuthorFlag, AuthorMethod, Checkout, Missing
from raffed.adopted.traps import TRAPS, traps_of
from raffed.errors import UsageError, writing

FILES = {  # below the project's folder → template beside this file
    "pyproject.toml": "pyproject.toml.in",
    "README.md": "README.md.in",
    "{name}/__init__.py": "init.py.in",
    "{name}/methods.py": "methods.py.in",
    "{name}/models.py": "models.py.in",
    "{name}/data.py": "data.py.in",
    "experiments/base.toml": "base.toml.in",
    "tests/test_contract.py": "test_contract.py.in",
}
TAKEN = {"raffed", "tests", "experiments"}  # names that would hide something


def new_project(folder: Path | str) -> list[Path]:
    """Write a project into a new folder.

    Args:
        folder: The folder, which must not exist. Its name becomes that of the package.

    Returns:
        The files that were written.

    Raises:
        UsageError: The folder exists or cannot be made, or its name cannot be that of a Python package.

    Example:
        >>> new_project("mylab")  # doctest: +SKIP
    """
    path = Path(folder)
    name = path.name
    _check_name(name)
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists already; choose another name, or remove it first")
    templates = resources.files("raffed.api") / "project"
    files = []
    with writing(path, "folder"):
        for place, template in FILES.items():
            file = path / place.format(name=name)
            file.parent.mkdir(parents=True, exist_ok=True)
            text = (templates / template).read_text(encoding="utf-8")
            file.write_text(text.replace("@NAME@", name), encoding="utf-8")
            files.append(file)
    return files


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} cannot be the name of a Python package; use small letters, digits and _, such as mylab"
        )
    if (
        name in TAKEN
        or name in sys.stdlib_module_names
        or name in importlib.metadata.packages_distributions()
    ):
        raise UsageError(f"{name!r} is the name of another module; choose another, such as my{name}")


# What an author's checkout says about itself. Nothing of it is executed.


def adopt(path: str | Path) -> dict[str, Any]:
    """Read an author's checkout.

    Args:
        path: The folder of the checkout.

    Returns:
        Plain data; each place is a path below the checkout with a line, such as "main.py:3". A method without
        a server is named in the main file and not released. `packages` are not installed here, `missing` are
        modules of the author's own that are not released, `undefined` names are defined nowhere, and
        `unreadable` files are not Python of this version. `versions` are those that the release states.

    Raises:
        UsageError: If it is no folder, or holds no engine of a known family.
    """
    checkout = Checkout(Path(path))
    return {
        "family": checkout.family.name,
        "main": checkout.named(checkout.main),
        "commit": checkout.commit(),
        "licence": checkout.licence(),
        "files": checkout.hashes,
        "sha256": checkout.sha256,
        "methods": [_plain(entry) for entry in checkout.methods()],
        "flags": [_plain(entry) for entry in checkout.flags()],
        "packages": [_plain(entry) for entry in checkout.packages()],
        "missing": [_plain(entry) for entry in checkout.files()],
        "undefined": [_plain(entry) for entry in checkout.names()],
        "unreadable": [_plain(entry) for entry in checkout.unreadable],
        "versions": [_plain(entry) for entry in checkout.versions()],
        "traps": [
            {"trap": trap, "says": TRAPS[trap]["says"], "places": [str(place) for place in places]}
            for trap, places in traps_of(checkout).items()
        ],
    }


def _plain(about: AuthorFlag | AuthorMethod | Missing) -> dict[str, Any]:
    return {**asdict(about), "place": str(about.place)}
