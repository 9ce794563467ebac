"""docs/checker.md, made from the code: the tables that other people printed, and what each of them needs.

`python -m tests.docs.checker` writes it.
"""

from __future__ import annotations

from pathlib import Path

from raffed.reproductions.checker.items import ITEMS
from raffed.reproductions.pages.zoo.page import folded

from raffed.tables.items import Item

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checker.md"
HEAD = """# Other people's tables, checked

`python -m tests.docs.checker` made this page from the code. raffed's own papers are under
[Reproduce a paper's table](reproducing.md). The items `checker/…` are tables of other authors and programs.
Each is a file in `reproductions/checker/`, with data, partition, network, protocol, margin and claims.
`analysis/printed/independent.csv` has the printed numbers.

```sh
raffed reproduce --list                                        # checker/… are these tables
raffed reproduce checker/fedvls-mnist --scale smoke            # does every cell run
raffed reproduce checker/fedvls-mnist --scale full --plan      # what will run, what it needs, what is absent
raffed reproduce checker/fedvls-mnist --scale full --out checker --execution serial --only "Dir 0.1" \\
    --only fedavg,fedrs --budget 80m --keep-checkpoints 1
raffed reproduce checker/fedvls-mnist --scale full --out checker --tables
python -m reproductions.pages.pack_records checker --out reproductions/records/checker --results
python -m reproductions.pages.checker_page reproductions/records/checker --out docs/checker_results.md
```

[What came out](checker_results.md) is a page of its own. A part of a table is chosen by `--only`, and the
same command goes on where it stopped. `full` is the printed protocol.

## How a number is judged

By [the same rule](reproducing.md#how-a-number-is-judged) as the papers' tables: the whole interval of the
difference to the print lies within the table's margin, or outside of it, or there are too few seeds. A cell
has no verdict if training diverged with one of its seeds, nor a difference if with one of the baseline's: the
mean over the others is that of the lucky ones.

Most published deviations are not noise of partitions. Flower's niid_bench, FedVLS and PFLlib fix the seed of
the partition, so the items repeat their seeds on that same partition.

## All of them

"""


def overview(item: Item) -> str:
    """Return a row of the overview."""
    target = sum(bool(one.target and one.printed) for one in item.cells)
    cells = f"{len(item.cells)} ({target} with a target)"
    about = item.published
    return f"| [`{item.key}`](#{anchor(item)}) | {item.title} | {cells} | {about.needs} | {about.cost} |"


def anchor(item: Item) -> str:
    """Return the anchor of an item's heading."""
    return item.key.replace("/", "")


def section(item: Item) -> str:
    """Return the part of the page on one table."""
    about = item.published
    rows = dict.fromkeys(one.row for one in item.cells)
    columns = dict.fromkeys(one.column for one in item.cells)
    lines = [
        f"## {item.key}",
        "",
        f"{item.title}. Source: {about.source}. Printed is: {about.protocol}.",
        "",
        f"- Rows: {', '.join(rows)}.",
        f"- Columns: {', '.join(columns)}.",
        f"- Margin: {item.margin:g} points.",
        f"- Needs {about.needs}. {about.cost[:1].upper()}{about.cost[1:]}.",
        f"- Command: `raffed reproduce {item.key} --scale full --out checker --execution serial`",
        *(f"- Not to be had here: {what}." for what in about.lacks),
        *(f"- Note: {item.note}." for _ in range(bool(item.note))),
        *(f"- Claimed: {claim.text}." for claim in item.claims),
        *(f"- Defect: {what}" for what in about.defects),
        *(f"- Absent, {row}: {why}." for row, why in about.absent.items()),
    ]
    above, below = "\n".join(lines[:4]), "\n".join(lines[4:])
    return f"{above}\n{folded('Rows, columns, command, claims and defects', below)}\n"


def page() -> str:
    """Return the whole page."""
    table = ["| item | what | cells | needs | cost |", "|---|---|---|---|---|", *map(overview, ITEMS)]
    return HEAD + "\n".join(table) + "\n\n" + "\n".join(map(section, ITEMS))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
