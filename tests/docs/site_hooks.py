"""What the site has beyond docs/: a page for each packed record, and what a search finds first.

Pages of docs/ link to `../reproductions/records/NAME/README.md`, which works where the repository is browsed.
On the site the same link leads to the page that is made here from that file.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "reproductions" / "records"
BEGIN = ("index", "install", "first_run", "round", "tuning", "reproducing")  # pages of a newcomer
TO_RECORD = re.compile(r"\]\((?:\.\./)+reproductions/records/(?:([\w-]+)/)?README\.md(#[\w-]+)?\)")
TO_DOCS = re.compile(r"\]\((?:\.\./)+docs/([\w/-]+\.md)(#[\w-]+)?\)")
TO_SOURCE = re.compile(
    r"\[([^\]]*)\]\((?:\.\./)+((?:raffed|analysis|reproductions|tests|cluster)/[\w./-]+)\)"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of records, below `records/`."""
    for path in (RECORDS / "README.md", *sorted(RECORDS.glob("*/README.md"))):
        name = "index" if path.parent == RECORDS else path.parent.name
        files.append(File.generated(config, f"records/{name}.md", content=record_page(path)))
    return files


def record_page(path: Path) -> str:
    """Return the page of a record: its links lead to pages of the site, or name the file that they meant."""
    text = path.read_text(encoding="utf-8")
    text = TO_DOCS.sub(lambda found: f"](../{found[1]}{found[2] or ''})", text)
    text = TO_SOURCE.sub(lambda found: f"{found[1]} (`{found[2]}`)", text)
    if path.parent == RECORDS:
        text = re.sub(r"\]\(([\w-]+)/README\.md\)", r"](\1.md)", text)
        names = sorted(one.parent.name for one in RECORDS.glob("*/README.md"))
        links = "".join(f"- [{one}]({one}.md)\n" for one in names)
        return f"{text}\n## Tables of each record\n\n{links}"
    text = text.replace("](../README.md)", "](index.md)")
    return f"{text}\nThe files of this record are in `reproductions/records/{path.parent.name}/`.\n"


def boost(page: str) -> float:
    """Return the weight of a page's hits in the search: who looks for a word wants to be shown how first."""
    if page.startswith(("records/", "papers/")):
        return 0.2
    return 3.0 if page.startswith(("own_", *BEGIN)) else 1.0


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Let 404.html, whose links begin at the root of a server, find its files beside it."""
    return re.sub(r"""((?:href|src)="|"base": ")/(?!/)""", r"\1./", output)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to records into links to their pages, let tables be folded, and rank pages in a search."""
    page.meta["search"] = {"boost": boost(page.file.src_uri)}
    up = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace("<details>", '<details markdown="1">')
    return TO_RECORD.sub(lambda found: f"]({up}records/{found[1] or 'index'}.md{found[2] or ''})", markdown)
