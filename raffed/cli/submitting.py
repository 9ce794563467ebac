"""`raffed submit`, `jobs`, `logs` and `stop`: run a command that executes runs as a job of a Ray cluster."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from raffed.cli.config import read_config
from raffed.cli.messages import counted, duration
from raffed.cli.options import typed_flags
from raffed.cli.tables import show
from raffed.config.toml import read_toml
from raffed.errors import UsageError, check_choice
from raffed.own.gate import handed_on, texts_of
from raffed.own.located import CodeLocation, files_of, is_file, is_reference, located
from raffed.results.remote import check_url
from raffed.results.storage import is_url
from raffed.results.text import tell
from raffed.scratch import scratch_folder

if TYPE_CHECKING:
    from raffed.runtime.ray.jobs import Jobs

# The commands `raffed jobs`, `logs` and `stop`: look after the jobs that `raffed submit` has started.


def check_address(address: str | None) -> None:
    """Refuse the URL of a job server with a secret in it."""
    if address is not None and is_url(address):
        check_url(address)


def _server(address: str | None) -> Jobs:
    """Return the job server at an address."""
    check_address(address)
    from raffed.runtime.ray.jobs import Jobs

    return Jobs(address)


def jobs(*, address: str | None = None) -> None:
    """List the jobs of a Ray cluster, the newest first: id, state, time and command.

    Args:
        address: Job server; without it: the one in RAY_API_SERVER_ADDRESS.
    """
    listed = _server(address).listed()
    if not listed:
        tell("no job was submitted to this cluster")
        return
    now = time.time()
    rows = [
        (job.name, job.state, duration((job.ended or now) - job.began) if job.began else "–", job.command)
        for job in listed
    ]
    show(("id", "state", "time", "command"), rows, right="time")


def logs(name: str, *, address: str | None = None, follow: bool = False) -> None:
    """Print the log of a job; with --follow until the job ends, with its exit code.

    Args:
        name (ID): Id of the job, as `raffed jobs` lists it.
        address: Job server; without it: the one in RAY_API_SERVER_ADDRESS.
        follow (--follow/--no-follow): Go on until the job ends, and end as it does.
    """
    server = _server(address)
    if follow:
        server.check_known(name)
        raise typer.Exit(followed(server, name))
    print(server.log(name), end="", flush=True)


def stop(name: str, *, address: str | None = None) -> None:
    """Stop a job. Its runs get a signal, write a checkpoint and can be resumed.

    Args:
        name (ID): Id of the job, as `raffed jobs` lists it.
        address: Job server; without it: the one in RAY_API_SERVER_ADDRESS.
    """
    server = _server(address)
    said = f"job {name} was asked to stop" if server.stop(name) else f"job {name} had ended already"
    tell(f"raffed: {said}", error=True)


SUBMITTED = ("run", "resume", "compare", "tune", "reproduce")
PLACES = {"resume": "place", "run": "out"}  # parameter that says where results go; "place" for other commands
LARGE = 50_000_000  # bytes in total; more is sent only if the user asks for it
PASSED = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


class Parcel(NamedTuple):
    """What travels with a job.

    Attributes:
        files: Path in the job's folder → file here, without --working-dir.
        folder: The folder of --working-dir, which Ray packs.
        excludes: Patterns of what Ray leaves out of that folder.
    """

    files: Mapping[str, Path]
    folder: Path | None = None
    excludes: Sequence[str] = ()

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file that travels, or that .gitignore and .rayignore leave out."""
        if self.folder is None:
            return {name: path.stat().st_size for name, path in self.files.items()}
        return {
            path.relative_to(self.folder).as_posix(): path.stat().st_size
            for path in _files_below(self.folder, self.excludes)
        }


