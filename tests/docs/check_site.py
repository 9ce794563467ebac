"""Check a built site: `python -m tests.docs.check_site site` finds raw tables and loads from a network.

mkdocs itself refuses a link that leads nowhere (`validation` in mkdocs.yml, and `--strict`). No page may load
a script, a style sheet, a font or a picture from elsewhere. Links of text to other sites are allowed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

RAW_TABLE = re.compile(r"^\s*\|\s*:?-{2,}:?\s*\|", re.MULTILINE)  # below the head of a table in Markdown
TAG = re.compile(r"<(?:img|script|link|source|iframe)\b[^>]*>")
NOT_LOADED = re.compile(r"rel=\"?(?:canonical|next|prev)\b")
LOADED = re.compile(r"\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
IN_STYLE = re.compile(r"(?:@import\s+|url\()\s*['\"]?((?:https?:)?//[^'\")\s]+)")


def faults(site: Path) -> list[str]:
    """Return one line for each fault of a built site."""
    found = []
    for path in sorted(path for path in site.rglob("*") if path.suffix in (".html", ".css")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(site)
        if path.suffix == ".html":
            tags = " ".join(tag for tag in TAG.findall(text) if not NOT_LOADED.search(tag))
            found += [f"{name}: shows a table as text" for _ in RAW_TABLE.findall(text)[:1]]
            found += [f"{name}: loads {address}" for address in LOADED.findall(tags)]
        else:
            found += [f"{name}: loads {address}" for address in IN_STYLE.findall(text)]
    return found


def main(site: str) -> int:
    """Print the faults of a site, and return 1 if there are any."""
    found, pages = faults(Path(site)), len(list(Path(site).rglob("*.html")))
    print("\n".join(found) or f"{pages} pages: nothing is loaded from a network")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
