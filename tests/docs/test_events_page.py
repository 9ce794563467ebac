"""The page about `--json` lists every event that a command can write, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_lists_the_events_of_the_command_line() -> None:
    folders = (ROOT / "raffed" / "cli", ROOT / "raffed" / "api")
    sources = [path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("*.py")]
    emitted = {name for text in sources for name in re.findall(r'(?:_emit\(\s*|"event": )"([a-z_]+)"', text)}
    listed = set(
        re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs" / "events.md").read_text(encoding="utf-8"), re.M)
    )
    assert len(emitted) > 15
    assert listed == emitted - {"begin", "said", "ended"}  # only people see the first two
