"""`raffed.tune`: search the settings of methods, choose without test data, and repeat the choice."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from raffed.api.comparing import Named, arguments_by_method
from raffed.api.reporting import SweepTables, as_frame, write_sweep_tables
from raffed.api.running import Shown, is_usual, make_progress
from raffed.config.portable import check_set
from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.config.validation import Value
from raffed.errors import UsageError, check_range
from raffed.methods.authors import without_engine
from raffed.results.storage import is_url, mirrored, named
from raffed.search.request import Request
from raffed.tune_spaces import values

if TYPE_CHECKING:
    import pandas as pd

    from raffed.results.sweep_file import Select
    from raffed.search.folder import Trial

VALIDATION = 0.2  # share held out for choosing, if none is given


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        folder: The folder of the sweep, None if it is a URL.
        complete: Whether every method has a choice and finished final runs.
        chosen: Method → the settings that were chosen.
        table: One row for each method, with the accuracy of the chosen setting under fresh seeds.
        trials: One row for each trial: method, settings, state, score (a fraction) and seconds.
        note: How the settings were chosen, in a sentence for the reader of the table.
    """

    folder: Path | None
    complete: bool
    chosen: Mapping[str, Mapping[str, Value]]
    table: pd.DataFrame
    trials: pd.DataFrame
    note: str

    def _repr_html_(self) -> str:
        """Return the table as HTML, which a notebook shows."""
        return self.table.to_html()


def tune(
    methods: Named | Sequence[Named] | Mapping[Named, Mapping[str, Value]],
    config: RunConfig | None = None,
    *,
    out: Path | str,
    grid: Mapping[str, Sequence[Value] | str] | None = None,
    trials: int | None = None,
    seeds: int = 3,
    select: Select = "global",
    protocol: Literal["validation", "paper"] = "validation",
    scheduler: Literal["fifo", "asha"] = "fifo",
    search: Literal["grid", "random", "optuna"] = "grid",
    score: str = "accuracy",
    fill: Literal["rate", "none"] = "rate",
    budget: float | str | None = None,
    at_once: int = 0,
    resume: bool = False,
    progress: bool = True,
) -> Tuned:
    """Search hyper-parameters and report the choice fairly, as `raffed tune` does.

    Every method gets the same number of trials. They are compared on a validation part of the clients'
    training data; the chosen setting then runs again, with fresh seeds and all training data.

    Args:
        methods: The methods to tune, as names, references or factories; a mapping gives each the arguments
            that are fixed.
        config: Everything but method and arguments. A validation part of 0.2 is held out unless it names one,
            and a trial takes one process unless it says how clients are placed.
        out: Folder or URL for the trials, the final runs and the table.
        grid: Values instead of the method's own, or one more axis: `{"mu": [0.1, 1.0], "local.lr": [0.01]}`.
            A text is a range: `{"mu": "1e-4..1:log"}`. With the axis "seed" settings are compared by their
            means over the seeds.
        trials: Settings tried for each method; without it as many as the largest grid has, or 5.
        seeds: Final runs for each method.
        select: Which models' accuracy chooses: "global", "personal" or "mean".
        protocol: "validation", or "paper" to choose by test accuracy as the papers do.
        scheduler: "fifo", or "asha" to end bad trials early.
        search: "grid", "random" to draw settings, or "optuna" to propose settings from ranges.
        score: What chooses: "accuracy", or the name of a metric of `config` whose unit is a fraction. Of one
            that should be low, 1 minus its value counts.
        fill: "rate": a method with fewer settings than the others also tries learning rates around
            `config.local.lr`, so that all have the same number of trials; "none": it has fewer.
        budget: Time for all trials: seconds, or a text such as "30m".
        at_once: Trials at a time; 0: as many as fit.
        resume: Whether the same sweep in `out` is continued.
        progress: Whether finished trials are shown on stderr.

    Returns:
        The choices and all trials.

    Raises:
        UsageError: Something asked for is not possible. Raised before the first trial runs.

    Example:
        >>> raffed.tune("fedprox", out="sweeps/a", grid={"mu": [0.01, 0.1]}).table  # doctest: +SKIP
    """
    from raffed.runs.run import check_space  # late, because it loads pyarrow

    fixed = arguments_by_method([methods] if isinstance(methods, str) or callable(methods) else methods)
    given = grid or {}
    axes = {name: [axis] if isinstance(axis, str) else values(given, name) for name, axis in given.items()}
    base = config or RunConfig()
    if protocol != "paper" and not base.data.validation:
        base = base.changed({"data.validation": VALIDATION})
    base = replace(base, runtime=runtime_of_trial(base.runtime), method="fedavg", args={})
    names = tuple(fixed)
    request = Request(
        base, names, fixed, axes, trials, seeds, protocol, select, scheduler, search, score, fill
    )
    for name in names:
        check_space(name, axes)
    given_budget = budget if isinstance(budget, str | None) else f"{budget}s"
    seconds = None if given_budget is None else seconds_of(given_budget, "budget")
    with mirrored(out) as place:
        shown = make_progress(progress)
        complete, tables = searched(request, place, resume, shown, at_once, seconds)
        return _tuned(tables, None if is_url(out) else Path(out), complete)


