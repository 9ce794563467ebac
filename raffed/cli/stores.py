"""`raffed runs`: what a folder of runs holds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raffed.cli.numbers import counted, percent
from raffed.results.visible import visible

if TYPE_CHECKING:
    from raffed.results.run_list import RunLine

runs = typer.Typer(no_args_is_help=True, help="Show what a folder of runs holds.")
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout, nothing else.")]


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
