"""The command `raffed new`: a project for methods, networks and data of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raffed.commands.creating import new_project
from raffed.results.visible import visible


def new(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="New folder; its name is the package's.")],
) -> None:
    """Write a small project with a method, a network, data, a run and their tests."""
    for file in new_project(folder):
        typer.echo(visible(str(file)))
    typer.echo(visible(f"next: cd {folder} && pip install -e '.[dev]' && pytest"))
