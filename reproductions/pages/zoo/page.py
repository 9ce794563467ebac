"""The page as Markdown: what gains, what does not, what it sends, and what is not separated."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from raffed.analysis.metrics.compare import LEVEL, best_of
from raffed.analysis.metrics.intervals import reported_interval
from raffed.analysis.render.cells import for_markdown
from raffed.analysis.render.page import sentence
from raffed.analysis.reproduction.item_runs import Reproduction, cell_at, measure_of
from raffed.analysis.reproduction.verdicts import seeds_in_words
from raffed.analysis.runs.load import Runs, section
from raffed.analysis.table import TextTable, as_markdown

from .cells import Records, details, linked, of_today
from .rows import (
    DIVERGED,
    TOO_FEW,
    Compared,
    RowCost,
    Scores,
    against,
    columns,
    cost,
    diverged,
    mean,
    scores,
    seen,
    trial_rounds,
    tried,
)

EVERYWHERE = "on every split"
MORE = 1.05  # times the baseline's bytes from which a row is named
EARLIER = ", by an earlier protocol\n\nTuned as told below. No command of today makes these runs again."
SCORED = {  # measures that only some rows have, in a few words
    "accuracy_last": "last round",
    "personal_last": "last round",
    "accuracy_clean_mean10": "without its server's images",
}


def item_page(item: Reproduction, runs: Runs, records: Records = (), docs: str = "") -> str:
    """Return the part of the page on one table.

    Args:
        item: The table, with a search.
        runs: Its runs.
        records: Name and address of the packed records that the runs come from.
        docs: What a link to a page in docs/ begins with: "" on a page there.
    """
    baseline = str(item.about["baseline"])
    names = columns(item)
    by_column = {name: scores(item, runs, name) for name in names}
    lost = {name: diverged(item, name) for name in names}
    compared = {name: against(by_column[name], baseline, lost[name]) for name in names}
    costs = {name: cost(item, runs, name) for name in names}
    parts = [
        f"## {item.title}{'' if of_today(item) else EARLIER}",
        _overview(baseline, {name: by_column[name] for name in names if by_column[name]}, compared),
        *_summary(by_column, compared, costs, baseline, docs, item.about["left_out"], lost),
        folded("How every row was tuned and compared", _protocol(item, by_column)),
        *(
            folded(
                f"{name}: differences, p, bytes, settings, and what is behind each number",
                f"{_column(item, name, by_column[name], compared[name], costs[name], lost[name])}\n\n"
                f"{details(item, runs, name, by_column[name], records)}",
            )
            for name in names
            if by_column[name]
        ),
        folded("What is left out, what to keep in mind, and trials that diverged", _left_out(item)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def folded(title: str, text: str) -> str:
    """Return a part of a page that a click on its title opens, or "" if there is no text."""
    opening = f'<details markdown="1">\n<summary>{for_markdown(title)}</summary>'
    return f"{opening}\n\n{text}\n\n</details>" if text else ""


def _overview(
    baseline: str, by_column: Mapping[str, Scores], compared: Mapping[str, Mapping[str, Compared]]
) -> str:
    """Return the table of all splits: each row's mean over seeds, and its verdict against the baseline."""

    def cell(row: str, name: str) -> str:
        if row not in by_column[name]:
            return "–"
        verdict = compared[name][row].verdict if row in compared[name] else ""
        shown = f", {verdict}" if verdict and verdict != "not separated" else ""
        return f"{_percent(by_column[name][row].values())}{shown}"

    where = {
        row: [mean(by_column[name][row]) for name in by_column if row in by_column[name]]
        for rows in by_column.values()
        for row in rows
    }
    ordered = sorted(where, key=lambda row: -statistics.fmean(where[row]))
    lines = [[row, *(cell(row, name) for name in by_column)] for row in ordered]
    if not lines:
        return ""
    head = "Accuracy in %, mean over seeds ± 95 % interval. A row without a word is not separated from"
    table: str = as_markdown(TextTable(["Method", *by_column], lines, frozenset({"Method"})))
    return f"{head} {baseline}.\n\n{table.strip()}"


def _protocol(item: Reproduction, by_column: Mapping[str, Scores]) -> str:
    search = section(item.about, "search")
    seeds = {len(values) for scores in by_column.values() for values in scores.values()}
    counts = " to ".join(str(count) for count in sorted({min(seeds), max(seeds)})) if seeds else "no"
    unit, note = (sentence(str(item.about[name])) for name in ("unit", "note"))
    rounds = trial_rounds(item)
    spent = f" Trials took {rounds:,} rounds so far." if rounds else ""
    paired = f"Differences to {item.about['baseline']} are paired by seed, with their 95 % t-interval"
    return (
        f"{unit} {note} Fresh seeds a row: {counts}.{spent} A setting's score is the mean validation "
        f"accuracy of the last {search['last']} rounds. {paired}; p is that of the paired t-test after "
        "Holm's correction over all rows of a table, and a row is *above* or *below* if it is under "
        f"{LEVEL}. The p beside it is Benjamini and Hochberg's: of the rows under {LEVEL} one in twenty is "
        "expected to be no different."
    )


