"""`--plan` of compare, tune and reproduce: list what would run, within seconds, and run nothing.

Of a reproduction also what is left out: in a few words for each cell, and once with the whole reason.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.api.progress import Event
from raffed.cli.messages import counted
from raffed.cli.tables import show
from raffed.results.storage import named
from raffed.results.text import tell
from raffed.tables.planner import PlannedRun, state_of

if TYPE_CHECKING:
    from raffed.api.running import Run
    from raffed.search.request import Request
    from raffed.tables.planner import Planned

Row = dict[str, str]


def plan_event(rows: Sequence[Row], summary: str) -> Event:
    """Return the event that lists what would run.

    Args:
        rows: One for each cell, trial or run: column → text.
        summary: A line about all of it.
    """
    return {"event": "plan", "summary": summary, "rows": rows}


def show_plan(rows: Sequence[Row], summary: str) -> None:
    """Print what would run."""
    if rows:
        show(list(rows[0]), [list(row.values()) for row in rows], right="runs|finished|seed|rounds|trials")
    tell(f"{summary}; nothing was run (--plan)")


def item_rows(found: Sequence[Planned], done: Collection[Path], brief: bool) -> list[Row]:
    """Return a row for each cell of a table: its runs, and why some are left out.

    Args:
        found: The runs and studies.
        done: The folders of those that are finished.
        brief: Whether a few words are said of what is left out, or the whole reason.
    """
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
            "left out": "; ".join(
                dict.fromkeys(_kind(job) if brief else job.left_out for job in _left_out(jobs, done))
            ),
        }
        for (row, column), jobs in cells.items()
    ]


def run_rows(runs: Sequence[Run]) -> list[Row]:
    """Return a row for each run."""
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
    from raffed.search.folder import trial_name
    from raffed.search.space import axes_of, budget_of, described, proposed

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


def stated(jobs: Sequence[Planned], done: Collection[Path]) -> list[str]:
    """Return a line for each kind of reason: how many jobs it concerns, and the first whole reason."""
    kinds: dict[str, list[str]] = {}
    for job in _left_out(jobs, done):
        kinds.setdefault(_kind(job), []).append(job.left_out)
    return [
        f"{len(reasons)} left out: {reasons[0]}"
        + ("; --plan --json lists other reasons" if len(set(reasons)) > 1 else "")
        for reasons in kinds.values()
    ]


def _kind(job: Planned) -> str:
    """Return the beginning of the reason why a job is left out, which jobs of one kind share."""
    return job.left_out.partition(":")[0]


def _left_out(jobs: Sequence[Planned], done: Collection[Path]) -> list[Planned]:
    return [job for job in jobs if job.left_out and job.folder not in done]
