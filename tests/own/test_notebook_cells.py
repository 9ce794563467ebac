"""What a notebook cell defines becomes a module that another process can execute, or is refused."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.warm import python

# Executes cells as a notebook does: in __main__, with the source in linecache under the kernel's file names.
KERNEL = """
import linecache, sys

def cell(number, text):
    file = f"/tmp/ipykernel_1/{number}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), sys.modules["__main__"].__dict__)
"""


def notebook(folder: Path, *cells: str, ends: str) -> subprocess.CompletedProcess[str]:
    """Run cells and then a line in a process of its own."""
    texts = [textwrap.dedent(one).lstrip("\n") for one in cells]
    calls = "".join(f"cell({number}, {text!r})\n" for number, text in enumerate(texts))
    show = "from raffed.own.carried import module_source\n"
    return python(["-c", KERNEL + calls + show + ends], cwd=folder)


CELLS = (
    """
    import math
    import os.path as where
    from collections import OrderedDict as Ordered
    RATE = 0.5
    NAMES = ("a", "b")
    """,
    """
    class Base:
        scale: float = RATE

    def half(x):
        return x * Base.scale
    """,
    """
    class Child(Base):
        def value(self, x: "Base") -> float:
            return math.sqrt(half(x)) + len(NAMES)

    def build(x=8.0):
        assert where.basename("/a/b") == "b" and Ordered() == {}
        return Child().value(x)
    """,
)


def test_a_function_brings_the_imports_constants_and_classes_that_it_uses(tmp_path: Path) -> None:
    done = notebook(tmp_path, *CELLS, ends="print(module_source([build], globals()))")
    assert done.returncode == 0, done.stderr
    names: dict[str, object] = {}
    exec(done.stdout, names)  # a module of its own, in another process than the notebook
    assert names["build"]() == 4.0  # type: ignore[operator]  # √(8 · ½) + 2


def test_the_newest_definition_of_a_class_counts(tmp_path: Path) -> None:
    first, second = (
        "class Memory:\n    size = 1\n",
        "class Memory:\n    size = 2\n\ndef f():\n    return Memory.size\n",
    )
    done = notebook(tmp_path, first, second, ends="print(module_source([f], globals()))")
    names: dict[str, object] = {}
    exec(done.stdout, names)
    assert names["f"]() == 2  # type: ignore[operator]


@pytest.mark.parametrize("live", ["open('x', 'w')", "object()", "[object()]", "iter([])"])
def test_a_live_object_is_refused_by_its_name(tmp_path: Path, live: str) -> None:
    done = notebook(
        tmp_path,
        f"table = {live}\n\ndef f():\n    return table\n",
        ends="module_source([f], globals())",
    )
    assert "UsageError: f uses table, a " in done.stderr
