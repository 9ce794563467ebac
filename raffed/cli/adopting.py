"""`raffed adopt`: show what an author's checkout says about itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from raffed.api.adopting import Audit
from raffed.api.adopting import adopt as audited
from raffed.cli.messages import counted
from raffed.cli.tables import show, show_pairs
from raffed.results.text import tell

SHOWN = 4  # places of a trap; --json has all of them


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
        tell(json.dumps({"event": "adopt", **found.as_dict()}))
    else:
        _show(found)


def _show(found: Audit) -> None:
    lost = [method.name for method in found.methods if method.server is None]
    show_pairs(
        (
            ("family", f"{found.family}, started by {found.main}"),
            ("commit", found.commit or "not a checkout of git"),
            ("licence", found.licence or "no file states one"),
            ("files", f"{counted(len(found.files), 'Python file')}, SHA-256 {found.sha256}"),
            ("methods", ", ".join(method.name for method in found.methods if method.server)),
            *([("not released", ", ".join(lost))] if lost else []),
            *([("written for", ", ".join(map(str, found.versions)))] if found.versions else []),
        )
    )
    flags = [
        (", ".join(flag.names), flag.kind, flag.default, ", ".join(flag.choices)) for flag in found.flags
    ]
    show(("flag", "type", "default", "choices"), flags, title=f"Flags of {found.main}")
    lacks = [
        *(("package", missing.name, str(missing.place), "not installed here") for missing in found.packages),
        *(("file", missing.name, str(missing.place), "not released") for missing in found.missing),
        *(("name", missing.name, str(missing.place), "defined nowhere") for missing in found.undefined),
        *(("file", str(missing.place), missing.name, "is not read") for missing in found.unreadable),
    ]
    if lacks:
        show(("kind", "name", "used first in", "problem"), lacks, title="Missing")
    traps = [(one["says"], str(len(one["places"])), _some(one["places"])) for one in found.as_dict()["traps"]]
    show(("what the code does", "places", "where"), traps, title="Habits that change numbers", right="places")


def _some(places: Sequence[str]) -> str:
    more = f", and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return ", ".join(places[:SHOWN]) + more
