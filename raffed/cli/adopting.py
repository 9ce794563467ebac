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
LACKS = {  # what the audit lists → what kind of thing it is, and what its problem is
    "packages": ("package", "not installed here"),
    "missing": ("file", "not released"),
    "undefined": ("name", "defined nowhere"),
    "unreadable": ("file", "is not read"),
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
    lost = [method["name"] for method in found["methods"] if method["server"] is None]
    stated = [f"{one['name']} ({one['place']})" for one in found["versions"]]
    show_pairs(
        (
            ("family", f"{found['family']}, started by {found['main']}"),
            ("commit", found["commit"] or "not a checkout of git"),
            ("licence", found["licence"] or "no file states one"),
            ("files", f"{counted(len(found['files']), 'Python file')}, SHA-256 {found['sha256']}"),
            ("methods", ", ".join(method["name"] for method in found["methods"] if method["server"])),
            *([("not released", ", ".join(lost))] if lost else []),
            *([("written for", ", ".join(stated))] if stated else []),
        )
    )
    flags = [
        (", ".join(flag["names"]), flag["kind"], flag["default"], ", ".join(flag["choices"]))
        for flag in found["flags"]
    ]
    show(("flag", "type", "default", "choices"), flags, title=f"Flags of {found['main']}")
    lacks = [
        (kind, one["name"], one["place"], problem)
        for listed, (kind, problem) in LACKS.items()
        for one in found[listed]
    ]
    if lacks:
        show(("kind", "name", "used first in", "problem"), lacks, title="Missing")
    traps = [(one["says"], str(len(one["places"])), _some(one["places"])) for one in found["traps"]]
    show(("what the code does", "places", "where"), traps, title="Habits that change numbers", right="places")


def _some(places: Sequence[str]) -> str:
    more = f", and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return ", ".join(places[:SHOWN]) + more