def _summary(
    by_column: Mapping[str, Scores],
    compared: Mapping[str, Mapping[str, Compared]],
    costs: Mapping[str, Mapping[str, RowCost]],
    baseline: str,
    docs: str,
    left_out: Sequence[str],
    lost: Mapping[str, Mapping[str, int]],
) -> list[str]:
    """Return the lists that a reader quotes.

    `left_out` has a line "ROW, COLUMN: why" for each cell that was not run. `lost` counts the seeds of each
    column and row with which training diverged.
    """
    names = [name for name in by_column if compared[name]]
    if not names:
        return [f"No method has been compared with {baseline} yet."]
    lines = ["### In short"]
    for verdict, title in (
        ("above", f"Gain over {baseline}"),
        ("below", f"Fall below {baseline}"),
        ("not separated", f"Are not separated from {baseline}"),
        ("equal", f"Have the same numbers as {baseline}"),
        (DIVERGED, "Have no verdict, because some of the final runs behind them diverged"),
        (TOO_FEW, "Have no verdict, because they have too few seeds"),
    ):
        if verdict in (DIVERGED, TOO_FEW) and not _with(compared, verdict):
            continue
        lines += _listed(title, compared, names, verdict)
    for name in names:
        absent = {line.partition(f", {name}: ")[0] for line in left_out if f", {name}: " in line}
        lines.append(_best(name, by_column[name], len(absent - by_column[name].keys()), lost[name]))
    lines += _costly(costs, names, baseline, docs)
    return ["\n".join([lines[0], "", *lines[1:]])]


def _with(compared: Mapping[str, Mapping[str, Compared]], verdict: str) -> bool:
    """Return whether any row has this verdict."""
    return any(row.verdict == verdict for column in compared.values() for row in column.values())


def _listed(
    title: str, compared: Mapping[str, Mapping[str, Compared]], names: Sequence[str], verdict: str
) -> list[str]:
    where: dict[str, list[str]] = {}
    for name in names:
        for row, comparison in compared[name].items():
            if comparison.verdict == verdict:
                where.setdefault(row, []).append(name)
    if not where:
        return [f"- {title}: none."]
    groups: dict[str, list[str]] = {}
    for row, there in where.items():
        run = [name for name in names if row in compared[name]]
        groups.setdefault(where_it_holds(there, run, names), []).append(row)
    order = sorted(groups, key=lambda place: not place.startswith(EVERYWHERE))
    parts = [f"{', '.join(groups[place])} {place}" for place in order]
    return [f"- {title}: {'; '.join(parts)}."]


def where_it_holds(there: Sequence[str], run: Sequence[str], names: Sequence[str]) -> str:
    """Return on which splits a verdict holds: the splits `there` of those on which the row was run.

    A row that was not run on every split of the table is never said to have a verdict only there.
    """
    if len(names) > 1 and len(there) == len(names):
        return EVERYWHERE
    where = f"on {' and '.join(there)}"
    if len(run) < len(names):
        return f"{where} (not run on {' and '.join(name for name in names if name not in run)})"
    return f"{where} only" if len(names) > 1 else where


def _best(name: str, by_row: Scores, missing: int, lost: Mapping[str, int]) -> str:
    """Return which row is the best of those with all seeds, and which are not separated from it."""
    kept = {row: values for row, values in by_row.items() if not lost.get(row)} or by_row
    most = max(len(values) for values in kept.values())
    whole = {row: values for row, values in kept.items() if len(values) == most}
    top = best_of(whole)
    verdicts = {row: comparison.verdict for row, comparison in against(by_row, top, lost).items()}
    level = [row for row, verdict in verdicts.items() if verdict in ("not separated", "equal")]
    unknown = [row for row, verdict in verdicts.items() if verdict in (DIVERGED, TOO_FEW)]
    behind = f" Not separated from it: {', '.join(level)}." if level else ""
    if set(verdicts.values()) == {"below"}:
        behind = " All others are separated from it."
    behind += f" Not compared with it, because seeds are missing: {', '.join(unknown)}." if unknown else ""
    run = f" ({len(by_row)} of {len(by_row) + missing} rows are run)" if missing else ""
    return f"- On {name}{run}, {top} has the highest mean, {_percent(by_row[top].values())} %.{behind}"


