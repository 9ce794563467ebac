"""verdicts.json and verdicts.csv: one row for each cell and each claim of reproduced tables."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from ..metrics.equivalence import difference
from ..metrics.intervals import reported_interval
from ..render.cells import for_csv
from ..runs.files import write_text
from ..runs.load import Runs, section
from .claims import ClaimResult, claim_word, judged
from .item_runs import Place, Reproduction, cell_at, cell_names, measure_at, parts_of
from .null_rate import agreement_of
from .term_strength import cell_strengths, mean_path
from .verdicts import Line, result_lines, verdict

Value = str | int | float | list[str] | list[int] | dict[str, float] | None
VERDICT_COLUMNS = {
    "kind": "`cell` or `claim`",
    "item": "paper and name of the table, such as `checker/fedvls-mnist`",
    "scale": "`full`, `proxy` or `smoke`",
    "row": "row of the cell; of a claim all rows that it names",
    "column": "column of the cell; of a claim all columns that it names",
    "claim": "the claim in words",
    "measure": "how a number is read from a run; of a claim all measures of its terms",
    "seeds": "seeds of our values",
    "runs": "names of the runs behind them",
    "weights": "SHA-256 of the final weights of these runs",
    "printed": "the printed number; of some columns of an average the mean of their numbers",
    "printed_spread": "its printed deviation",
    "printed_runs": "number of runs behind it, if it is known",
    "mean": "mean of our values; of a claim, of its left side minus its right side",
    "sd": "their sample deviation",
    "difference": "mean difference to the row of the baseline, paired by seed",
    "difference_half": "half of its 95 % interval",
    "printed_difference": "the printed difference to that row",
    "interval_low": "lower end of the 90 % interval of ours minus printed; of a claim, of the 95 % interval",
    "interval_high": "its upper end",
    "margin": "the margin of the item",
    "verdict": "the verdict",
    "null_rate": "share of the item's cells that agree with the runs of the baseline in their place",
    "p": "p-value of the two-sided paired t-test of a claim",
    "p_holm": "the same after Holm's correction over the item's claims",
    "term_strength": "mean strength of each of the method's terms, a share of the cross-entropy's gradient",
}
"""What each column holds. A value that does not exist is null in JSON, and empty in CSV."""


def verdict_rows(item: Reproduction, runs: Runs) -> list[dict[str, Value]]:
    """Return one row for each cell of an item and for each of its claims."""
    about = item.about
    whole: dict[str, Value] = {
        "item": f"{about['paper']}/{about['name']}",
        "scale": str(about["scale"]),
        "margin": float(about["margin"]),
        "null_rate": agreement_of(item, runs).null_rate,
    }
    rows = [{"kind": "cell", **whole, **_of_line(item, line, runs)} for line in result_lines(item, runs)]
    rows += [{"kind": "claim", **whole, **_of_claim(item, claim, runs)} for claim in judged(item, runs)]
    return [{name: _known(row.get(name)) for name in VERDICT_COLUMNS} for row in rows]


def _known(value: Value) -> Value:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _of_line(item: Reproduction, line: Line, runs: Runs) -> dict[str, Value]:
    place, scale = (line.row, line.column), str(item.about["scale"])
    ours = difference(line.ours, line.told) if scale == "full" else None
    low, high = (math.nan, math.nan) if ours is None else ours.interval()
    return {
        "row": line.row,
        "column": line.column,
        "measure": measure_at(item, place),
        **_behind(item, runs, line.seeds, place),
        "printed": line.printed,
        "printed_spread": line.told.spread,
        "printed_runs": line.told.runs or None,
        "mean": line.mean,
        "sd": stdev(line.ours) if len(line.ours) > 1 and math.isfinite(line.mean) else math.nan,
        "difference": fmean(line.gains) if line.gains else math.nan,
        "difference_half": reported_interval(line.gains),
        "printed_difference": line.printed_gain,
        "interval_low": low,
        "interval_high": high,
        "verdict": verdict(line, scale, float(item.about["margin"])),
        "term_strength": _strengths(item, runs, place),
    }


def _of_claim(item: Reproduction, claim: ClaimResult, runs: Runs) -> dict[str, Value]:
    return {
        "row": "; ".join(dict.fromkeys(row for row, _ in claim.places)),
        "column": "; ".join(dict.fromkeys(column for _, column in claim.places)),
        "claim": claim.text,
        "measure": claim.measure,
        **_behind(item, runs, claim.seeds, *claim.places),
        "mean": claim.mean,
        "sd": stdev(claim.values) if len(claim.values) > 1 and math.isfinite(claim.mean) else math.nan,
        "interval_low": claim.mean - claim.half,
        "interval_high": claim.mean + claim.half,
        "verdict": claim_word(item, claim),
        "p": claim.p,
        "p_holm": claim.p if claim.adjusted is None else claim.adjusted,
        "term_strength": _strengths(item, runs, *claim.places),
    }


def _behind(item: Reproduction, runs: Runs, seeds: Sequence[int], *places: Place) -> dict[str, Value]:
    """Return the seeds, and the names and final weights of the runs of cells that have these seeds."""
    cells = (cell_at(item, part) for part in parts_of(item, *places))
    every = [name for cell in cells if cell is not None for name in cell_names(item, cell, runs)]
    names = list(dict.fromkeys(name for name in every if runs.runs.at[name, "seed"] in seeds))
    hashes = (section(runs.files[name], "hashes").get("weights") for name in names)
    return {"seeds": list(seeds), "runs": names, "weights": [str(digest) for digest in hashes if digest]}


def _strengths(item: Reproduction, runs: Runs, *places: Place) -> dict[str, float]:
    """Return the mean strength of each term; of several cells with the name of the row before it."""
    strengths, parts = {}, parts_of(item, *places)
    for place in parts:
        cell = cell_at(item, place)
        terms: Mapping[str, tuple[float, float]] = {} if cell is None else cell_strengths(item, cell, runs)
        for term, both in terms.items():
            strengths[term if len(parts) == 1 else f"{', '.join(place)}: {term}"] = mean_path(both)
    return {name: strength for name, strength in strengths.items() if math.isfinite(strength)}


def write_verdicts(folder: Path, rows: Sequence[Mapping[str, Value]]) -> None:
    """Write the rows as verdicts.json and verdicts.csv into a folder."""
    text = json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(folder / "verdicts.json", f"{text}\n")
    sheet = io.StringIO()
    lines = csv.DictWriter(sheet, list(VERDICT_COLUMNS), lineterminator="\n")
    lines.writeheader()
    lines.writerows({name: _in_a_cell(value) for name, value in row.items()} for row in rows)
    write_text(folder / "verdicts.csv", sheet.getvalue())


def _in_a_cell(value: Value) -> str | int | float | None:
    """Return a value for a CSV file: a list has spaces between its parts, a mapping semicolons."""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    if isinstance(value, dict):
        value = "; ".join(f"{name}={part}" for name, part in value.items())
    return for_csv(value) if isinstance(value, str) else value