def submit(
    context: typer.Context,
    command: str,
    *,
    address: str | None = None,
    working_dir: Path | None = None,
    env: list[str] | None = None,
    name: str | None = None,
    python: str = "python",
    dry_run: bool = False,
    yes: bool = False,
    wait: bool = True,
) -> None:
    """Run a command as a job of a Ray cluster.

    Options of submit stand before COMMAND, those of COMMAND after it. What is sent is shown first. Results go
    to shared storage: --out takes a URL or an absolute path. Ctrl-C leaves the job running and says how to go
    on.

    Args:
        command (COMMAND): One of run, resume, compare, tune, reproduce, followed by its own options.
        address: Job server; without it: the one in RAY_API_SERVER_ADDRESS.
        working_dir: Folder to send, such as a checkout; without it: the TOML file, and the source files of
            your own code that the command or the file names.
        env (NAME=VALUE): Environment variable of the job; it must not be a secret.
        name (--id): Id of the job; chosen by Ray if not given.
        python: Python on the cluster that has raffed.
        dry_run: List what would be sent, and send nothing.
        yes: Also send more than 50 MB.
        wait (--wait/--no-wait): Follow the log and end with the job's exit code.

    Examples:

        raffed submit run exp.toml --out s3://bucket/runs/a

        raffed submit --working-dir . tune --method fedmr --out /shared/sweeps/a

        raffed submit reproduce map/table1 --scale full --out gs://bucket/reproduce

    Token:

        Ray's client sends the one in RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token.
    """
    words = checked(command, context.args, context.find_root().command)
    variables = handed_on() | _variables(env or [])
    check_address(address)
    parcel, words = parcel_of(working_dir, words)
    words = [python, "-P", "-m", "raffed", *words]
    sizes = parcel.sizes()
    for line in listing(parcel, sizes, words, variables):
        tell(line, error=not dry_run)
    if dry_run:
        return
    _check_size(sizes, yes)
    with scratch_folder() as scratch:
        from raffed.runtime.ray.jobs import JobOrder

        folder = _gathered(parcel.files, scratch / "job") if parcel.files else parcel.folder
        jobs = _server(address)
        job = jobs.submit(JobOrder(words, folder, parcel.excludes, variables, name))
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
    from raffed.runs.run import check_names

    context = group.commands[command].make_context(command, list(arguments))
    given: dict[str, Any] = context.params
    if command == "run":
        # Typer before 0.28 leaves the file a text here
        check_names(read_config(given["file"] and Path(given["file"]), typed_flags(given)))
    return given


def parcel_of(working_dir: Path | None, words: Sequence[str]) -> tuple[Parcel, list[str]]:
    """Return what travels with a job, and the command with the names that files have there.

    Raises:
        UsageError: A TOML file of the command, or a source file of own code, would not travel.
    """
    root = Path(os.path.realpath(working_dir or Path.cwd()))
    if not root.is_dir():
        raise UsageError(f"--working-dir {working_dir}: there is no such folder")
    files = [word for word in words if word.endswith(".toml") and Path(word).is_file()]
    code = code_files(own_references(words, files), root)
    if working_dir is None:
        there = {Path(word).name: Path(word) for word in files}
        if len(there) < len({Path(word).resolve() for word in files}):
            raise UsageError(
                "two TOML files have the same name, so only one could be sent; rename one, or give "
                "--working-dir"
            )
        return Parcel({**code, **there}), [Path(w).name if w in files else w for w in words]
    if outside := [word for word in files if not Path(word).resolve().is_relative_to(root)]:
        raise UsageError(
            f"{outside[0]} is not in --working-dir {working_dir}, so it would not be sent; copy it there"
        )
    from raffed.runtime.ray.jobs import excluded

    names = {word: Path(word).resolve().relative_to(root).as_posix() for word in files}
    return Parcel({}, root, [*excluded(), *_linked_folders(root)]), [names.get(word, word) for word in words]


def _linked_folders(root: Path) -> list[str]:
    """Return patterns of the links to folders, which Ray would follow wherever they lead."""
    links = (Path(place) / name for place, folders, _ in os.walk(root) for name in folders)
    names = [path.relative_to(root).as_posix() for path in links if path.is_symlink()]
    return ["/" + re.sub(r"[^\w/]", r"\\\g<0>", name) for name in names]


def _files_below(root: Path, excludes: Sequence[str]) -> Iterator[Path]:
    """Yield the files below a folder that no pattern of cluster/runtime_env.yaml excludes."""
    for place, folders, files in os.walk(root):
        at_top = Path(place) == root
        folders[:] = [name for name in folders if not _is_excluded(name, at_top, True, excludes)]
        for name in files:
            path = Path(place) / name
            if path.is_file() and not _is_excluded(name, at_top, False, excludes):
                yield path


