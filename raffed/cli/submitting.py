"""`raffed submit`: any command that runs something, as a job of a Ray cluster."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raffed.core.errors import UsageError, check_choice
from raffed.results.remote import check_url
from raffed.results.storage import is_url

if TYPE_CHECKING:
    from raffed.runtime.ray_jobs import Jobs

SUBMITTED = ("run", "resume", "compare", "tune", "reproduce")
PLACES = {"resume": "place", "run": "out"}  # parameter that says where results are; "place" for the others
PASSED = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def submit(
    context: typer.Context,
    command: Annotated[str, typer.Argument(metavar="COMMAND", help=f"One of {', '.join(SUBMITTED)}, then its own options.")],
    address: Annotated[str | None, typer.Option("--address", help="Job server, else RAY_API_SERVER_ADDRESS.")] = None,
    working_dir: Annotated[
        Path | None, typer.Option("--working-dir", help="Folder to send, such as a checkout; else the TOML file alone.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Variable of the job; no secrets.")] = None,
    name: Annotated[str | None, typer.Option("--id", help="Id of the job; chosen by Ray if not given.")] = None,
    python: Annotated[str, typer.Option("--python", help="Python on the cluster that has raffed.")] = "python",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the log and end with the job's exit code.")] = True,
) -> None:
    """Run a command as a job of a Ray cluster.

    Options of submit stand before COMMAND, those of COMMAND after it. Results go to shared storage: --out takes a URL or an
    absolute path. Ctrl-C leaves the job running and says how to go on.
    """
    words = checked(command, context.args)
    variables = _variables(env or [])
    if address is not None and is_url(address):
        check_url(address)
    with sent(working_dir, words) as (folder, words):
        from raffed.runtime.ray_jobs import Jobs, Order

        jobs = Jobs(address)
        job = jobs.submit(Order([python, "-m", "raffed", *words], folder, variables, name))
    _say(f"job {job} at {jobs.address}")
    if wait:
        raise typer.Exit(_followed(jobs, job))
    _say(_again(jobs, job))


def checked(command: str, arguments: Sequence[str]) -> list[str]:
    """The words of the job's command. Raises UsageError for what the command would refuse, and for results that would stay on
    the cluster's local disk."""
    check_choice("command to submit", command, SUBMITTED)
    given = _parsed(command, arguments)
    place = given.get(PLACES.get(command, "place"))
    if not place or not (is_url(place) or Path(place).is_absolute()):
        what = "--out" if command != "resume" else "RUN"
        raise UsageError(f"{what} {place or ''}: a job's results go to shared storage; give a URL (s3://…) or an absolute path")
    if is_url(place):
        check_url(str(place))
    connected = [] if given.get("runtime_address") else ["--address", "auto"]
    return [command, *arguments, *connected]


def _parsed(command: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What the command makes of its arguments; names of methods, data sets, splits and models are checked for `run`."""
    from typer.main import get_command

    from raffed.cli.app import app
    from raffed.cli.config import read_config
    from raffed.cli.options import typed_flags
    from raffed.experiments.names import check_names

    group: Any = get_command(app)
    context = group.commands[command].make_context(command, list(arguments))
    given: dict[str, Any] = context.params
    if command == "run":
        typed = typed_flags(given)
        check_names(read_config(given["file"], {field: one for field, one in typed.items() if one not in (None, [], ())}))
    return given


@contextlib.contextmanager
def sent(working_dir: Path | None, words: Sequence[str]) -> Iterator[tuple[Path | None, list[str]]]:
    """The folder that travels with a job, and its command with the names that files have there."""
    files = [word for word in words if word.endswith(".toml") and Path(word).is_file()]
    if working_dir is not None:
        root = working_dir.resolve()
        if not root.is_dir():
            raise UsageError(f"--working-dir {working_dir}: no such folder")
        outside = [word for word in files if not Path(word).resolve().is_relative_to(root)]
        if outside:
            raise UsageError(f"{outside[0]} is not in --working-dir {working_dir}, so it would not travel; copy it there")
        yield root, [str(Path(w).resolve().relative_to(root)) if w in files else w for w in words]
    elif files:
        with tempfile.TemporaryDirectory(prefix="raffed-job-") as folder:
            for word in files:
                shutil.copy(word, folder)
            yield Path(folder), [Path(w).name if w in files else w for w in words]
    else:
        yield None, list(words)


def _variables(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError("--env: wanted NAME=VALUE")  # not repeated: it may be something that no log should hold
        found[name] = value
    return found


def _followed(jobs: Jobs, job: str) -> int:
    try:
        code = jobs.follow(job, lambda text: print(text, end="", flush=True))
    except KeyboardInterrupt:
        _say(f"the job goes on; {_again(jobs, job)}")
        return 130
    _say(f"job {job} succeeded" if code == 0 else f"job {job} did not succeed (exit code {code}): {jobs.message(job)}")
    return code


def _again(jobs: Jobs, job: str) -> str:
    """How to come back to a job, and how to end it."""
    at = f"--address {jobs.address} {job}"
    return f"follow it with `ray job logs --follow {at}`, stop it with `ray job stop {at}`"


def _say(text: str) -> None:
    print(f"raffed: {text}", file=sys.stderr, flush=True)
