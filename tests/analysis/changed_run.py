"""Runs of which one value is another one."""

from __future__ import annotations

import json
from pathlib import Path

from raffed.results.runfile import sealed


def change(folder: Path, where: str, value: object) -> None:
    """Another value in a run.json, at `where` (a.b.c)."""
    file = json.loads((folder / "run.json").read_text())
    *way, last = where.split(".")
    part = file
    for name in way:
        part = part.setdefault(name, {})
    part[last] = value
    (folder / "run.json").write_text(json.dumps(sealed(file)))
