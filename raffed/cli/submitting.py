"""The command `raffed submit`: run any command that executes runs as a job of a Ray cluster."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raffed.cli.numbers import counted
from raffed.errors import UsageError, check_choice
from raffed.results.storage import is_url
from raffed.results.url import check_url
from raffed.results.visible import visible
from raffed.scratch import scratch_folder

if TYPE_CHECKING:
    from raffed.runtime.job_files import PackageFiles
    from raffed.runtime.ray_backend.jobs import Jobs

SUBMITTED = ("run", "resume", "compare", "tune", "reproduce")
PLACES = {"resume": "place", "run": "out"}  # parameter that says where results go; "place" for other commands
PASSED = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def submit(
    context: typer.Context,
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND", help=f"One of {', '.join(SUBMITTED)}, followed by its own options."
        ),
    ],
    address: Annotated[
        str | None,
        typer.Option("--address", help="Job server; without it: the one in RAY_API_SERVER_ADDRESS."),
    ] = None,
    working_dir: Annotated[
        Path | None,
        typer.Option(
            "--working-dir",
            help="Folder to send, such as a checkout; without it: the TOML file, and the source files of "
            "your own code that the command or the file names.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="NAME=VALUE", help="Environment variable of the job; it must not be a secret."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--id", help="Id of the job; chosen by Ray if not given.")
    ] = None,
    python: Annotated[
        str, typer.Option("--python", help="Python on the cluster that has raffed.")
    ] = "python",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be sent, and send nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Also send more than 50 MB.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Follow the log and end with the job's exit code.")
    ] = True,
) -> None:
    """Run a command as a job of a Ray cluster.

    Options of submit stand before COMMAND, those of COMMAND after it. What is sent is listed first; what
    looks like a secret, links that lead out of the folder, data, results and caches stay here. Results go to
    shared storage: --out takes a URL or an absolute path. Ctrl-C leaves the job running and says how to go
    on.
    """
    words = checked(command, context.args, context.find_root().command)
    variables = _variables(env or [])
    if address is not None and is_url(address):
        check_url(address)
    chosen, words = chosen_files(working_dir, words)
    words = [python, "-P", "-m", "raffed", *words]
    _check_words(words)
    for line in listing(chosen, words, variables):
        print(visible(line), file=sys.stdout if dry_run else sys.stderr, flush=True)
    if dry_run:
        return
    _check_size(chosen, yes)
    with scratch_folder() as folder:
        from raffed.runtime.job_files import packed
        from raffed.runtime.ray_backend.jobs import JobOrder, Jobs

        package = packed(chosen, folder) if chosen is not None else None
        jobs = Jobs(address)
        job = jobs.submit(JobOrder(words, package, variables, name))
    _say(f"job {job} at {jobs.address}")
    if wait:
        raise typer.Exit(followed(jobs, job))
    _say(_again(jobs, job))


def checked(command: str, arguments: Sequence[str], group: Any) -> list[str]:
    """Return the words of the job's command.

    Raises:
        UsageError: The command would be refused, or its results would stay on the cluster's local disk.
    """
    check_choice("command to submit", command, SUBMITTED)
    given = _parsed(command, arguments, group)
    place = given.get(PLACES.get(command, "place"))
    if not place or not (is_url(place) or Path(place).is_absolute()):
        what = "--out" if command != "resume" else "RUN"
        raise UsageError(
            f"{what} {place or ''}: a job must write its results to shared storage; give a URL (s3://…) "
            "or an absolute path"
        )
    if is_url(place):
        check_url(str(place))
    connected = [] if given.get("runtime_address") else ["--address", "auto"]
    return [command, *arguments, *connected]


def _parsed(command: str, arguments: Sequence[str], group: Any) -> dict[str, Any]:
    """Return the command's parameters after parsing.

    For `run`, the names of methods, data sets, splits and models are checked.
    """
    from raffed.cli.config import read_config
    from raffed.cli.options import typed_flags
    from raffed.experiments.checks import check_names

    context = group.commands[command].make_context(command, list(arguments))
    given: dict[str, Any] = context.params
    if command == "run":
        typed = {field: one for field, one in typed_flags(given).items() if one not in (None, [], ())}
        file = given["file"]  # typer before 0.28 leaves it a text here
        check_names(read_config(None if file is None else Path(file), typed))
    return given


def chosen_files(working_dir: Path | None, words: Sequence[str]) -> tuple[PackageFiles | None, list[str]]:
    """Return what travels with a job (None: only the command), and the command with the files' names there.

    Raises:
        UsageError: A TOML file of the command, or a source file of own code, would not travel.
    """
    from raffed.cli.submitted_code import code_files, own_references
    from raffed.runtime.job_files import check_root, files_alone, files_below

    files = [word for word in words if word.endswith(".toml") and Path(word).is_file()]
    code = code_files(own_references(words, files), Path.cwd() if working_dir is None else working_dir)
    if working_dir is None:
        there = {Path(word).name: Path(word) for word in files}
        if len(there) < len({Path(word).resolve() for word in files}):
            raise UsageError(
                "two TOML files have the same name, so only one could be sent; rename one, or give "
                "--working-dir"
            )
        every = {**code, **there}
        return (files_alone(every) if every else None), [Path(w).name if w in files else w for w in words]
    root = check_root(working_dir)
    outside = [word for word in files if not Path(word).resolve().is_relative_to(root)]
    if outside:
        raise UsageError(
            f"{outside[0]} is not in --working-dir {working_dir}, so it would not be sent; copy it there"
        )
    chosen, names = (
        files_below(root),
        {word: Path(word).resolve().relative_to(root).as_posix() for word in files},
    )
    for word, name in {**names, **{str(file): name for name, file in code.items()}}.items():
        if reason := chosen.reason_against(name):
            raise UsageError(
                f"{word} would not be sent ({reason}), so the job could not read it; give it another "
                "place or name"
            )
    return chosen, [names.get(word, word) for word in words]


def listing(chosen: PackageFiles | None, words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return lines with the command, its variables, every file with its size, and what stays here and why."""
    from raffed.runtime.job_files import gathered

    lines = [f"command: {shlex.join(words)}"]
    lines += [f"variables: {', '.join(sorted(variables))}"] if variables else []
    if chosen is None:
        return [*lines, "sent: no file, the command alone"]
    lines += [f"sent: {one.size:>11,} bytes  {one.name}" for one in chosen.sent]
    lines += [f"stays here: {name}  ({reason})" for name, reason in gathered(chosen.withheld)]
    return [*lines, f"sent in all: {counted(len(chosen.sent), 'file')}, {chosen.size / 1e6:.3f} MB"]


