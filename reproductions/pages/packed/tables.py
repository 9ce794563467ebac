"""The README.md of packed records: the tables that today's code makes of them."""

from __future__ import annotations

from pathlib import Path

from raffed.analysis.item_tables import item_markdown
from raffed.analysis.metrics.summary import summary, to_markdown
from raffed.analysis.report import find_items
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders, tried_names
from raffed.analysis.runs.files import write_text
from raffed.analysis.runs.load import Runs, read_runs

from raffed.results.unpacking import unpacked

from ..zoo.page import item_page

README = "README.md"
DOCS = "../../../docs/"  # as seen from a page in reproductions/records/NAME/
_HEAD = """# {name}

`python -m reproductions.pages.pack_records --tables reproductions/records/{name}`
made this page from the two other files here.
[The page above](../README.md) says how the runs were made and what was learned from them.
"""


def tables_of(folder: Path) -> str:
    """Return the page on a folder with packed records, as Markdown."""
    with unpacked([folder]) as (local,):
        items = [(item, read_runs(run_folders(item))) for item in find_items([local])]
        parts = [_item(item, runs) for item, runs in items]
        parts += [
            f"Tuning, {path.parent.name}\n\n{path.read_text(encoding='utf-8')}"
            for path in sorted(local.rglob("tuning.md"))
        ]
        runs = read_runs([local]).without(tried_names([item for item, _ in items]))
        if not runs.runs.empty:
            shown = summary(runs).drop(columns="seconds_round")  # other work ran on these machines
            parts.append(f"All runs\n\n{to_markdown(shown)}")
    head = _HEAD.format(name=folder.resolve().name)
    return "\n".join([head, *(f"## {part.strip()}\n" for part in parts)])


def _item(item: Reproduction, runs: Runs) -> str:
    """Return the tables of an item below its title. Of rows that were tuned there is a page of its own."""
    if item.about.get("search"):
        return item_page(item, runs, docs=DOCS).removeprefix("## ")
    page: str = item_markdown(item, runs)
    return page


def write_tables(folder: Path) -> None:
    """Write the page on a folder with packed records beside them."""
    write_text(folder / README, tables_of(folder))
