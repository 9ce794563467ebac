"""The command `python -m reproductions.pages.pack_records` packs runs into records, and unpacks them.

RUNS --out reproductions/records/NAME             pack a folder of runs
RUNS --out reproductions/records/NAME --results   the same, with one row a round of trials
--unpack reproductions/records/NAME --out RUNS    make the folder again
--check reproductions/records/*                   compute every recorded hash again
--tables reproductions/records/*                  write each README.md anew
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from raffed.analysis.item_tables import item_markdown
from raffed.analysis.metrics.summary import summary, to_markdown
from raffed.analysis.report import find_items
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders, tried_names
from raffed.analysis.runs.files import write_text
from raffed.analysis.runs.load import Runs, read_runs

from raffed.results.runfile import RECORDS_FILE
from raffed.results.storage import packed_below, unpacked
from raffed.results.text import visible

from . import exit_code
from .packed.files import pack_folder, read_records, unpack_folder
from .zoo.page import item_page

README = "README.md"
DOCS = "../../../docs/"  # as seen from a page in reproductions/records/NAME/
_HEAD = """# {name}

`python -m reproductions.pages.pack_records --tables reproductions/records/{name}`
made this page from `records.parquet` beside it.
[The page above](../README.md) says how the runs were made and what was learned from them.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if all went well, and 2 if an argument or a file is not as it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m reproductions.pages.pack_records",
        description="Pack runs into records, and unpack them.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="runs, or packed records")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write what is packed or unpacked")
    does = parser.add_mutually_exclusive_group()
    does.add_argument("--unpack", action="store_true", help="make the folder of runs again")
    does.add_argument("--check", action="store_true", help="compute the hashes of all rows again")
    does.add_argument("--results", action="store_true", help="pack one row a round of trials")
    does.add_argument("--tables", action="store_true", help="write the README.md of packed records")
    arguments = parser.parse_args(argv)
    return exit_code(lambda: _do(arguments, parser))


def _do(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    if arguments.check or arguments.tables:
        for folder in (packed for given in arguments.folders for packed in _packed(given)):
            if arguments.tables:
                write_tables(folder)
            else:
                count = len(read_records(folder, check=True).tables)
                print(visible(f"{folder}: the rows of {count} files have their recorded hashes"))
        return
    if arguments.out is None or len(arguments.folders) != 1:
        parser.error("packing and unpacking need exactly one folder and --out")
    (folder,) = arguments.folders
    if arguments.unpack:
        unpack_folder(folder, arguments.out)
        return
    items = find_items([folder]) if arguments.results else []
    pack_folder(folder, arguments.out, [item for item in items if item.about.get("search")])
    write_tables(arguments.out)


def _packed(given: Path) -> list[Path]:
    folders = packed_below(given)
    if not folders:
        raise ValueError(f"{given}: there is no {RECORDS_FILE} at or below it")
    return folders


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


if __name__ == "__main__":
    sys.exit(main())
