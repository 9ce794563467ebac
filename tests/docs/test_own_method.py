"""docs/own_method.md shows the method that `raffed new` writes."""

from __future__ import annotations

import re
from pathlib import Path

import raffed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own_method.md").read_text(encoding="utf-8")


def test_the_page_s_method_is_that_of_a_new_project() -> None:
    template = ROOT / "raffed" / "api" / "project" / "methods.py.in"
    assert f"```python\n{template.read_text(encoding='utf-8')}```" in PAGE


def test_every_function_that_the_page_names_is_public() -> None:
    named = set(re.findall(r"raffed\.([a-z]+)\(", PAGE))
    assert named >= {"compare", "iterate", "report", "reproduce", "resume", "tune", "verify"}
    assert named <= {*raffed.__all__, "iterate"}
