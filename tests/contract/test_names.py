"""One word, one thing: no two public classes of raffed share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for top in ("raffed", "analysis", "reproductions", "tune_spaces", "cluster"):
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(path.relative_to(ROOT).as_posix())
    assert len(homes) >= 200
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
