"""The command `python -m analysis.zoo_page RECORDS... --out docs/zoo.md` writes the page on tuned tables.

It reads packed records or folders of `raffed reproduce zoo/…`. The diagrams of ranks lie beside the page.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from raffed.results.visible import visible

from .figures.plots import rank_diagram
from .figures.theme import in_both_schemes, svg
from .packed.files import DamagedRecordsError, unpacked
from .report import find_items
from .reproduction.item_runs import Reproduction, run_folders
from .runs.files import write_text
from .runs.load import Runs, read_runs
from .zoo.page import item_page, ranks_of
from .zoo.rows import columns, scores

HEAD = """# The zoo: all methods, equally tuned

`python -m analysis.zoo_page {records} --out {page}`
made this page from records of `raffed reproduce zoo/…`.

```sh
raffed reproduce --list                                           # zoo/… are the tables of all methods
raffed reproduce zoo/fashion-mnist --scale full --plan            # what will run, and what is no row, and why
raffed reproduce zoo/fashion-mnist --scale full --out zoo --only fedavg,fedprox --budget 80m \\
    --keep-checkpoints 1
raffed reproduce zoo/fashion-mnist --scale full --out zoo --tables
python -m analysis.pack_records zoo --out analysis/records/zoo --results
```

On the site, a click on a heading sorts a table. The name of a method leads to what is behind its row: the
accuracy with each seed, the hashes of the final weights, and the command that makes the cell again.

Any part may run by itself: rows and splits are chosen by `--only`, and the same command goes on where it
stopped. Parts with one `--out` make one table, also if they run at the same time. `--tables` runs nothing and
collects all that is finished. Records are unpacked by `--unpack`, and the command goes on with them.

A hash is that of the weights that the server sends on after the last round. CCVR, CReFF, FedDC, FedDyn,
FedExP and FedLoGe can be scored with another model, which the server makes beside these weights and which no
hash here names.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if the page was written, and 2 if there is nothing to write about or no place for it."""
    parser = argparse.ArgumentParser(prog="python -m analysis.zoo_page", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORDS", help="packed records, or runs")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="PAGE", help="the page, such as docs/zoo.md"
    )
    given = parser.parse_args(argv)
    try:
        files = written(given.records, given.out)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            write_text(path, text)
    except (DamagedRecordsError, ValueError, OSError) as error:
        print(visible(str(error)), file=sys.stderr)
        return 2
    return 0


def written(records: Sequence[Path], page: Path) -> dict[Path, str]:
    """Return file → text of the page and its pictures.

    Args:
        records: Folders with packed records, or with runs.
        page: Where the page will lie.

    Raises:
        ValueError: There is no tuned table.
    """
    files: dict[Path, str] = {}
    parts = []
    with unpacked(records) as places:
        items = [item for item in find_items(places) if item.about.get("search")]
        if not items:
            raise ValueError(f"{', '.join(map(str, records))}: there is no table of raffed reproduce zoo/…")
        for item in items:
            runs = read_runs(run_folders(item))
            picture = _picture(item, runs)
            name = f"{item.about['paper']}-{item.about['name']}.svg" if picture else ""
            if picture:
                files[page.parent / name] = picture
            parts.append(item_page(item, runs, name, _addresses(records, page)))
    shown = " ".join(path.as_posix() for path in records)
    head = HEAD.format(records=shown, page=page.as_posix())
    return {page: "\n".join([head, *parts]), **files}


def _addresses(records: Sequence[Path], page: Path) -> list[tuple[str, str]]:
    """Return name and address, seen from the page, of those records that have a page of their own."""
    return [
        (path.name, Path(os.path.relpath(path / "README.md", page.parent)).as_posix())
        for path in records
        if (path / "README.md").exists()
    ]


def _picture(item: Reproduction, runs: Runs) -> str:
    ranking = ranks_of({name: scores(item, runs, name) for name in columns(item)})
    return "" if ranking is None else in_both_schemes(svg(rank_diagram(ranking)))


if __name__ == "__main__":
    sys.exit(main())
