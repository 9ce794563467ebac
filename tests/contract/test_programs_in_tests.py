"""Programs that tests keep as texts, and start elsewhere, import what there is.

mypy does not read them, and those of slow tests are executed seldom.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^ *from (raffed[\w.]*) import (\w[\w, ]*)$", re.MULTILINE)


def imported(file: Path) -> Iterator[tuple[int, str, str]]:
    """(line of the text, module, name) of everything that the texts of a file import from raffed."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for found in IMPORT.finditer(node.value):
                for name in found[2].split(","):
                    yield node.lineno, found[1], name.partition(" as ")[0].strip()


def exists(module: str, name: str) -> bool:
    found = importlib.import_module(module)
    inside = hasattr(found, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None
    return hasattr(found, name) or inside


WITH_PROGRAMS = [file for file in sorted((ROOT / "tests").rglob("*.py")) if any(imported(file))]


@pytest.mark.parametrize("file", WITH_PROGRAMS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_program_in_a_text_imports_what_there_is(file: Path) -> None:
    gone = [
        f"line {line}: {module}.{name}" for line, module, name in imported(file) if not exists(module, name)
    ]
    assert not gone


def test_such_programs_are_found() -> None:
    assert len(WITH_PROGRAMS) > 10
    assert not exists("raffed.runtime.placement", "Plan")
