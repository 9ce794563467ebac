"""SECURITY.md is one page, and each of its promises names a test that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_it_is_one_page_and_each_promise_names_tests_that_are_there() -> None:
    assert len(PAGE.splitlines()) <= 60
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) >= 14
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert named, row
        for file, name in named:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, (file, name)
