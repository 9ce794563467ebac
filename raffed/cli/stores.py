"""`raffed cache` and `raffed runs`: what lies on disk, and how to remove what is not needed."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raffed.cli.numbers import counted, percent
from raffed.errors import UsageError
from raffed.results.visible import visible

if TYPE_CHECKING:
    from raffed.results.run_list import RunLine

cache = typer.Typer(no_args_is_help=True, help="List or clear the store of data given as arrays.")
runs = typer.Typer(no_args_is_help=True, help="Show what a folder of runs holds.")
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout, nothing else.")]


@cache.command("list")
def list_cache(as_json: Json = False) -> None:
    """List the data sets in the store: their hash, size and last use."""
    from raffed.cli.tables import show
    from raffed.data.array_cache import ArrayCache

    store = ArrayCache.of_user()
    found = store.entries()
    if as_json:
        for entry in found:
            typer.echo(json.dumps(asdict(entry)))
        return
    rows = [
        (
            one.sha256[:12],
            one.source or one.name,
            one.shapes.get("x", ""),
            size(one.size),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(one.used)),
        )
        for one in found
    ]
    if rows:
        show(("hash", "data", "samples", "size", "last used"), rows, right="size")
    total = size(sum(one.size for one in found))
    typer.echo(
        visible(f"{counted(len(found), 'data set')}, {total} of {size(store.limit)}, in {store.folder}")
    )


@cache.command("clear")
def clear_cache(
    sha256: Annotated[
        str, typer.Argument(metavar="[HASH]", help="First digits of a hash; without it: all data sets.")
    ] = "",
) -> None:
    """Remove one data set or all of them. Runs bring their data back from where they came from."""
    from raffed.data.array_cache import ArrayCache

    store = ArrayCache.of_user()
    known = [one.sha256 for one in store.entries()]
    if sha256 and not any(one.startswith(sha256.lower()) for one in known):
        raise UsageError(f"no data set in {store.folder} has a hash that begins with {sha256!r}")
    removed, freed = store.clear(sha256.lower())
    typer.echo(visible(f"removed {counted(removed, 'data set')}, {size(freed)}, from {store.folder}"))


@runs.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that holds runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs at or below a folder: method, data, split, seed, state, rounds and accuracy."""
    from raffed.cli.tables import show
    from raffed.results.run_list import run_lines

    found = list(run_lines(folder))
    if as_json:
        for line in found:
            typer.echo(json.dumps(asdict(line)))
        return
    titles = ("run", "method", "data", "split", "seed", "state", "rounds", "accuracy")
    if found:
        show(titles, [_cells(line) for line in found], right="seed|rounds|accuracy")
    for line in found:
        if line.note:
            typer.echo(visible(f"{line.path}: {line.note}"), err=True)
    typer.echo(visible(f"{counted(len(found), 'run')} in {folder}"))


def _cells(line: RunLine) -> tuple[str, ...]:
    seed = "" if line.seed is None else str(line.seed)
    rounds = f"{line.done}/{line.rounds}" if line.rounds else ""
    accuracy = "" if line.accuracy is None else percent(line.accuracy)
    return line.path, line.method, line.data, line.split, seed, line.state, rounds, accuracy


def size(number: int) -> str:
    """Write 1234567 bytes as "1.2 MB"."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"
