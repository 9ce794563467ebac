"""`raffed adopt`: show what an author's checkout says about itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raffed.api.adopting import adopt as audited
from raffed.cli.messages import counted
from raffed.cli.tables import show, show_pairs
from raffed.results.text import tell

SHOWN = 4  # places of a trap; --json has all of them
TITLES = {  # what the audit lists → the title of its table
    "flags": "Flags of the author's parser",
    "versions": "Versions that it was written for",
    "packages": "Packages that are not installed here",
    "missing": "Files that are not released",
    "undefined": "Names that nothing defines",
    "unreadable": "Files that are not Python of this version",
    "traps": "Habits that change numbers",
}


def adopt(path: Path, *, as_json: bool = False) -> None:
    """Show what released code of an author does, without executing anything of it.

    It finds the kind of engine, the methods and flags of its parser, what is missing, and which habits
    of the code change its numbers, each with file and line. `--json` prints all places.

    Args:
        path: Folder of the author's code.
        as_json (--json): Print one JSON object.

    Examples:
        raffed adopt ~/PFLlib
    """
    found = audited(path)
    if as_json:
        tell(json.dumps({"event": "adopt", **found}))
    else:
        _show(found)


def _show(found: Mapping[str, Any]) -> None:
    methods = found["methods"]
    lost = ", ".join(method["name"] for method in methods if not method["server"])
    show_pairs(
        (
            ("family", f"{found['family']}, started by {found['main']}"),
            ("commit", found["commit"] or "not a checkout of git"),
            ("licence", found["licence"] or "no file states one"),
            ("files", f"{counted(len(found['files']), 'Python file')}, SHA-256 {found['sha256']}"),
            ("methods", ", ".join(method["name"] for method in methods if method["server"])),
            ("not released", lost or "none of its methods"),
        )
    )
    for key, title in TITLES.items():
        rows = [[_text(value) for value in entry.values()] for entry in found[key]]
        if rows:
            show(tuple(found[key][0]), rows, title=title)


def _text(value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        return value
    return ", ".join(value[:SHOWN]) + (f", and {len(value) - SHOWN} more" if len(value) > SHOWN else "")
