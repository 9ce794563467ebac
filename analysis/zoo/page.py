"""The page as Markdown: what gains, what does not, what it costs, and what is not separated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..metrics.compare import LEVEL, Ranking, best_of
from ..metrics.intervals import reported_interval
from ..metrics.rank_tests import friedman, holm_ranking
from ..render.page import sentence
from ..reproduction.item_runs import Reproduction
from ..reproduction.verdicts import seeds_in_words
from ..runs.load import Runs, section
from ..table import TextTable, as_markdown
from .cells import Records, details, linked
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
    tried,
)

SLOW = 1.5  # times the seconds of the baseline's round from which a row is named as costly
EVERYWHERE = "on every split"
MORE = 1.05  # times its bytes


def item_page(
    item: Reproduction, runs: Runs, diagram: str = "", records: Records = (), docs: str = ""
) -> str:
    """Return the part of the page on one table.

    Args:
        item: The table, with a search.
        runs: Its runs.
        diagram: Address of the picture of the ranks, or "".
        records: Name and address of the packed records that the runs come from.
        docs: What a link to a page in docs/ begins with: "" on a page there.
    """
    baseline = str(item.about["baseline"])
    names = columns(item)
    found = {name: scores(item, runs, name) for name in names}
    lost = {name: diverged(item, name) for name in names}
    compared = {name: against(found[name], baseline, lost[name]) for name in names}
    costs = {name: cost(item, runs, name) for name in names}
    parts = [
        f"## {item.title}",
        _protocol(item, found),
        *_summary(found, compared, costs, baseline, docs, item.about["left_out"], lost),
        *(
            f"{_column(item, name, found[name], compared[name], costs[name], lost[name])}\n\n"
            f"{details(item, runs, name, found[name], records)}"
            for name in names
            if found[name]
        ),
        _ranks(found, diagram, baseline),
        _left_out(item),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _protocol(item: Reproduction, found: Mapping[str, Scores]) -> str:
    search = section(item.about, "search")
    seeds = {len(values) for scores in found.values() for values in scores.values()}
    counts = " to ".join(str(one) for one in sorted({min(seeds), max(seeds)})) if seeds else "no"
    unit, note = (sentence(str(item.about[name])) for name in ("unit", "note"))
    return (
        f"{unit} {note} Fresh seeds a row: "
        f"{counts}. A setting's score is the mean validation accuracy of the last {search['last']} rounds. "
        f"Differences to {item.about['baseline']} are paired by seed, with their 95 % t-interval; p is that "
        f"of the paired t-test after Holm's correction over all rows of a table, and a row is *above* or "
        f"*below* if it is under {LEVEL}."
    )


def _summary(
    found: Mapping[str, Scores],
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
    names = [name for name in found if compared[name]]
    if not names:
        return ["There are no runs yet."]
    lines = ["### In short"]
    for verdict, title in (
        ("above", f"Gain over {baseline}"),
        ("below", f"Fall below {baseline}"),
        ("not separated", f"Are not separated from {baseline}"),
        ("equal", f"Have the same numbers as {baseline}"),
        (DIVERGED, "Have no verdict, because some of their final runs diverged"),
        (TOO_FEW, "Have no verdict, because they have too few seeds"),
    ):
        if verdict in (DIVERGED, TOO_FEW) and not _with(compared, verdict):
            continue
        lines += _listed(title, compared, names, verdict)
    for name in names:
        absent = {line.partition(f", {name}: ")[0] for line in left_out if f", {name}: " in line}
        lines.append(_best(name, found[name], len(absent - found[name].keys()), lost[name]))
    lines += _costly(costs, names, baseline, docs)
    return ["\n".join([lines[0], "", *lines[1:]])]


def _with(compared: Mapping[str, Mapping[str, Compared]], verdict: str) -> bool:
    """Return whether any row has this verdict."""
    return any(one.verdict == verdict for column in compared.values() for one in column.values())


def _listed(
    title: str, compared: Mapping[str, Mapping[str, Compared]], names: Sequence[str], verdict: str
) -> list[str]:
    where: dict[str, list[str]] = {}
    for name in names:
        for row, one in compared[name].items():
            if one.verdict == verdict:
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


def _best(name: str, found: Scores, missing: int, lost: Mapping[str, int]) -> str:
    """Return which row is the best of those with all seeds, and which are not separated from it."""
    kept = {row: values for row, values in found.items() if not lost.get(row)} or found
    most = max(len(values) for values in kept.values())
    whole = {row: values for row, values in kept.items() if len(values) == most}
    top = best_of(whole)
    verdicts = {row: one.verdict for row, one in against(found, top, lost).items()}
    level = [row for row, verdict in verdicts.items() if verdict in ("not separated", "equal")]
    unknown = [row for row, verdict in verdicts.items() if verdict in (DIVERGED, TOO_FEW)]
    behind = f" Not separated from it: {', '.join(level)}." if level else ""
    if set(verdicts.values()) == {"below"}:
        behind = " All others are separated from it."
    behind += f" Not compared with it, because seeds are missing: {', '.join(unknown)}." if unknown else ""
    run = f" ({len(found)} of {len(found) + missing} rows are run)" if missing else ""
    return f"- On {name}{run}, {top} has the highest mean, {_percent(found[top].values())} %.{behind}"


def _costly(
    costs: Mapping[str, Mapping[str, RowCost]], names: Sequence[str], baseline: str, docs: str
) -> list[str]:
    times: dict[str, float] = {}
    more: dict[str, float] = {}
    for name in names:
        base = costs[name].get(baseline)
        for row, one in costs[name].items():
            if base is not None and row != baseline:
                times[row] = max(times.get(row, 0.0), one.seconds / base.seconds)
                more[row] = max(more.get(row, 0.0), (one.up + one.down) / (base.up + base.down))
    slow, wide = _above(times, SLOW), _above(more, MORE)
    return [
        f"- Take at least {SLOW} times the seconds of {baseline}'s round: {slow}.",
        "- Seconds are wrong by several times if other work ran meanwhile, as it did for raffed's own "
        f"records. [The cost of methods]({docs}cost.md) was measured in turns.",
        f"- Send at least {MORE} times its bytes: {wide}.",
    ]


def _above(ratios: Mapping[str, float], least: float) -> str:
    """Return the rows whose ratio is at least this, the largest first, or "none"."""
    found = [row for row in ratios if ratios[row] >= least]
    return (
        ", ".join(f"{row} ({ratios[row]:.1f}×)" for row in sorted(found, key=lambda row: -ratios[row]))
        or "none"
    )


def _column(
    item: Reproduction,
    name: str,
    found: Scores,
    compared: Mapping[str, Compared],
    costs: Mapping[str, RowCost],
    lost: Mapping[str, int],
) -> str:
    baseline = str(item.about["baseline"])
    trials = tried(item)
    titles = ["Method", "Accuracy, %", "Seeds", f"Difference to {baseline}", "p (Holm)", "Verdict"]
    titles += ["s/round, ratio", "MB up", "MB down", "Setting"]
    base = costs.get(baseline)
    lines = []
    ordered = sorted(found, key=lambda one: -mean(found[one]))
    for row in ordered:
        one, price = compared.get(row), costs[row]
        setting = str(trials.get((row, name), {}).get("chosen") or "–")
        lines.append(
            [
                row,
                _percent(found[row].values()),
                seeds_in_words(len(found[row]), lost.get(row, 0)),
                "–" if one is None else _signed(one),
                "–" if one is None else _p(one.p),
                "baseline" if one is None else one.verdict,
                "–" if base is None else f"{price.seconds / base.seconds:.2f}",
                f"{price.up:.2f}",
                f"{price.down:.2f}",
                setting,
            ]
        )
    table = TextTable(titles, lines, frozenset({"Method", "Verdict", "Setting"}))
    return f"### {name}\n\n{linked(item, name, ordered, as_markdown(table).strip())}"


def _ranks(found: Mapping[str, Scores], diagram: str, baseline: str) -> str:
    """Return the paragraph on ranks over the splits and seeds, each of which is a block."""
    ranking = ranks_of(found)
    if ranking is None:
        return ""
    p = friedman(ranking.ranks, ranking.tasks)
    ordered = sorted(ranking.ranks.items(), key=lambda one: one[1])
    counted = ranked_columns(found)
    text = (
        f"### Ranks\n\nMean ranks over {ranking.tasks} blocks of {' and '.join(counted)}; a block is one "
        f"seed on one split, 1 is best. Friedman's test has p {'' if p < 0.001 else '= '}{_p(p)}. "
        f"Differences of more than {ranking.difference:.2f} are separated at {LEVEL} after Holm's "
        f"correction over all pairs. Ranks depend on which methods are in the table, and the seeds of a "
        f"split share one data set, so the differences to {baseline} above come first.\n\n"
    )
    text += ", ".join(f"{row} {rank:.2f}" for row, rank in ordered) + "."
    if missing := [name for name in found if name not in counted and found[name]]:
        text += f" Without {' and '.join(missing)}, of which some rows are not finished."
    if unfinished := _unfinished(_blocks(found)):
        text += (
            f" Without ranks, because some of their seeds diverged or are missing: {', '.join(unfinished)}."
        )
    return text + (f"\n\n![Critical-difference diagram]({diagram})" if diagram else "")


def ranks_of(found: Mapping[str, Scores]) -> Ranking | None:
    """Return the ranks over the columns of `ranked_columns` and all seeds, of the rows that have all of them.

    A row whose seeds are not finished would otherwise take away from all rows the blocks that it lacks.
    """
    blocks = _blocks(found)
    return holm_ranking({row: one for row, one in blocks.items() if row not in _unfinished(blocks)})


def ranked_columns(found: Mapping[str, Scores]) -> list[str]:
    """Return the columns that ranks are over: those with every row of the table, or all if none has."""
    rows = {row for column in found.values() for row in column}
    whole = [name for name, column in found.items() if column and column.keys() == rows]
    return whole or [name for name, column in found.items() if column]


def _blocks(found: Mapping[str, Scores]) -> dict[str, dict[str, float]]:
    blocks: dict[str, dict[str, float]] = {}
    for name in ranked_columns(found):
        for row, values in found[name].items():
            blocks.setdefault(row, {}).update({f"{name} {seed}": one for seed, one in values.items()})
    return blocks


def _unfinished(blocks: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the rows that have fewer blocks than others."""
    most = max(map(len, blocks.values()), default=0)
    return [row for row, one in blocks.items() if len(one) < most]


