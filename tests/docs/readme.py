"""README's table of methods, made from METHODS.  `python -m tests.docs.readme` writes it."""

from __future__ import annotations

import re
from ast import literal_eval
from pathlib import Path

from raffed.config.source import described
from raffed.methods import METHODS

README = Path(__file__).resolve().parents[2] / "README.md"
PLACE = re.compile(r"(<!-- methods: [^\n]*-->\n)(.*?)(<!-- /methods -->)", re.DOTALL)


def table() -> str:
    """One row a method: name, paper, idea, arguments with defaults."""
    rows = ["| name | method | source | idea | arguments |", "|---|---|---|---|---|"]
    for name, info in METHODS.items():
        known = described(f"raffed.methods.{info.module}", info.factory).arguments
        arguments = ", ".join(f"{one.name}={literal_eval(one.default)}" for one in known)
        rows.append(f"| `{name}` | {info.title} | {info.source} | {info.idea} | {arguments} |")
    return "\n".join(rows) + "\n"


def written() -> str:
    """README with the table as it should be."""
    return PLACE.sub(lambda found: found[1] + table() + found[3], README.read_text(encoding="utf-8"))


if __name__ == "__main__":
    README.write_text(written(), encoding="utf-8")
