"""Write docs/checker_results.md: `python -m reproductions.pages.checker_page RECORDS... --out PAGE`.

It has the tables of other people that were run, with verdicts, seeds and machine. The pictures lie
beside the page. The prose of a table is a file of its own, so that it stays when the page is written anew.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from raffed.analysis.figures.theme import in_both_schemes, svg
from raffed.analysis.heading import COMMIT, NAMED
from raffed.analysis.item_tables import item_markdown
from raffed.analysis.render.cells import for_markdown
from raffed.analysis.report import find_items
from raffed.analysis.reproduction.claims import claim_counts
from raffed.analysis.reproduction.differences_first import first_sentence
from raffed.analysis.reproduction.filled import filled, verdict_counts
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.reproduction.printed_view import printed_view
from raffed.analysis.runs.files import JsonObject, read_object
from raffed.analysis.runs.load import Runs, read_runs, section
from raffed.analysis.table import TextTable, as_markdown

from raffed.results.storage import unpacked

from . import write_pages
from .zoo.page import folded

PROSE = Path("reproductions") / "pages" / "prose"  # below the root of the repository
RUN_FILE = "run.json"
HEAD = """# Other people's tables: what came out

`python -m reproductions.pages.checker_page {records} --out {page}`
made this page from records of `raffed reproduce checker/…`. [The page on the tables](checker.md) says what
each of them is, how a number is judged, and what is known to be wrong about it. The text below a heading is a
file in `reproductions/pages/prose/`, which is written by hand; its numbers are filled in from the records.

```sh
raffed reproduce checker/lr-mnist --scale full --out checker --execution serial
raffed reproduce checker/lr-mnist --scale full --out checker --tables
python -m reproductions.pages.pack_records checker --out reproductions/records/checker --results
python -m reproductions.pages.checker_page reproductions/records/checker --out docs/checker_results.md
```

Only what was run is here. ± is the half width of a 95 % interval over seeds. Beside each count stands how
many cells agree with FedAvg's runs in their place.
"""
UNWRITTEN = "Nothing was written about this table yet. The file would be `reproductions/pages/prose/{file}`."


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and its pictures, and return the exit code."""
    return write_pages("checker_page", written, argv)


def written(records: Sequence[Path], page: Path, prose: Path = PROSE) -> dict[Path, str]:
    """Return file → text of the page and its pictures.

    Args:
        records: Folders with packed records, or with runs.
        page: Where the page will lie.
        prose: Folder with a file PAPER-NAME.md for each table about which something was written.

    Raises:
        ValueError: There is no table that other people printed.
    """
    lines, parts = [], []
    files: dict[Path, str] = {}
    with unpacked(records) as places:
        for item in find_items(places):
            if not item.about.get("published") or item.about["scale"] == "smoke":
                continue
            runs = read_runs(run_folders(item))
            if runs.runs.empty:
                continue
            lines.append(_line(item, runs))
            drawn = printed_view(item, runs).figures
            name = f"{item.about['paper']}-{item.about['name']}-{item.about['scale']}.svg" if drawn else ""
            for picture in drawn:
                files[page.parent / name] = in_both_schemes(svg(picture.figure))
            parts.append(_part(item, runs, prose, name))
    if not lines:
        raise ValueError(f"{', '.join(map(str, records))}: there is no table of raffed reproduce checker/…")
    titles = ["Table", "Scale", "Cells", "Claims", "Runs", "Seeds"]
    overview = as_markdown(
        TextTable(titles, lines, frozenset({"Table", "Scale", "Cells", "Claims", "Seeds"}))
    )
    shown = " ".join(path.as_posix() for path in records)
    return {page: "\n".join([HEAD.format(records=shown, page=page.as_posix()), overview, *parts]), **files}


def _line(item: Reproduction, runs: Runs) -> list[str]:
    """Return a row of the overview."""
    files = _files(item)
    cells = verdict_counts(item, runs)
    claims = claim_counts(item, runs).partition(": ")[2] or "–"
    return [_key(item), item.about["scale"], cells, claims, str(len(files)), ", ".join(_seeds(files))]


def _part(item: Reproduction, runs: Runs, prose: Path, picture: str) -> str:
    """Return the part of the page on one table.

    What its numbers say, prose, picture, tables, and how the runs were made.
    """
    name = f"{item.about['paper']}-{item.about['name']}.md"
    said = (prose / name).read_text(encoding="utf-8").strip() if (prose / name).exists() else ""
    said = filled(said, item, runs)
    title, _, tables = item_markdown(item, runs).partition("\n\n")
    drawn = f"![Printed and ours, cell by cell]({picture})\n\n" if picture else ""
    text = said or UNWRITTEN.format(file=name)
    first = for_markdown(first_sentence(item, runs))
    opening = f"{first}\n\n{text}" if first else text
    rest = tables.removeprefix(first).strip()
    behind = folded("Tables, claims, what is printed, and how the runs were made", f"{rest}\n\n{_made(item)}")
    return f"## {title}\n\n{opening}\n\n{drawn}{behind}\n"


def _made(item: Reproduction) -> str:
    files, scale = _files(item), item.about["scale"]
    ways = _each(_way(file) for file in files)
    named = sorted({str(file.get("commit") or "unknown")[:COMMIT] for file in files})
    commits = ", ".join(named) if len(named) <= NAMED else f"{len(named)} of them"
    seeds = _seeds(files)
    again = f"raffed reproduce {_key(item)} --scale {scale} --seeds {len(seeds)}"
    again += " --numerics portable" * all(map(_portable, files))
    return (
        f"{len(files)} runs with the seeds {', '.join(seeds)}: {ways}. Commits of raffed: {commits}. "
        f"The whole table again:\n\n```sh\n{again} --out checker --execution serial\n```"
    )


def _portable(file: JsonObject) -> bool:
    """Return whether every machine computes the bits of a run."""
    return bool(section(section(file, "config"), "numerics").get("bits") == "portable")


def _way(file: JsonObject) -> str:
    """Return on what a run was computed, such as `AMD EPYC, one client at a time`."""
    hardware, config = section(file, "hardware"), section(file, "config")
    cohort = int(section(config, "numerics").get("cohort", 0))
    card = hardware.get("gpu")
    name = (
        ", ".join(card) if isinstance(card, list) else card or hardware.get("processor") or "unknown machine"
    )
    bits = ", portable bits" * _portable(file)
    return f"{name}, {f'in stacks of {cohort}' if cohort > 1 else 'one client at a time'}{bits}"


def _files(item: Reproduction) -> list[JsonObject]:
    return [read_object(folder / RUN_FILE) for folder in run_folders(item) if (folder / RUN_FILE).exists()]


def _key(item: Reproduction) -> str:
    return f"{item.about['paper']}/{item.about['name']}"


def _seeds(files: Iterable[JsonObject]) -> list[str]:
    return [str(seed) for seed in sorted({int(section(file, "config")["seed"]) for file in files})]


def _each(texts: Iterable[str]) -> str:
    """Return each text once with its number."""
    counts = Counter(texts)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{text} ({count})" for text, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