def _is_excluded(name: str, at_top: bool, is_folder: bool, excludes: Sequence[str]) -> bool:
    excluded = False
    for pattern in excludes:
        plain = pattern.removeprefix("!")
        fits = (is_folder or not plain.endswith("/")) and (at_top or not plain.startswith("/"))
        if fits and fnmatchcase(name, plain.removeprefix("**/").strip("/")):
            excluded = not pattern.startswith("!")
    return excluded


def _gathered(files: Mapping[str, Path], folder: Path) -> Path:
    """Copy files into a folder, under the names that they have in the job, and return the folder."""
    for name, path in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    return folder


def listing(
    parcel: Parcel, sizes: Mapping[str, int], words: Sequence[str], variables: Mapping[str, str]
) -> list[str]:
    """Return lines with the command, its variables, and what is sent with its size."""
    lines = [f"command: {shlex.join(words)}"]
    lines += [f"variables: {', '.join(sorted(variables))}"] if variables else []
    total = f"{counted(len(sizes), 'file')}, {sum(sizes.values()):,} bytes"
    if parcel.folder is not None:
        return [
            *lines,
            f"sent: {parcel.folder} with {total}, less what .gitignore and .rayignore name; no linked folder",
        ]
    if not sizes:
        return [*lines, "sent: no file, the command alone"]
    lines += [f"sent: {size:>11,} bytes  {name}" for name, size in sizes.items()]
    return [*lines, f"sent in all: {total}"]


def _check_size(sizes: Mapping[str, int], yes: bool) -> None:
    total = sum(sizes.values())
    if total > LARGE and not yes:
        largest = max(sizes, key=lambda name: sizes[name])
        raise UsageError(
            f"{total / 1e6:.1f} MB would be sent, more than {LARGE / 1e6:.0f} MB (the largest: {largest}, "
            f"{sizes[largest] / 1e6:.1f} MB); nothing was sent: add --yes to send it"
        )


def _variables(texts: Sequence[str]) -> dict[str, str]:
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            # Not repeated, because it may be something that should not be logged
            raise UsageError("--env: each variable must have the form NAME=VALUE")
        variables[name] = value
    return variables


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
    tell(f"raffed: {text}", error=True)


def own_references(words: Sequence[str], files: Iterable[str]) -> list[str]:
    """Return the references among the words of a command, and those in its TOML files.

    Args:
        words: The command's words, such as `--method`, `./prox.py:myprox`.
        files: The TOML files among them.
    """
    typed = [word.partition("=")[2] if word.startswith("--") and "=" in word else word for word in words]
    named = [text for file in files for text in texts_of(read_toml(Path(file)))]
    every = (word.strip() for text in [*typed, *sorted(named)] for word in text.split(","))
    return [word for word in dict.fromkeys(every) if is_reference(word)]


def code_files(references: Iterable[str], root: Path) -> dict[str, Path]:
    """Return the source files of own code: path below the job's folder → file here.

    Code of installed packages stays here, since the cluster has its own.

    Args:
        references: The references of the command.
        root: The folder that becomes the job's.

    Raises:
        UsageError: A file lies outside the folder, so the job would not find it by the same reference.
    """
    files: dict[str, Path] = {}
    for reference in references:
        home = reference.rpartition(":")[0]
        place = located(home)
        if place is None and is_file(home):
            raise UsageError(f"{reference}: there is no file {home}, so the job could not read it")
        if place is not None and "site-packages" not in Path(place.root).parts:
            files |= _files(reference, place, root)
    return files


def _files(reference: str, place: CodeLocation, root: Path) -> dict[str, Path]:
    base = root if is_file(place.home) else Path(place.root)
    every = files_of(place)
    outside = [file for file in every if not file.resolve().is_relative_to(base.resolve())]
    typed = Path(place.home)
    if outside or (is_file(place.home) and (typed.is_absolute() or ".." in typed.parts)):
        raise UsageError(
            f"{reference}: {place.file} would not be found by this name in the job; start in the folder that "
            f"holds it and write ./{Path(place.file).name}:{reference.rpartition(':')[2]}"
        )
    return {file.resolve().relative_to(base.resolve()).as_posix(): file for file in every}
