"""`raffed tune`: search the settings of methods, choose without test data, and repeat the choice with
new seeds.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from raffed.api.running import PLACED, ComparedMethod, by_label
from raffed.api.tuning import VALIDATION, runtime_of_trial, searched, seconds_of
from raffed.cli import options
from raffed.cli.config import args_for, assignments, config_of, merged, placed, read_local, read_value
from raffed.cli.messages import counted
from raffed.cli.screen import Screen, make_screen, trial_rows
from raffed.cli.signals import StopSignals
from raffed.config.run import RunConfig
from raffed.config.search_axis import POINTS
from raffed.config.toml import parse_toml
from raffed.config.validation import Json, table_of
from raffed.errors import RaffedError, RayLostError, UsageError
from raffed.methods import method_name
from raffed.methods.authors import is_authors
from raffed.results.storage import mirrored, named
from raffed.results.text import tell
from raffed.search.request import Request

# Like the fields of [runtime], these are not part of what a sweep asks for
HERE = ("data.root", "data.download")
SWEEP = "The search"
SEARCHED = options.flags_of(Request, SWEEP, without=("base", "methods", "args", "grid"))
SHOWN = (
    *("trials", "seeds", "search", "args", "data.dataset", "data.split"),
    *("local.lr", "local.epochs", "federation.rounds"),
)
GRID_HELP = (
    "Values instead of the method's own, or one more axis: mu1=0.1,1 or local.lr=0.01,0.1, also of "
    "model.args.NAME and seed. LOW..HIGH\\[:log]\\[:POINTS] is a range, such as mu=1e-4..1:log:9; a grid "
    f"takes POINTS values of it ({POINTS}), a random search and Optuna draw from it."
)


@options.run_options(without=["method"], asked=SEARCHED, usual=SHOWN)
def tune(
    flags: options.Flags,
    asked: options.Flags,
    file: options.File = None,
    *,
    place: str,
    methods: list[str] | None = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", help=GRID_HELP, metavar="NAME=V,V,...", rich_help_panel=SWEEP),
    ] = None,
    budget: Annotated[str | None, typer.Option(rich_help_panel=SWEEP)] = None,
    at_once: Annotated[int, typer.Option(rich_help_panel=SWEEP, min=0)] = 0,
    plan: options.Plan = False,
    resume: bool = False,
    accept: options.AcceptChangedCode = False,
    as_json: options.AsJson = False,
) -> None:
    """Search hyper-parameters, and report the choice fairly.

    Every method gets the same number of trials; one with fewer settings also tries learning rates. They are
    compared on a validation part of the clients' training data. The chosen setting then runs again with new
    seeds and all training data. Only these runs are scored on test data.

    Args:
        place (--out PLACE): Folder or URL for the trials, final runs and table.
        methods (--method NAME): Method to tune; repeat for more.
        budget: Most time for all trials, such as 90s, 30m or 2h.
        at_once: Number of trials at a time; 0: as many as fit.
        resume: Continue the sweep in --out.

    Examples:

        raffed tune --method fedmr --dataset digits --split p10c2 --rounds 20 --out sweeps/a

        raffed tune --method fedavg --method map --grid local.lr=0.01,0.03,0.1 --budget 2h --out sweeps/b

        raffed tune --resume --out sweeps/a

    Where trials run:

        Each trial is a federation in one process; with --actors, --clients-per-actor or --gpu-fraction it
        has client actors of its own, in a placement group with whole GPUs.
    """
    seconds = None if budget is None else seconds_of(budget)
    with make_screen(as_json) as screen, mirrored(place) as out:
        if resume and not methods and file is None:
            request = _continued(out, flags, [*asked, *(["grid"] if grid else [])])
        else:
            request = requested(methods or [], file, flags, grid or [], asked)
        if plan:
            from raffed.search.folder import check_place
            from raffed.search.space import check, check_trials

            check_place(out, request, resume)
            check_trials(out, accept)
            check(request)
            rows = trial_rows(request)
            trials = counted(sum(int(row["trials"]) for row in rows), "trial")
            rounds = counted(request.base.federation.rounds, "round")
            finals = counted(len(request.final_seeds()) * len(request.methods), "final run")
            screen.plan(rows, f"{trials} of {rounds}, then {finals}")
        else:
            _sweep(request, out, resume, screen, at_once, seconds, accept)


def _continued(out: Path, flags: options.Flags, asked: list[str]) -> Request:
    """Return what the sweep in a folder was asked to do.

    Where it continues, and where its data are, must be given again. The address of a cluster and the
    permission to download are never taken from a folder, because a stranger may have written it.
    """
    from raffed.search.folder import stored_request

    spelled = {flag.field: flag.flag.partition("/")[0] for flag in options.FLAGS}
    other = [spelled[name] for name in flags if not name.startswith("runtime.") and name not in HERE]
    other += [f"--{name}" for name in asked]
    if other:
        raise UsageError(
            f"--resume continues the sweep in {out} as it was requested, but {', '.join(other)} would change "
            "it; leave that out, or start another sweep in a new folder"
        )
    stored = stored_request(out)
    root = options.text_of(flags, "data.root") or stored.base.data.root
    data = replace(stored.base.data, root=root, download=bool(flags.get("data.download")))
    return replace(stored, base=_placed(replace(stored.base, data=data), flags))


def _sweep(
    request: Request,
    out: Path,
    resume: bool,
    screen: Screen,
    at_once: int,
    seconds: float | None,
    accept: bool,
) -> None:
    with StopSignals(lambda: None) as signals:
        try:
            complete, _ = searched(request, out, resume, screen, at_once, seconds, accept=accept)
        except (KeyboardInterrupt, Exception) as error:
            lost = isinstance(error, RayLostError)
            if not lost and not isinstance(error, KeyboardInterrupt) and not signals.cut:
                raise
            if lost:
                tell(f"raffed: {error}", error=True)
            if screen.started:
                screen.show({"event": "stopped", "resume": _again(out)})
            else:
                screen.unbegun()
            raise SystemExit(signals.code or (1 if lost else 130)) from None
    if not complete:
        raise RaffedError(
            f"{out}: not every method has chosen settings and finished its final runs; `{_again(out)}` "
            "does what is left; settings that diverged are not tried again"
        )


def requested(
    names: list[str], file: Path | None, flags: options.Flags, grid: list[str], asked: options.Flags
) -> Request:
    """Return the sweep that flags and a file ask for."""
    from raffed.runs.run import check_space

    tables = read_local(file) if file else {}
    if "seeds" in tables:
        raise UsageError(
            f"{file}: seeds is the number of runs of `raffed run` and `compare`; leave it out, and give the "
            "number of final runs as --seeds"
        )
    named = names or [str(tables.get("method", ""))]
    methods = tuple(method_name(name) for name in named if name)
    by_label(ComparedMethod(name, {}) for name in methods)  # refuses a method that is given twice
    searched = axes(grid)
    for name in methods:
        check_space(name, searched)
    for_all = table_of(tables.pop("args", {}))
    parts = args_for(methods, {**for_all, **assignments(flags.get("args"))})
    first = min(methods, key=is_authors, default="fedavg")  # an author's engine has its own networks
    tables = merged(tables, {**flags, "method": first, "args": []})
    tables["args"] = {}
    if asked.get("protocol") != "paper":
        tables["data"] = {"validation": VALIDATION, **table_of(tables.get("data"))}
    base = _placed(config_of(tables, flags), flags)
    make: Callable[..., Request] = Request
    return make(base, methods, parts, searched, **asked)


def axes(texts: list[str]) -> dict[str, list[Json]]:
    """Parse axes: ["local.lr=0.01,0.1"] → {"local.lr": [0.01, 0.1]}. A range stays the text that it is."""
    by_name: dict[str, list[Json]] = {}
    for name, text in ((t.partition("=")[0].strip(), t.partition("=")[2]) for t in texts):
        among = _listed(text)
        if not name or not among:
            raise UsageError(
                f"--grid {name}={text}: it must have the form NAME=VALUE,VALUE,... or NAME=LOW..HIGH, as in "
                "--grid mu1=0.01,0.1 or --grid mu1=1e-4..1:log"
            )
        if name in by_name:
            raise UsageError(f"--grid {name} is given twice; give all its values in one, as {name}=0.01,0.1")
        by_name[name] = among
    return by_name


def _listed(text: str) -> list[Json]:
    """Return the values of an axis: what TOML reads between brackets, or else the words between commas."""
    try:
        values = parse_toml(f"value = [{text}]", "value").get("value")
    except UsageError:
        values = [read_value(word) for word in text.split(",") if word.strip()]
    return values if isinstance(values, list) else []


def _placed(base: RunConfig, flags: options.Flags) -> RunConfig:
    """Return the run with one process per trial, unless the flags say how its clients are placed."""
    typed = any(f"runtime.{name}" in flags for name in PLACED)
    return replace(base, runtime=runtime_of_trial(placed(base.runtime, flags), typed))


def _again(out: Path) -> str:
    return f"raffed tune --resume --out {shlex.quote(named(str(out)))}"