def _costly(
    costs: Mapping[str, Mapping[str, RowCost]], names: Sequence[str], baseline: str, docs: str
) -> list[str]:
    more: dict[str, float] = {}
    for name in names:
        base = costs[name].get(baseline)
        for row, price in costs[name].items():
            if base is not None and row != baseline:
                more[row] = max(more.get(row, 0.0), (price.up + price.down) / (base.up + base.down))
    return [
        f"- Send at least {MORE} times {baseline}'s bytes: {_above(more, MORE)}.",
        f"- [The cost of methods]({docs}cost.md) says what a round takes.",
    ]


def _above(ratios: Mapping[str, float], least: float) -> str:
    """Return the rows whose ratio is at least this, the largest first, or "none"."""
    rows = [row for row in ratios if ratios[row] >= least]
    return (
        ", ".join(f"{row} ({ratios[row]:.1f}×)" for row in sorted(rows, key=lambda row: -ratios[row]))
        or "none"
    )


def _column(
    item: Reproduction,
    name: str,
    by_row: Scores,
    compared: Mapping[str, Compared],
    costs: Mapping[str, RowCost],
    lost: Mapping[str, int],
) -> str:
    baseline = str(item.about["baseline"])
    trials = tried(item)
    titles = ["Method", "Accuracy, %", "Seeds", f"Difference to {baseline}", "p (Holm)", "p (BH)", "Verdict"]
    titles += ["MB up", "MB down", "Setting", "Scored"]
    lines = []
    ordered = sorted(by_row, key=lambda row: -mean(by_row[row]))
    for row in ordered:
        comparison, price = compared.get(row), costs[row]
        setting = str(trials.get((row, name), {}).get("chosen") or "–")
        lines.append(
            [
                row,
                _percent(by_row[row].values()),
                seeds_in_words(len(by_row[row]), lost.get(row, 0)),
                "–" if comparison is None else _signed(comparison),
                "–" if comparison is None else _p(comparison.p),
                "–" if comparison is None else _p(comparison.p_found),
                comparison.verdict if comparison is not None else "baseline" if row == baseline else "–",
                f"{price.up:.2f}",
                f"{price.down:.2f}",
                setting,
                _scored(item, row, name),
            ]
        )
    table = TextTable(titles, lines, frozenset({"Method", "Verdict", "Setting", "Scored"}))
    return f"### {name}\n\n{_power(compared)}{linked(item, name, ordered, as_markdown(table).strip())}"


def _scored(item: Reproduction, row: str, column: str) -> str:
    """Return how a row's number is read, if not as the others'."""
    cell = cell_at(item, (row, column))
    measure = "" if cell is None else measure_of(item, cell)
    return "" if measure == item.about["measure"] else SCORED.get(measure, measure)


def _power(compared: Mapping[str, Compared]) -> str:
    """Return which differences the table can see, from the spread of the paired differences."""
    points = seen(compared)
    if not points:
        return ""
    most = max(comparison.difference.seeds for comparison in compared.values())
    return (
        f"{most} seeds see a difference of {statistics.median(points):.1f} points: in the median over the "
        f"rows ({points[0]:.1f} to {points[-1]:.1f}), a paired t-test at {LEVEL} finds one of this size with "
        "a probability of 80 %, before the correction for the number of rows. A row that is not separated "
        "may be better or worse by as much.\n\n"
    )


def _left_out(item: Reproduction) -> str:
    search = section(item.about, "search")
    lines = [f"- {entry['row']}: {entry['why']}." for entry in search.get("excluded", [])]
    remarks = [f"- {entry['row']}: {entry['what']}." for entry in search.get("remarks", [])]
    diverged = Counter(
        f"{entry['row']} on {entry['column']}, {trial['setting']}"
        for entry in search.get("rows", [])
        for trial in entry["trials"]
        if trial["state"] == "diverged"
    )
    lost = [f"- {what}{f', with {count} seeds' if count > 1 else ''}." for what, count in diverged.items()]
    told = [str(text) for text in item.about["left_out"]]
    ended = [f"- {text}." for text in told if ": diverged" in text]
    missing = [f"- {text}." for text in told if ": diverged" not in text]
    titles = (
        *("Not in this table", "To be kept in mind", "Trials that diverged"),
        *("Final runs that diverged", "Not finished"),
    )
    parts = zip(titles, (lines, remarks, lost, ended, missing), strict=True)
    return "\n\n".join(f"### {title}\n\n" + "\n".join(bullets) for title, bullets in parts if bullets)


def _percent(values: Iterable[float]) -> str:
    known = [100 * value for value in values]
    half = reported_interval(known)
    text = f"{sum(known) / len(known):.2f}"
    return text if math.isnan(half) else f"{text} ± {half:.2f}"


def _signed(comparison: Compared) -> str:
    text = f"{comparison.difference.mean:+.2f}".replace("-", "−")
    return text if math.isnan(comparison.p) else f"{text} ± {comparison.difference.half:.2f}"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else ("< 0.001" if value < 0.001 else f"{value:.3f}")
