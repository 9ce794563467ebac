"""Write docs/zoo.md, on tuned tables: `python -m reproductions.pages.zoo_page RECORDS... --out docs/zoo.md`.

It reads packed records or folders of `raffed reproduce zoo/…`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from raffed.analysis.report import find_items
from raffed.analysis.reproduction.item_runs import run_folders
from raffed.analysis.runs.load import read_runs

from raffed.results.storage import unpacked

from . import write_pages
from .zoo.page import item_page

HEAD = """# The zoo: all methods, equally tuned

`python -m reproductions.pages.zoo_page {records} --out {page}`
made this page from records of `raffed reproduce zoo/…`.

```sh
raffed reproduce --list                                           # zoo/… are the tables of all methods
raffed reproduce zoo/fashion-mnist --scale full --plan            # what will run, and what is no row, and why
raffed reproduce zoo/fashion-mnist --scale full --out zoo --only fedavg,fedprox --budget 80m \\
    --keep-checkpoints 2
raffed reproduce zoo/fashion-mnist --scale full --out zoo --tables
python -m reproductions.pages.pack_records zoo --out reproductions/records/zoo --results
```

On the site, a click on a heading sorts a table. The name of a method leads to what is behind its row: the
accuracy with each seed, the hashes of the final weights, and the command that makes the cell again.

Any part may run by itself: rows and splits are chosen by `--only`, and the same command goes on where it
stopped. Parts with one `--out` make one table, also if they run at the same time. `--tables` runs nothing and
collects all that is finished. Records are unpacked by `--unpack`, and the command goes on with those of
today's protocol.

A hash is that of the weights that the server sends on after the last round. CCVR, CReFF, FedACG, FedDC,
FedDyn, FedExP and FedLoGe can be scored with another model, which the server makes beside these weights and
which no hash here names.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, and return the exit code."""
    return write_pages("zoo_page", lambda records, page: {page: written(records, page)}, argv)


def written(records: Sequence[Path], page: Path) -> str:
    """Return the text of the page.

    Args:
        records: Folders with packed records, or with runs.
        page: Where the page will lie.

    Raises:
        ValueError: There is no tuned table.
    """
    parts = []
    for record in records:
        with unpacked([record]) as places:
            items = [item for item in find_items(places) if item.about.get("search")]
            own_page = record / "README.md"
            addresses = [(record.name, os.path.relpath(own_page, page.parent))] if own_page.exists() else []
            parts += [item_page(item, read_runs(run_folders(item)), addresses) for item in items]
    if not parts:
        raise ValueError(f"{', '.join(map(str, records))}: there is no table of raffed reproduce zoo/…")
    shown = " ".join(path.as_posix() for path in records)
    return "\n".join([HEAD.format(records=shown, page=page.as_posix()), *parts])


if __name__ == "__main__":
    sys.exit(main())