def _check_size(chosen: PackageFiles | None, yes: bool) -> None:
    from raffed.runtime.job_files import LARGE

    if chosen is not None and chosen.size > LARGE and not yes:
        largest = max(chosen.sent, key=lambda one: one.size)
        raise UsageError(
            f"{chosen.size / 1e6:.1f} MB would be sent, more than {LARGE / 1e6:.0f} MB (the largest: "
            f"{largest.name}, {largest.size / 1e6:.1f} MB); nothing was sent: add --yes to send it, or "
            "name what should stay in .rayignore"
        )


def _check_words(words: Sequence[str]) -> None:
    """Refuse secrets in the command, because the job server shows it to everybody who may look."""
    from raffed.runtime.secret_files import secret_contents

    for word in words:
        if found := secret_contents(word.encode("utf-8", "replace"), "word.py"):
            raise UsageError(f"a word of the command {found}; the cluster would show it, so nothing was sent")


def _variables(texts: Sequence[str]) -> dict[str, str]:
    from raffed.runtime.secret_files import secret_contents

    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            # Not repeated, because it may be something that should not be logged
            raise UsageError("--env: each variable must have the form NAME=VALUE")
        if secret := secret_contents(text.encode("utf-8", "replace")):
            raise UsageError(
                f"--env {name}: {secret}; the dashboard shows a job's variables, so nothing was sent: set it "
                f"on the nodes"
            )
        found[name] = value
    return found


def followed(jobs: Jobs, job: str) -> int:
    """Print the log of a job until it ends, and return its exit code; 130 after Ctrl-C."""
    try:
        code = jobs.follow(job, lambda text: print(text, end="", flush=True))
    except KeyboardInterrupt:
        _say(f"the job goes on; {_again(jobs, job)}")
        return 130
    _say(
        f"job {job} succeeded"
        if code == 0
        else f"job {job} did not succeed (exit code {code}): {jobs.message(job)}"
    )
    return code


def _again(jobs: Jobs, job: str) -> str:
    """Return how to follow a job again, and how to end it."""
    at = f"--address {jobs.address} {job}"
    return f"follow it with `raffed logs --follow {at}`, stop it with `raffed stop {at}`"


def _say(text: str) -> None:
    print(f"raffed: {visible(text)}", file=sys.stderr, flush=True)
