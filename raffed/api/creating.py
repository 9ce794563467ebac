"""`raffed new`: a project for methods, networks and data of one's own."""

from __future__ import annotations

import importlib.metadata
import keyword
import re
import sys
from importlib import resources
from pathlib import Path

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
    made = []
    with writing(path, "folder"):
        for place, template in FILES.items():
            file = path / place.format(name=name)
            file.parent.mkdir(parents=True, exist_ok=True)
            text = (templates / template).read_text(encoding="utf-8")
            file.write_text(text.replace("@NAME@", name), encoding="utf-8")
            made.append(file)
    return made


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