def _left_out(item: Reproduction) -> str:
    search = section(item.about, "search")
    lines = [f"- {one['row']}: {one['why']}." for one in search.get("excluded", [])]
    remarks = [f"- {one['row']}: {one['what']}." for one in search.get("remarks", [])]
    lost = [
        f"- {one['row']} on {one['column']}, {trial['setting']}."
        for one in search.get("rows", [])
        for trial in one["trials"]
        if trial["state"] == "diverged"
    ]
    told = [str(text) for text in item.about["left_out"]]
    ended = [f"- {text}." for text in told if ": diverged" in text]
    missing = [f"- {text}." for text in told if ": diverged" not in text]
    titles = (
        *("Not in this table", "To be kept in mind", "Trials that diverged"),
        *("Final runs that diverged", "Not finished"),
    )
    parts = zip(titles, (lines, remarks, lost, ended, missing), strict=True)
    return "\n\n".join(f"### {title}\n\n" + "\n".join(one) for title, one in parts if one)


def _percent(values: Iterable[float]) -> str:
    known = [100 * value for value in values]
    half = reported_interval(known)
    text = f"{sum(known) / len(known):.2f}"
    return text if math.isnan(half) else f"{text} ± {half:.2f}"


def _signed(one: Compared) -> str:
    text = f"{one.difference.mean:+.2f}".replace("-", "−")
    return text if math.isnan(one.p) else f"{text} ± {one.difference.half:.2f}"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else ("< 0.001" if value < 0.001 else f"{value:.3f}")
