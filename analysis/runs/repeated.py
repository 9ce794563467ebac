"""Choose one run for each seed among the runs of one experiment, and say why the others are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

Row = Mapping[Hashable, Any]
Rows = Mapping[str, Row]
"""Run → its row of `Runs.runs`, with its `hashes` of results from run.json."""


def chosen(rows: Rows) -> tuple[str, ...]:
    """Return one run for each seed.

    Only finished runs whose rows are all there count, if there is one. Among the others, a run with all its
    rows goes before one whose rows are damaged or lacking, and then the one with most rounds.
    """
    best: dict[float, str] = {}
    for name in _results(rows) or rows:
        seed = rows[name]["seed"]
        if seed not in best or _rank(rows[name]) > _rank(rows[best[seed]]):
            best[seed] = name
    return tuple(sorted(best.values(), key=lambda name: (rows[name]["seed"], name)))


def _results(rows: Rows) -> list[str]:
    return [name for name, row in rows.items() if row["state"] == "finished" and not row["damage"]]


def _rank(row: Row) -> tuple[bool, float]:
    return not row["damage"], row["rounds_done"]


def why_left_out(name: str, rows: Rows) -> str:
    """Return why a run is not among the chosen ones."""
    row, seed = rows[name], f"seed {rows[name]['seed']:.0f}"
    other = next((one for one in chosen(rows) if rows[one]["seed"] == row["seed"]), "")
    if row["damage"]:
        than = f"{other} has the same seed" if other else "others are finished and whole"
        return f"its rows are not as the run wrote them ({row['damage']}), and {than}"
    if row["state"] != "finished" and _results(rows):
        return (
            f"{row['state'] or 'state unknown'} after {row['rounds_done']:.0f} rounds, while others are "
            "finished"
        )
    if not other:
        return f"{seed} is there already"
    if rows[other]["rounds_done"] > row["rounds_done"]:
        return (
            f"{seed} is there already with more rounds: {other} has {rows[other]['rounds_done']:.0f}, this "
            f"run {row['rounds_done']:.0f}"
        )
    if unlike := differing_hashes(row, rows[other]):
        return (
            f"{seed} is there already, and the results differ: {other} has as many rounds, but other hashes "
            f"of {' and '.join(unlike)}. One of the two was changed, or they were computed on machines with "
            "different arithmetic; `raffed verify` computes a run again"
        )
    if row["hashes"] and row["hashes"] == rows[other]["hashes"]:
        return f"the same run again: {other} has the same seed, as many rounds and equal results"
    return f"{seed} is there already: {other} has as many rounds"


def differing_hashes(one: Row, other: Row) -> list[str]:
    """Return which recorded hashes of the results differ between two runs of one seed and equal length."""
    a, b = one["hashes"], other["hashes"]
    if one["rounds_done"] != other["rounds_done"] or one["damage"] or other["damage"]:
        return []
    names = {"weights": "weights", "metrics": "metric rows", "vaults": "client states"}
    return [told for name, told in names.items() if name in a and name in b and a[name] != b[name]]


def contradictions(used: tuple[str, ...], rows: Rows) -> list[str]:
    """Return the runs that repeat the seed of a used run and have other results."""
    seeds = {rows[name]["seed"]: name for name in used}
    return [
        name
        for name, row in rows.items()
        if name not in used and row["seed"] in seeds and differing_hashes(row, rows[seeds[row["seed"]]])
    ]


def states(rows: Rows) -> str:
    """Return how many runs are in each state."""
    counts = Counter(row["state"] or "state unknown" for row in rows.values())
    return (
        next(iter(counts))
        if len(counts) == 1
        else ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
    )
