"""`--plan` of compare, tune and reproduce: list what would run, within seconds, and run nothing."""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from raffed.cli.left_out import of_cell, whole_of_cell
from raffed.cli.numbers import counted, plain
from raffed.results.storage import named
from raffed.results.visible import visible

if TYPE_CHECKING:
    from raffed.commands.running import Run
    from raffed.experiments.reproduction.planner import Planned
    from raffed.experiments.tuning.request import Request

Row = Mapping[str, str]


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Within the block, Python does not look for cyclic garbage.

    A plan makes many small objects that stay, and ends within seconds. The search takes a tenth of its time.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def show_plan(rows: Sequence[Row], summary: str, as_json: bool) -> None:
    """Print what would run.

    Args:
        rows: One for each cell, trial or run: column → text.
        summary: A line about all of it.
        as_json: Whether one JSON object is printed in place of a table.
    """
    if as_json:
        print(json.dumps({"event": "plan", "summary": summary, "rows": plain([dict(row) for row in rows])}))
        return
    from raffed.cli.tables import show

    if rows:
        show(list(rows[0]), [list(row.values()) for row in rows], right="runs|finished|seed|rounds|trials")
    typer.echo(visible(f"{summary}; nothing was run (--plan)"))


def item_rows(found: Sequence[Planned], done: Collection[Path], brief: bool) -> list[Row]:
    """Return a row for each cell of a table: its runs, and why some are left out.

    Args:
        found: The runs and studies.
        done: The folders of those that are finished.
        brief: Whether a few words are said of what is left out, or the whole reason.
    """
    from raffed.experiments.reproduction.planner import PlannedRun

    said = of_cell if brief else whole_of_cell
    cells: dict[tuple[str, str], list[Planned]] = {}
    for job in found:
        places: list[Sequence[str]] = (
            [cell.place for cell in job.cells] if isinstance(job, PlannedRun) else [("study", "")]
        )
        for place in dict.fromkeys((one[0], " · ".join(one[1:])) for one in places):
            cells.setdefault(place, []).append(job)
    return [
        {
            "row": row,
            "column": column,
            "runs": str(sum(not job.left_out or job.folder in done for job in jobs)),
            "finished": str(sum(job.folder in done for job in jobs)),
            "left out": said(jobs, done),
        }
        for (row, column), jobs in cells.items()
    ]


def run_rows(runs: Sequence[Run]) -> list[Row]:
    """Return a row for each run."""
    from raffed.experiments.reproduction.planner import state_of

    return [
        {
            "method": run.method,
            "seed": str(run.config.seed),
            "rounds": str(run.config.federation.rounds),
            "state": state_of(run.folder) or "new",
            "folder": named(run.folder),
        }
        for run in runs
    ]


def trial_rows(request: Request) -> list[Row]:
    """Return a row for each trial of a search, or one for each method whose settings Optuna proposes."""
    from raffed.experiments.tuning.axes import axes_of, budget_of, described, proposed
    from raffed.experiments.tuning.trials import trial_name

    rows: list[Row] = []
    for method in request.methods:
        axes = axes_of(request, method)
        if request.search == "optuna" and axes:
            among = "; ".join(f"{name} in {one}" for name, one in described(axes, request.search).items())
            rows.append(
                {"method": method, "trials": str(budget_of(request)), "setting": f"proposed: {among}"}
            )
            continue
        every = proposed(request, method)
        rows += [{"method": method, "trials": "1", "setting": trial_name(one)} for one in every]
    return rows


def trial_summary(request: Request, rows: Sequence[Row]) -> str:
    """Return a line about the trials and the final runs of a search."""
    trials = sum(int(row["trials"]) for row in rows)
    finals = len(request.final_seeds()) * len(request.methods)
    rounds = request.base.federation.rounds
    return f"{counted(trials, 'trial')} of {counted(rounds, 'round')}, then {counted(finals, 'final run')}"


__all__ = [
    "item_rows",
    "run_rows",
    "show_plan",
    "trial_rows",
    "trial_summary",
    "without_collector",
]
