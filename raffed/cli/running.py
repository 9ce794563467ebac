"""The commands `raffed run`, `resume`, `compare`, `extend` and `fork`."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import raffed
from raffed.api.many_runs import method_runs, seed_runs
from raffed.api.running import ComparedMethod, Run, by_label, callback, separated
from raffed.cli.config import (
    Tables,
    args_for,
    assignments,
    config_of,
    merged,
    placed,
    read_config,
    read_local,
)
from raffed.cli.execution import RoundTimes, asked_seeds, check_single, execute, run_many, says_execution
from raffed.cli.messages import counted, set_as_recorded
from raffed.cli.options import FLAGS, WHAT, AcceptChangedCode, AsJson, File, Flags, Plan, Quiet, run_options
from raffed.cli.screen import Row, make_screen
from raffed.config.run import RunConfig
from raffed.config.validation import table_of
from raffed.errors import UsageError
from raffed.methods import method_name
from raffed.results.storage import fetched, mirrored, named
from raffed.tables.planner import state_of
from raffed.trackers import Guarded, MLflow, Sink, TensorBoard, WeightsAndBiases

if TYPE_CHECKING:
    from raffed.runs.run import RoundWatcher

NOT_RUNTIME = [flag.field for flag in FLAGS if not flag.field.startswith("runtime.")]


@run_options()
def run(
    flags: Flags,
    file: File = None,
    *,
    out: str | None = None,
    seeds: Annotated[int | None, typer.Option(rich_help_panel=WHAT)] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    board: Path | None = None,
    tracker: str | None = None,
    project: str | None = None,
    on_round: list[str] | None = None,
    profile: bool = False,
    accept: AcceptChangedCode = False,
) -> None:
    """Run one method on one split of a data set.

    Args:
        out (PLACE): New folder or URL (s3://, gs://, …) for the run's files; chosen below runs/ if not given.
        seeds (N): Number of runs, with the seeds SEED, SEED + 1, …; each lies in a folder seed-K.
        board (--tensorboard DIR): Folder for TensorBoard event files.
        tracker (--mlflow URI): MLflow tracking server or database.
        project (--wandb PROJECT): Project in Weights & Biases.
        on_round (REFERENCE): Function of your own that receives each RoundEvent; repeat for more.
        profile: Show after the run where the time of its rounds went: training, sums, messages, scoring,
            disk.

    Examples:

        raffed run --method fedmr --set mu1=0.1 --set mu2=0.01 --out runs/a

        raffed run --method map --dataset fashion-mnist --split incomplete:100

        raffed run experiment.toml --seed 1 --execution serial

        raffed run --method map --seeds 5 --out runs/map

    Seeds:

        The runs of --seeds lie in OUT/seed-K. Each takes one process and one core, as many at a time as there
        are cores; with --execution ray or --actors they share one Ray, one after the other. The same command
        with the same --out continues.

    Files:

        A TOML file holds method and seed, then [args] for the method, [data],
        [model] (name, args), [local], [federation], [privacy], [faults] and [runtime].
        The keys have the names of the options above.

    Stopping:

        After one Ctrl-C or SIGTERM, the run finishes the round (in at most 4 s), writes a checkpoint and
        stops. In the first round it stops at once.
    """
    count = asked_seeds(file, seeds)
    followed = {"--tensorboard": board, "--mlflow": tracker, "--wandb": project, "--on-round": on_round}
    check_single(count, {**followed, "--profile": profile})
    if accept and count is None:
        raise UsageError(
            "--accept-changed-code is for runs that go on: give it to `raffed resume`, or together with "
            "--seeds; a single `raffed run` begins anew, so leave it out"
        )
    with make_screen(as_json, quiet) as screen:
        config = read_config(file, flags)
        place = free_folder(config, "" if count is None else "seeds") if out is None else out
        if count is not None:
            with mirrored(place) as folder:
                placed_by_user = says_execution(file, flags)
                runs = seed_runs({config.method: config}, folder, count, True, accept, placed_by_user)
                run_many(runs, folder, screen)
            return
        with mirrored(place) as folder, followers(folder, on_round, board, tracker, project) as watchers:
            times = RoundTimes()
            work = partial(raffed.run, config, folder)
            execute(work, Run.alone(config, folder), screen, watchers=[*watchers, times])
            if profile:
                times.show(screen, config.method)


@run_options(without=NOT_RUNTIME)
def resume(
    flags: Flags,
    place: str,
    *,
    as_json: AsJson = False,
    quiet: Quiet = False,
    board: Path | None = None,
    tracker: str | None = None,
    project: str | None = None,
    on_round: list[str] | None = None,
    accept: AcceptChangedCode = False,
) -> None:
    """Continue a run that was stopped or killed, to the same bits.

    Args:
        place (RUN): Folder or URL of a run that was stopped or killed.
        board (--tensorboard DIR): Folder for TensorBoard event files.
        tracker (--mlflow URI): MLflow tracking server or database.
        project (--wandb PROJECT): Project in Weights & Biases.
        on_round (REFERENCE): Function of your own that receives each RoundEvent; repeat for more.
    """
    with make_screen(as_json, quiet) as screen, mirrored(place) as folder:
        set_as_recorded(folder)
        with followers(folder, on_round, board, tracker, project) as watchers:
            from raffed.runs.folder import run_config

            config = run_config(folder)
            config = replace(config, runtime=placed(config.runtime, flags))
            resumed = Run.alone(config, folder)
            note = " (finished already)" if resumed.finished else ""
            work = partial(raffed.resume, folder, runtime=config.runtime, accept_changed_code=accept)
            execute(work, resumed, screen, watchers=watchers, note=note)


@run_options(without=["method"])
def compare(
    flags: Flags,
    file: File = None,
    *,
    methods: list[str],
    place: str,
    seeds: Annotated[int | None, typer.Option(rich_help_panel=WHAT)] = None,
    plan: Plan = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    profile: bool = False,
    accept: AcceptChangedCode = False,
) -> None:
    """Run several methods on the same split and seed, and report.

    If one diverges, the others still run. The report shows how far it came, and the exit code is 1.

    Args:
        methods (--method NAME): Method to compare; repeat for more. NAME,ARGUMENT=VALUE,... is the method
            with these arguments, so that one method can be there with several settings.
        place (--out PLACE): Folder or URL for the report and one run per method.
        seeds (N): Number of runs, with the seeds SEED, SEED + 1, …; each lies in a folder seed-K.
        profile: Show after the run where the time of its rounds went: training, sums, messages, scoring,
            disk.

    Examples:

        raffed compare --method fedavg --method fedmr --set fedmr.mu1=0.1 --out runs/both

        raffed compare --method fedavg --method map --seeds 5 --out runs/five

    Seeds:

        All methods get the same split, participants and batches.

        Repeat the same command to continue; finished runs are kept.

        With --seeds the runs lie in OUT/METHOD/seed-K, and the report tests differences paired by seed, with
        Holm's correction.
    """
    count = asked_seeds(file, seeds)
    check_single(count, {"--profile": profile})
    with make_screen(as_json, quiet) as screen, mirrored(place) as out:
        configs = compared(methods, file, flags)
        if count is None:
            runs = method_runs(configs, out, accept)
        else:
            runs = seed_runs(configs, out, count, accept=accept, placed=says_execution(file, flags))
        if plan:
            rows: list[Row] = [
                {
                    "method": run.method,
                    "seed": str(run.config.seed),
                    "rounds": str(run.config.federation.rounds),
                    "state": state_of(run.folder) or "new",
                    "folder": named(run.folder),
                }
                for run in runs
            ]
            finished = sum(row["state"] == "finished" for row in rows)
            screen.plan(rows, f"{counted(len(rows), 'run')}, {finished} finished")
        else:
            run_many(runs, out, screen, profile)


def compared(methods: Sequence[str], file: Path | None, flags: Flags) -> dict[str, RunConfig]:
    """Return method, with its settings if it was given any, → its run.

    [args] of a file are for the method named there. In a file without a method they are, like `--set`, for
    all methods that take them. Settings beside the method take precedence.
    """
    given = [_with_settings(text) for text in methods]
    labels = by_label(ComparedMethod(name, settings) for name, settings in given)
    names = list(dict.fromkeys(name for name, _ in given))
    base = read_local(file) if file else {}
    base.pop("seeds", None)  # how often these are run is no part of one of them
    for_all = {} if "method" in base else table_of(base.pop("args", {}))
    parts = args_for(names, {**for_all, **assignments(flags.get("args"))})
    configs = {}
    for label, (name, settings) in zip(labels, given, strict=True):
        tables = merged(base, {**flags, "method": name, "args": []})
        tables["args"] = {**table_of(tables["args"]), **parts[name], **settings}
        configs[label] = config_of(tables, flags)
    return configs


def _with_settings(text: str) -> tuple[str, Tables]:
    """Return the method, and its settings, of `--method NAME` or `--method NAME,ARGUMENT=VALUE,...`."""
    name, typed = separated(text)
    name, settings = method_name(name), assignments(typed)
    args_for([name], settings)  # refuses what the method does not take
    return name, settings


@contextlib.contextmanager
def followers(
    folder: Path,
    on_round: list[str] | None,
    board: Path | None = None,
    tracker: str | None = None,
    project: str | None = None,
) -> Iterator[list[RoundWatcher]]:
    """Yield what receives the rounds of a run, and close the trackers at the end.

    The run does not depend on the trackers, but it does on functions of one's own (--on-round).
    """
    asked: dict[str, tuple[object, Callable[[], Sink]]] = {
        f"TensorBoard's folder {board}": (board, lambda: TensorBoard(str(board))),
        f"MLflow at {tracker}": (tracker, lambda: MLflow(str(tracker), folder)),
        f"Weights & Biases, project {project},": (project, lambda: WeightsAndBiases(str(project), folder)),
    }
    callbacks = [*map(callback, on_round or ())]
    with contextlib.ExitStack() as stack:
        trackers: list[RoundWatcher] = [
            stack.enter_context(contextlib.closing(Guarded(title, make)))
            for title, (place, make) in asked.items()
            if place is not None
        ]
        yield [*trackers, *callbacks]


def free_folder(config: RunConfig, end: str = "") -> Path:
    """Return runs/METHOD-DATASET-SPLIT-END, or the first of it with -2, -3, … that does not exist.

    Without `end` the name ends with the seed, as in s0.
    """
    from raffed.data.own_data import short_name  # imported late because it loads NumPy

    scheme, _, rest = config.data.split.partition(":")
    split = f"file-{Path(rest).stem}" if scheme == "file" else config.data.split
    text = f"{config.method}-{short_name(config.data.dataset)}-{split}-{end or f's{config.seed}'}"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    paths = (Path("runs") / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
    return next(path for path in paths if not path.exists())


# The commands `raffed extend` and `raffed fork`.


FIXED = ("method", "model.name", "model.args", "model.init", "privacy.masks", "privacy.delta")
PRIVATE = ("privacy.clip", "privacy.noise", "privacy.noise_at")


@run_options(without=NOT_RUNTIME)
def extend(
    flags: Flags,
    place: str,
    *,
    rounds: Annotated[int, typer.Option(min=1)],
    as_json: AsJson = False,
    quiet: Quiet = False,
    on_round: list[str] | None = None,
    accept: AcceptChangedCode = False,
) -> None:
    """Continue a run to more rounds, with the bits of one that had them from the start.

    Args:
        place (RUN): Folder or URL of a run.
        rounds: Number of rounds in the end.
        on_round (REFERENCE): Function of your own that receives each RoundEvent; repeat for more.

    Example:

        raffed extend runs/a --rounds 200

        It refuses a run whose first rounds would be others in a longer run: FedProc's, MAP's and FedPHP's
        terms and the stages of some splits depend on the total number of rounds.
    """
    with make_screen(as_json, quiet) as screen, mirrored(place) as folder:
        from raffed.runs.folder import run_config

        config = run_config(folder).changed({"federation.rounds": rounds})
        runtime = placed(config.runtime, flags)
        work = partial(raffed.extend, folder, rounds, runtime=runtime, accept_changed_code=accept)
        execute(work, Run.alone(config, folder), screen, watchers=[*map(callback, on_round or ())])


@run_options(without=[*FIXED, *PRIVATE])
def fork(
    flags: Flags,
    place: str,
    *,
    out: str,
    at: Annotated[int | None, typer.Option(min=1)] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    on_round: list[str] | None = None,
    accept: AcceptChangedCode = False,
) -> None:
    """Continue a run from one of its rounds with other settings, in a new folder.

    Args:
        place (RUN): Folder or URL of a run, which is not changed.
        out (PLACE): New folder or URL for the fork.
        at: Round after which it branches off; by default the last.
        on_round (REFERENCE): Function of your own that receives each RoundEvent; repeat for more.

    Example:

        raffed fork runs/a --at 40 --lr 0.01 --rounds 80 --out runs/b

        Method, network, privacy and the number of clients stay.
    """
    with make_screen(as_json, quiet) as screen, fetched(place, whole=True) as source, mirrored(out) as folder:
        from raffed.runs.folder import run_config

        tables: Tables = json.loads(json.dumps(run_config(source).as_dict()))  # as a TOML file has them
        config = config_of(merged(tables, flags), flags)
        work = partial(raffed.fork, source, config, folder, at=at, accept_changed_code=accept)
        execute(work, Run.alone(config, folder), screen, watchers=[*map(callback, on_round or ())])
