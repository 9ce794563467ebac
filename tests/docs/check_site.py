"""Check a built site: `python -m tests.docs.check_site site` finds broken links and loads from elsewhere.

No table may be shown as text. Every link to a page, a picture or a place in a page must lead to one. No page
may load a script, a style sheet, a font or a picture from a network. Links of text to other sites are allowed
and not followed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}
IN_STYLE = re.compile(r"(?:@import\s+|url\()\s*['\"]?(?:https?:)?//[^'\")\s]+")

RAW_TABLE = re.compile(r"\|\s*:?-{2,}:?\s*\|")  # the line below the head of a table in Markdown


class Reference(NamedTuple):
    """An address in a page, and whether a browser loads it by itself."""

    address: str
    loaded: bool


class Read(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[Reference] = []
        self.anchors: set[str] = set()
        self.raw = ""
        self.feed(text)

    def handle_data(self, data: str) -> None:
        if RAW_TABLE.search(data):
            self.raw = data.strip().partition("\n")[0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.references.append(Reference(given["href"], False))
        elif tag in LOADED and LOADED[tag] in given and given.get("rel") not in ("canonical", "next", "prev"):
            self.references.append(Reference(given[LOADED[tag]], True))


def faults(site: Path) -> list[str]:
    """Return one line for each fault of a built site."""
    pages = {path.resolve(): Read(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [
        f"{path.relative_to(site.resolve())}: {fault}"
        for path, page in pages.items()
        for fault in _of_page(path, page, pages)
    ]
    for path in sorted(site.rglob("*.css")):
        if match := IN_STYLE.search(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: loads {match[0]}")
    return found


def _of_page(path: Path, page: Read, pages: dict[Path, Read]) -> Iterator[str]:
    if page.raw:
        yield f"shows a table as text: {page.raw}"
    for address, loaded in page.references:
        parts = urlsplit(address)
        if parts.scheme == "data" or address in ("", "."):
            continue
        if parts.scheme or parts.netloc:
            if loaded:
                yield f"loads {address}"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file():
            yield f"there is no {address}"
        elif parts.fragment and target in pages and not _has(pages[target], unquote(parts.fragment)):
            yield f"{parts.path or 'this page'} has no place #{parts.fragment}"


def _has(page: Read, fragment: str) -> bool:
    return fragment in page.anchors or fragment.startswith("__")


def main(site: str) -> int:
    """Print the faults of a site, and return 1 if there are any."""
    found = faults(Path(site))
    pages = len(list(Path(site).rglob("*.html")))
    print(
        "\n".join(found)
        if found
        else f"{pages} pages: every link leads somewhere, and nothing is loaded from a network"
    )
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
