"""Make analysis/, reproductions/ and others importable as raffed.analysis and so on, in a checkout.

In a checkout these folders stand beside raffed/. In a wheel they lie inside raffed/, and nothing in
this module is used. In a checkout, a finder maps their package names to their folders. It also maps
`import analysis` to the module raffed.analysis itself, so that no class exists twice in one process.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

NAMES = ("analysis", "cluster", "reproductions", "tune_spaces")


class _SameModule(Loader):
    """Load a short name, such as `analysis`, as the module that is imported under its full name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._module = importlib.import_module(f"raffed.{spec.name}")
        self._spec = self._module.__spec__
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just replaced it by the short name's specification
        module.__spec__ = self._spec

    def get_code(self, name: str) -> CodeType | None:
        """Return the code that `python -m NAME` executes."""
        spec = importlib.util.find_spec(f"raffed.{name}")
        return spec.loader.get_code(spec.name) if spec and isinstance(spec.loader, InspectLoader) else None


class CheckoutFinder(MetaPathFinder):
    """Find the packages of NAMES in the folder that holds raffed/."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of one of these packages, or of a module under its short name."""
        first, _, rest = fullname.partition(".")
        if first == "raffed" and rest in NAMES:
            folder = self._root / rest
            return importlib.util.spec_from_file_location(
                fullname, folder / "__init__.py", submodule_search_locations=[str(folder)]
            )
        if first in NAMES and rest.rpartition(".")[2] != "__main__" and self._is_here(first):
            return ModuleSpec(fullname, _SameModule(), is_package=False)
        return None

    def _is_here(self, name: str) -> bool:
        """Return whether the first `name` on sys.path belongs to this checkout.

        A user's own analysis.py is left to the user.
        """
        for entry in sys.path:
            folder = Path(entry or ".")
            if (folder / name / "__init__.py").is_file() or (folder / f"{name}.py").is_file():
                return (folder / name).resolve() == self._root / name
        return False


def install() -> None:
    """Install the finder once, if this is a checkout."""
    root = Path(__file__).resolve().parents[1]
    is_checkout = (root / "pyproject.toml").is_file() and (root / "tune_spaces").is_dir()
    if is_checkout and not any(isinstance(finder, CheckoutFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, CheckoutFinder(root))
