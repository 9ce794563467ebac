"""Read the accuracy of each method by every protocol: of which model, on which test, after which round.

Papers print one of these numbers. All of them are read from the same rows here, so a table shows how far the
order of methods depends on the protocol.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from raffed.results import metrics as kinds

from ..runs.comparable import classes, marked
from ..runs.groups import Group
from ..runs.load import Runs, by_run
from ..table import TextTable, without_blank

TEN = 10  # rounds of the mean of the best
READINGS = ("last", "best", "ten best")
MEASURED = {"last": "last", "best": "best", "ten best": "mean"}  # words by which rounds are compared
OF_CLIENTS = {  # whose answers on the local test parts; the words begin the names of measures
    "before": ("downloaded", kinds.DOWNLOADED_ACCURACY),
    "after": ("local", kinds.LOCAL_ACCURACY),
    "own": ("personal", kinds.PERSONAL_ACCURACY),
}
METHOD, RANKS = "Method", "Ranks"


class ProtocolColumn(NamedTuple):
    """One protocol: its title, the numbers of runs by name, and the measure by whose rules it is compared."""

    title: str
    values: pd.Series[float]
    measure: str


def protocol_columns(runs: Runs) -> list[ProtocolColumn]:
    """Return all protocols that any of these runs can be read by. The values are fractions in [0, 1]."""
    return runs.once("protocols", lambda: _columns(runs))


def _columns(runs: Runs) -> list[ProtocolColumn]:
    sources = {"server": ("accuracy", runs.series(kinds.TEST_ACCURACY))}
    together = runs.by_samples.sort_values("round", kind="stable")
    for title, (word, metric) in OF_CLIENTS.items():
        pooled = together[(together["model"] == metric.model) & (together["metric"] == metric.name)]
        sources |= {f"{title}, mean": (word, runs.series(metric)), f"{title}, pooled": (word, pooled)}
    columns = []
    for title, (word, rows) in sources.items():
        values = by_run(rows.dropna(subset=["value"]))["value"]
        read = {
            "last": values.last(),
            "best": values.max(),
            "ten best": values.apply(lambda curve: curve.nlargest(TEN).mean()),
        }
        columns += [
            ProtocolColumn(f"{title}, {name} %", read[name].astype(float), f"{word}_{MEASURED[name]}")
            for name in READINGS
        ]
    return [column for column in columns if len(column.values)]


class Protocols(NamedTuple):
    """The table of a task, and a sentence about which method is first by how many protocols."""

    table: TextTable
    first: str


def protocol_table(runs: Runs, members: Sequence[Group]) -> Protocols | None:
    """Return for each method its mean over seeds by every protocol, with its rank among comparable methods.

    Numbers are in per cent, and ranks are of the numbers as shown. RANKS has the least and the largest rank
    of a method. Columns of the clients' own models are left out where these are the trained ones. None if
    nothing is measured.
    """
    columns = _distinct(protocol_columns(runs), members)
    if not columns:
        return None
    cells, ranks, first = dict[tuple[str, str], str](), dict[str, list[int]](), Counter[str]()
    for column in columns:
        means = {group.label: _mean(column.values, group) for group in members}
        rivals = [group.label for group in classes(runs, members, measure=column.measure)[0]]
        compared = {label: means[label] for label in rivals if not math.isnan(means[label])}
        for label, mean in means.items():
            shown = "–" if math.isnan(mean) else f"{mean:.2f}"
            if label in compared and len(compared) > 1:
                rank = 1 + sum(other > mean for other in compared.values())
                ranks.setdefault(label, []).append(rank)
                first[label] += rank == 1
                shown += f" ({rank})"
            cells[label, column.title] = shown
    titles = [METHOD, RANKS, *(column.title for column in columns)]
    rows = [
        [marked(runs, group), _span(ranks.get(group.label, [])), *(cells[group.label, t] for t in titles[2:])]
        for group in members
    ]
    table = without_blank(TextTable(titles, rows, frozenset({METHOD})), titles[1:])
    return Protocols(table, _told(first, len(columns)))


def _distinct(columns: Sequence[ProtocolColumn], members: Sequence[Group]) -> list[ProtocolColumn]:
    """Return the protocols without those of the clients' own models, where these are the trained models."""
    names = [name for group in members for name in group.used]
    known = {column.title: column.values.reindex(names) for column in columns}
    trained = {title: title.replace("own", "after", 1) for title in known if title.startswith("own")}
    same = all(other in known and known[title].equals(known[other]) for title, other in trained.items())
    return [column for column in columns if not (same and column.title in trained)]


def _mean(values: pd.Series[float], group: Group) -> float:
    """Return the mean over the seeds of a group in per cent, in the two digits that are shown."""
    return round(100 * float(values.reindex(list(group.used)).mean()), 2)


def _span(ranks: Sequence[int]) -> str:
    if not ranks:
        return "–"
    low, high = min(ranks), max(ranks)
    return str(low) if low == high else f"{low}–{high}"


def _told(first: Counter[str], count: int) -> str:
    """Return a sentence about who is first; "" without a rank."""
    named = [f"{label} by {times}" for label, times in first.most_common() if times]
    return f"First of {count} protocols: {', '.join(named)}." if named else ""
