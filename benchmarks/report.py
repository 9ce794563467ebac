"""The benchmark's table and plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

HEADERS = (
    "contestant",
    "s a round",
    "ratio",
    "each repetition",
    "steps",
    "accuracy",
    "start, s",
    "round 1, s",
    "PSS, MiB",
)
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)  # of the plot's ratios


def table(result: dict[str, Any]) -> Table:
    """One workload's contestants."""
    title = (
        f"{result['workload']}: {result['text']} ({result['repetitions']} repetitions of {result['rounds']} "
        f"rounds)"
    )
    made = Table(title=title, title_justify="left")
    for number, header in enumerate(HEADERS):
        made.add_column(header, justify="left" if number in (0, 3) else "right")
    for row in result["rows"]:
        made.add_row(*_cells(row))
    return made


def _cells(row: dict[str, Any]) -> list[str]:
    steps = "/".join(str(n) for n in row["steps"]) + ("" if row["same_steps"] else " ≠ bare")
    each = " ".join(f"{ratio:.2f}" for ratio in row["ratios"])
    return [
        row["contestant"],
        _number(row["seconds"], 4),
        _number(row["ratio"], 2),
        row["note"] or each,
        steps,
        _number(row["accuracy"], 3),
        _number(row["start_s"], 1),
        _number(row["first_round_s"], 1),
        _number(row["pss_mib"], 0),
    ]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel a workload, a bar a contestant, from the bare loop's 1 to its median ratio (logarithmic); a
    dot a repetition.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(results), figsize=(4.2 * len(results), 3.4), squeeze=False, layout="constrained"
    )
    for panel, result in zip(axes[0], results, strict=True):
        _panel(panel, result)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _panel(panel: Any, result: dict[str, Any]) -> None:
    rows = [row for row in reversed(result["rows"]) if row["ratio"] is not None]
    for place, row in enumerate(rows):
        panel.barh(
            place, row["ratio"] - 1, left=1, color="C0" if row["contestant"].startswith("raffed") else "0.7"
        )
        panel.plot(row["ratios"], [place] * len(row["ratios"]), "k.", markersize=3)
    panel.set_yticks(range(len(rows)), [row["contestant"] for row in rows])
    panel.axvline(1, color="k", linewidth=0.8)
    panel.set_xscale("log")
    panel.minorticks_off()
    every = [1.0, *(ratio for row in rows for ratio in row["ratios"])]
    panel.set_xlim(min(every) / 1.2, max(every) * 1.2)
    ticks = [tick for tick in TICKS if min(every) / 1.2 <= tick <= max(every) * 1.2]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.set_title(result["workload"])
    panel.set_xlabel("wall time of a round / bare loop")
