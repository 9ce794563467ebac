"""Tables for people: as wide as their contents, with colour only on a terminal.

On a narrow one no word of a header is broken, nor a name or a number.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raffed.cli.messages import duration, few, percent
from raffed.results.runfile import read_run
from raffed.results.storage import named
from raffed.results.text import tell, visible, visible_lines

if TYPE_CHECKING:
    from raffed.runs.run import RunResult
    from raffed.runtime.api import RoundProfile

EMPTY = hashlib.sha256(b"").hexdigest()  # hash of the client states, if a method keeps none
COMMON = ("Data set", "Partition", "Seeds", "Rounds", "State")
WORDS = {"Method", "Data set", "Partition", "Scored", "State", "Comparable"}
SHORT = {
    "Aggregation, last %": "agg %",
    "mean last 10 %": "mean of 10 %",
    "Personalization, last %": "pers %",
    "MB up/round": "MB up",
    "MB down/round": "MB down",
}
NO_SCORE = "no client with a test part of its own was scored; --local-test 0.2 gives each one"
UNLIKE = "not comparable: "  # begins the reasons, as in raffed.analysis
NOTED = "yes; "  # begins what else differs
EDGE = 2  # columns that a table needs beside its cells
BETWEEN = 3  # columns between two cells
KEY = 30  # a longer word in the first column may be broken
WORD = 14  # a longer word in a column of text may be broken, such as an address
WIDE = 200  # columns assumed if no terminal limits them

PARTS = ("training", "sums", "messages", "scoring", "disk", "rest")
MOST_ROUNDS = 20  # lines of the table; with more rounds a line is the mean of several
NOTE = (
    "In seconds per round. training: the slowest actor's; messages: what the driver "
    "waits for its actors beyond their work; disk: rows, client states, checkpoints."
)


def console() -> Console:
    """Return the console of standard output. Lines in a file or a pipe are not wrapped to 80 columns."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE
    return Console(width=width, highlight=False)


