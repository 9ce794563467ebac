"""What a table says first: the differences to its baseline, ours beside the printed ones, and their order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from statistics import median

from ..runs.load import Runs
from ..table import TextTable
from .item_runs import Reproduction
from .null_rate import agreement_of
from .numbers import shown
from .table_order import table_order
from .verdicts import Line, column_name, digits_of, result_lines, verdict

LEAST_ROWS = 3  # of which there is an order to compare
MOST_NAMED = 4  # columns whose rank correlations are named one by one
CORRELATION = "Rank correlation with the printed order"


def difference_matrix(item: Reproduction, runs: Runs) -> TextTable | None:
    """Return method × column with our difference to the baseline, paired by seed, over the printed one.

    The last row has the rank correlations. None where there is no such pair, or the matrix of the item has
    them already, as at proxy scale.
    """
    lines = {(line.row, line.column): line for line in result_lines(item, runs)}
    both = {place for place, line in lines.items() if line.gains and not math.isnan(line.printed_gain)}
    if item.about["scale"] != "full" or not both:
        return None
    rows, columns = table_order(item)
    columns = [column for column in columns if any((row, column) in both for row in rows)]
    cells = [
        [row, *(_pair(item, lines[row, column]) if (row, column) in both else "–" for column in columns)]
        for row in rows
        if any((row, column) in both for column in columns)
    ]
    known = rank_correlations(lines)
    cells.append([CORRELATION, *(f"{known[column]:.2f}" if column in known else "–" for column in columns)])
    titles = ["Method", *(column_name(item, column) for column in columns)]
    return TextTable(
        titles, [[cell.replace("-", "−") for cell in row] for row in cells], frozenset({"Method"})
    )


def _pair(item: Reproduction, line: Line) -> str:
    digits = digits_of(item, line)
    return f"{shown(line.gains, digits, sign=True)} / {shown([line.printed_gain], digits, sign=True)}"


def rank_correlations(lines: Mapping[tuple[str, str], Line]) -> dict[str, float]:
    """Return Spearman's correlation of the printed numbers and our means for each column.

    Columns with fewer than three rows of both, or whose numbers are all alike, are left out, and so are cells
    that are no targets, no test or not final.
    """
    from scipy.stats import spearmanr

    pairs: dict[str, list[tuple[float, float]]] = {}
    for line in lines.values():
        final = line.target and not line.no_test and not line.unsettled
        if final and math.isfinite(line.printed) and math.isfinite(line.mean):
            pairs.setdefault(line.column, []).append((line.printed, line.mean))
    correlations = {}
    for column, numbers in pairs.items():
        printed, ours = zip(*numbers, strict=True)
        if len(numbers) >= LEAST_ROWS and len(set(printed)) > 1 and len(set(ours)) > 1:
            correlations[column] = float(spearmanr(printed, ours).statistic)
    return correlations


def first_sentence(item: Reproduction, runs: Runs) -> str:
    """Return what a table shows, in words made from its numbers; empty if nothing is compared.

    Differences to the baseline come first, then the order of the rows, then the levels with their null rate.
    """
    about = item.about
    if about["scale"] == "smoke":
        return ""
    lines = {(line.row, line.column): line for line in result_lines(item, runs)}
    words = Counter(verdict(line, "proxy", float(about["margin"])) for line in lines.values())
    said = [
        _signs(words, str(about["baseline"]), f"{about['margin']:g}"),
        _orders(rank_correlations(lines)),
        agreement_of(item, runs).sentence(),
    ]
    return " ".join(f"{part}." for part in said if part)


def _signs(words: Mapping[str, int], baseline: str, margin: str) -> str:
    counts = {
        "with the same sign here": words.get("same order", 0),
        "with the other sign": words.get("opposite order", 0),
        "not separated from none": words.get("not separated", 0),
        "with too few seeds": words.get("too few seeds", 0),
    }
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    start = f"Of {sum(counts.values())} printed differences to {baseline} that are at least {margin}"
    return f"{start}: {told}" if told else ""


def _orders(known: Mapping[str, float]) -> str:
    if not known:
        return ""
    start = "The rank correlation of the printed order and ours is"
    if len(known) > MOST_NAMED:
        low, high = min(known.values()), max(known.values())
        told = (
            f"{low:.2f} to {high:.2f} in {len(known)} columns, with the median {median(known.values()):.2f}"
        )
    else:
        told = ", ".join(f"{value:.2f} in {column}" for column, value in known.items())
    return f"{start} {told}".replace("-", "−")
