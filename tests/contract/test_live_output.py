"""No test loses what a process says: lines before communicate() are read by tests/live_output.py."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.live_output import lines, next_line

TESTS = Path(__file__).parents[1]
SAYS_TWO = "print('first\\nsecond\\nthird', flush=True)"


def calls(tree: ast.AST, method: str) -> bool:
    """Whether a method of this name is called somewhere."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
        for node in ast.walk(tree)
    )


def reads_ahead(tree: ast.AST) -> bool:
    """Whether the output of a process is read through the object that Python makes of it."""

    def is_output(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr")

    return any(
        (isinstance(node, ast.For) and is_output(node.iter))
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("readline", "__next__")
            and is_output(node.func.value)
        )
        for node in ast.walk(tree)
    )


def test_no_file_reads_lines_ahead_and_then_asks_communicate_for_the_rest() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(TESTS.rglob("*.py"))}
    assert [
        str(path.relative_to(TESTS))
        for path, tree in trees.items()
        if reads_ahead(tree) and calls(tree, "communicate")
    ] == []


def test_communicate_gives_all_that_follows_the_lines_that_were_read() -> None:
    """Also where all lines are there before the first is read."""
    with subprocess.Popen([sys.executable, "-c", SAYS_TWO], stdout=subprocess.PIPE, text=True) as process:
        process.wait(20)
        assert next_line(process) == "first\n"
        assert process.communicate(timeout=20)[0] == "second\nthird\n"


def test_lines_end_with_the_output() -> None:
    with subprocess.Popen([sys.executable, "-c", SAYS_TWO], stdout=subprocess.PIPE, text=True) as process:
        assert list(lines(process)) == ["first\n", "second\n", "third\n"]