def _tuned(tables: SweepTables, folder: Path | None, complete: bool) -> Tuned:
    import pandas as pd

    records = tables.sweep.methods
    best = {name: record.get("chosen") for name, record in records.items()}
    chosen = {name: {} if trial is None else trial["settings"] for name, trial in best.items()}
    trials = pd.DataFrame(
        [
            {"method": name, **{key: trial.get(key) for key in ("settings", "state", "score", "seconds")}}
            for name, record in records.items()
            for trial in record.get("trials") or []
        ]
    )
    return Tuned(folder, complete, chosen, as_frame(tables.table), trials, tables.note)


def runtime_of_trial(runtime: Runtime, typed: bool = False) -> Runtime:
    """Return where a trial runs: in one process, unless it is said how clients are placed.

    On Ray it has one actor, or as many as fill a GPU, where no number is given.

    Args:
        runtime: As configured.
        typed: Whether something of that was named on purpose, although it may be the default.
    """
    if is_usual(runtime) and not typed:
        return replace(runtime, execution="serial")
    if runtime.execution == "ray" and not runtime.clients_per_actor and not runtime.actors:
        return replace(runtime, actors=round(1 / runtime.gpu_fraction) if runtime.gpu_fraction else 1)
    return runtime


def searched(
    request: Request,
    out: Path,
    resume: bool,
    shown: Shown,
    at_once: int,
    seconds: float | None,
    *,
    accept: bool = False,
) -> tuple[bool, SweepTables]:
    """Execute the sweep, and return whether everything was done, and what was chosen.

    A search that is interrupted or fails stays in its folder as stopped. `accept` says whether trials that
    were begun with other source of one's own code may go on.
    """
    from raffed.results.lock import A_SWEEP, written
    from raffed.runtime.ray.session import RaySession
    from raffed.runtime.setup import check_new, prepare_run
    from raffed.search.folder import SweepFolder, check_place
    from raffed.search.space import check, check_networks, check_parts, check_search, check_trials

    check_range("at_once", at_once, 0, 10_000)
    check_set(request.base.numerics.bits)
    check_search(request)
    check_place(out, request, resume)  # checked before Ray is started or a cluster is joined
    check_trials(out, accept)
    check(request)
    config = without_engine(request.config(request.methods[0], {}))
    setup = prepare_run(config)
    check_new(config.federation, config.faults, config.runtime, setup.data)
    partition = setup.partition
    check_parts(request, partition)
    check_networks(request, setup)
    with RaySession(request.base.runtime.address) as session:
        from raffed.search.ray_tune import Search, check_cluster, execute_sweep

        session.wait()
        check_cluster(out, request.base.runtime, partition.num_clients)
        folder = SweepFolder(out, request, resume)  # only now, so that a refused sweep leaves nothing
        shown.show({"event": "tune", "request": request.as_dict(), "folder": named(out)}, request=request)

        def watch(method: str, trial: Trial, rounds: int) -> None:
            event = {"event": "trial", "method": method, **trial.as_dict()}
            shown.show(event, rounds=rounds, warnings=trial.warnings)

        with written(out, A_SWEEP):
            try:
                complete: bool = execute_sweep(
                    Search(request, folder, watch, partition.num_clients, at_once, seconds, accept)
                )
            except BaseException:
                with contextlib.suppress(OSError):  # a folder that is gone keeps its last state
                    folder.end("stopped")
                raise
            about = folder.end("finished" if complete else "stopped")
        tables = write_sweep_tables(out, about)
        shown.show({"event": "tuned", "folder": named(out), **about}, tables=tables)
    return complete, tables


def seconds_of(text: str, name: str = "--budget") -> float:
    """Parse "90s", "30m", "2h" or "1.5h" to seconds. `name` is what the message calls it."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", text.lower())
    if not match or not float(match[1]):
        raise UsageError(f"{name} {text!r}: it must be a time such as 90s, 30m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