def show(
    titles: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str | None = None, right: str = ""
) -> None:
    """Print a table. Cells are not read as markup.

    `right` names the columns that hold numbers, separated by |. On a terminal that has not room for all
    columns, the rest follows as a second table with the same first column.
    """
    screen, numbers = console(), right.split("|")
    safe = [[Text(visible(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows]
    names = [visible(name) for name in titles]
    for columns in fitted(names, [[cell.plain for cell in row] for row in safe], screen.width, numbers):
        table = _table(title, SIMPLE_HEAD)
        for at, width in columns:
            side: Literal["left", "right"] = "right" if titles[at] in numbers else "left"
            table.add_column(Text(names[at]), justify=side, overflow="fold", width=width)
        for row in safe:
            table.add_row(*(row[at] for at, _ in columns))
        screen.print(table)
        title = None


def _table(title: str | None, box: Box | None) -> Table:
    """Return an empty table. Its title is not read as markup, and a terminal does not obey it."""
    shown = None if title is None else Text(visible(title))
    return Table(title=shown, box=box, show_header=box is not None, title_justify="left", pad_edge=False)


def show_pairs(pairs: Iterable[tuple[str, str]], title: str | None = None) -> None:
    """Print names and values in two columns without headings."""
    table = _table(title, None)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(visible(name)), Text(visible_lines(value)))
    console().print(table)


def show_result(result: RunResult, brief: bool = False) -> None:
    """Print the end of a run: accuracies, bytes sent, duration, folder, and the hashes to compare runs by."""
    assert result.folder is not None
    about = read_run(result.folder)
    accuracies = {"aggregation": percent(result.accuracy), "personalization": percent(result.personalization)}
    time = duration(about.get("seconds", 0.0))
    if brief:
        tell("done: " + "  ".join(f"{name} {value}" for name, value in accuracies.items()) + f"  in {time}")
        return
    if math.isnan(result.personalization):
        accuracies["personalization"] += f" ({NO_SCORE})"
    up, down = traffic(result)
    early = f" (ended early: {result.ended_early})" if result.ended_early else ""
    pairs = [
        ("rounds", f"{about.get('rounds_done', 0)}{early}"),
        *([] if (best := result.best_round) is None else [("best round on validation data", f"{best}")]),
        *accuracies.items(),
        *_other_readings(result),
        *_more_values(result, about.get("metrics", [])),
        *([] if math.isnan(up) else [("MB per round", f"{up:.3f} up, {down:.3f} down")]),
        ("time", time),
        ("folder", named(result.folder)),
    ]
    kept = {name: value for name, value in result.hashes.items() if value != EMPTY}
    show_pairs([*pairs, *((f"{name} sha256", f"{value[:16]}…") for name, value in kept.items())])


def _other_readings(result: RunResult) -> list[tuple[str, str]]:
    """Return the accuracies as other papers read them: at the best round, and with every sample counted once.

    The best round is left out if it is the last one.
    """
    best, when = result.accuracy_best
    last, top, at = result.personalization_by_samples
    lines = []
    if best > result.accuracy:
        lines.append(("aggregation, best round", f"{percent(best)} (round {when}, chosen on the test set)"))
    if not math.isnan(last):
        higher = f", best {percent(top)} (round {at})" if top > last else ""
        lines.append(("personalization by samples", f"{percent(last)}{higher}"))
    return lines


def _more_values(result: RunResult, metrics: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Return the last values of clients that never trained and of the user's own metrics, as texts."""
    rows = result.to_pandas()
    rows = rows[rows["client"].isna() & rows["class"].isna()].astype({"model": str, "split": str})
    shown = []
    for metric in [{"name": "accuracy_unseen", "unit": "fraction"}, *metrics]:
        kept = rows[rows["metric"] == metric["name"]].sort_values("round", kind="stable")
        last = kept.drop_duplicates(["model", "split"], keep="last")
        for model, split, value in zip(last["model"], last["split"], last["value"], strict=True):
            unit = "" if metric["unit"] == "number" else f" {metric['unit']}"
            text = percent(value) if metric["unit"] == "fraction" else f"{value:.4g}{unit}"
            shown.append((f"{metric['name']}, {model} {split}", text))
    return shown


def traffic(result: RunResult) -> tuple[float, float]:
    """Return the 10^6 bytes that the method sends per round for all participants together, up and down.

    These are means over the rounds.
    """
    rows = result.to_pandas()
    rows = rows[rows["client"].isna() & (rows["model"] == "global")]
    kept = rows[(rows["split"] == "train") & (rows["metric"] == "loss")]
    if kept.empty:
        return 0.0, 0.0
    return float(kept["bytes_up"].mean()) / 1e6, float(kept["bytes_down"].mean()) / 1e6


def show_summary(path: str, runs: list[dict[str, str]]) -> None:
    """Print the table of a report, with what all runs share in its title, and where the report is."""
    shared = [name for name in COMMON if len({run[name] for run in runs}) == 1]
    about = [f"{name.lower()} {runs[0][name]}" for name in shared] if runs else []
    titles = [name for name in (runs[0] if runs else ()) if name not in shared]
    rows = [[_in_short(str(run[name])) for name in titles] for run in runs]
    words = [SHORT.get(name, name) for name in titles]
    numbers = [word for word, name in zip(words, titles, strict=True) if name not in WORDS]
    if runs:
        show(words, rows, title=", ".join(about) or None, right="|".join(numbers))
        tell("agg: global model, test set, last round; pers: clients' own models, own tests")
    _tell_reasons((run["Method"], str(run.get("Comparable", ""))) for run in runs)
    tell(f"report: {path}")


def _tell_reasons(cells: Iterable[tuple[str, str]]) -> None:
    """Print once why rows may not be compared, and each note, after the names of the rows that say so."""
    names_by_reason: dict[str, dict[str, None]] = {}
    for name, cell in cells:
        if cell.startswith((UNLIKE, NOTED)):
            names_by_reason.setdefault(cell, {})[name] = None
    for reason, names in names_by_reason.items():
        tell(f"{few([*names])}: {reason}")


def show_item(title: str, rows: Sequence[Mapping[str, str]], words: Collection[str]) -> None:
    """Print a table of a reproduction, and below it why rows may not be compared, each reason once.

    `words` names the columns that hold words.
    """
    cells = [[_in_short(cell) for cell in row.values()] for row in rows]
    show([*rows[0]], cells, title=title, right="|".join(rows[0].keys() - set(words)))
    _tell_reasons((" · ".join([*row.values()][:2]), cell) for row in rows for cell in row.values())


def _in_short(cell: str) -> str:
    """Return a cell without the reasons why a row may not be compared, and without notes.

    They are printed below the table.
    """
    if cell.startswith(NOTED):
        return "yes, with a note"
    return UNLIKE.rstrip(": ") if cell.startswith(UNLIKE) else cell


def show_differences(tables: Mapping[str, Sequence[Mapping[str, object]]], note: str) -> None:
    """Print paired differences, and a note about methods with too few seeds."""
    for title, rows in tables.items():
        cells = [[str(cell) for cell in row.values()] for row in rows]
        numbers = rows[0].keys() - {"Method", "Compared with", "Comparable"}
        show([*rows[0]], cells, title=title, right="|".join(numbers))
    if any("p (Holm)" in rows[0] for rows in tables.values()):
        tell("p (Holm): corrected for the number of methods in its table")
    if note:
        tell(f"no interval: {note}")


OK, ABSENT, DOUBTFUL, BROKEN = Text("✓", "green"), Text("·", "dim"), Text("!", "yellow"), Text("✗", "red")


def line(mark: Text, name: str, outcome: str, advice: str) -> Text:
    """Return a line such as `✓ name   outcome   advice`."""
    text = Text.assemble(mark, f" {name:<15} {visible_lines(outcome)}")
    if advice:
        text.append(f"  → {visible_lines(advice)}", "dim" if mark is OK else mark.style)
    return text


def fitted(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, numbers: Collection[str] = ()
) -> list[list[tuple[int, int]]]:
    """Return the tables into which a table is divided so that each fits a width.

    Args:
        titles: The headers.
        rows: The cells, as plain text.
        width: Columns of the terminal.
        numbers: Headers of columns that hold numbers, which are never broken.

    Returns:
        For each table its columns as (position, width of the cells). Each begins with the first column.
        A single column that does not fit stands in a table of its own, with the width that there is.
    """
    cells = [[title, *(row[at] for row in rows)] for at, title in enumerate(titles)]
    least = [_least(at, column, titles[at] in numbers) for at, column in enumerate(cells)]
    full = [max(cell_len(line) for text in column for line in text.split("\n")) for column in cells]
    groups: list[list[int]] = [[0]]
    for at in range(1, len(titles)):
        if len(groups[-1]) > 1 and _whole([least[column] for column in [*groups[-1], at]]) > width:
            groups.append([0])
        groups[-1].append(at)
    return [_widths(group, least, full, width) for group in groups]


def _least(at: int, column: Sequence[str], number: bool) -> int:
    """Return the width below which a word of the header, a name or a number would be broken."""
    header = _longest(column[0])
    longest = max((_longest(text) for text in column[1:]), default=0)
    return max(header, longest if number else min(longest, KEY if at == 0 else WORD))


def _longest(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + BETWEEN * (len(widths) - 1) + EDGE


def _widths(
    group: Sequence[int], least: Sequence[int], full: Sequence[int], width: int
) -> list[tuple[int, int]]:
    """Return the columns of one table with their widths: the least ones, and then what is left, in turn."""
    given = {at: least[at] for at in group}
    if (over := _whole(list(given.values())) - width) > 0:
        given[group[-1]] = max(given[group[-1]] - over, 1)
    left = width - _whole(list(given.values()))
    while left > 0 and (open_ := [at for at in group if given[at] < full[at]]):
        for at in open_[:left]:
            given[at] += 1
        left -= min(left, len(open_))
    return list(given.items())


def show_profile(method: str, rounds: Sequence[tuple[int, RoundProfile]]) -> None:
    """Print the table of a run's rounds."""
    titles = ("round", "seconds", *PARTS)
    show(titles, profile_lines(rounds), title=f"profile of {method}", right="|".join(titles))
    tell(NOTE)


def profile_lines(rounds: Sequence[tuple[int, RoundProfile]]) -> list[list[str]]:
    """Return the lines of the table: at most 20 of rounds, then their mean and each part's share of it.

    Args:
        rounds: Number and profile of each round, at least one. If there are more than 20, a line is the mean
            of several rounds that follow one another.
    """
    size = math.ceil(len(rounds) / MOST_ROUNDS)
    blocks = [rounds[start : start + size] for start in range(0, len(rounds), size)]
    ends = [dict.fromkeys((block[0][0], block[-1][0])) for block in blocks]  # one number, or first and last
    lines = [_line("-".join(map(str, end)), block) for end, block in zip(ends, blocks, strict=True)]
    if len(rounds) > 1:
        lines.append(_line("mean", rounds))
    means = _means(rounds)
    whole = sum(means) or 1.0
    return [*lines, ["share", "100 %", *(f"{100 * mean / whole:.0f} %" for mean in means)]]


def _line(name: str, block: Sequence[tuple[int, RoundProfile]]) -> list[str]:
    """Return a line whose numbers add up as they are printed."""
    parts = [round(mean, 3) for mean in _means(block)]
    return [name, f"{sum(parts):.3f}", *(f"{part:.3f}" for part in parts)]


def _means(block: Sequence[tuple[int, RoundProfile]]) -> list[float]:
    return [sum(seconds) / len(block) for seconds in zip(*(profile for _, profile in block), strict=True)]
