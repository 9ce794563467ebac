"""The command `raffed export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raffed.cli.options import AcceptChangedCode, TrustCode


def export(
    place: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a finished run.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="New file for the state_dict, such as model.pt."),
    ] = None,
    onnx: Annotated[
        Path | None,
        typer.Option("--onnx", metavar="FILE", help="New file for the network as ONNX (raffed\\[onnx])."),
    ] = None,
    client: Annotated[
        int | None, typer.Option("--client", help="A client's personalised model in place of the global one.")
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The weights of the round that was best on validation data.")
    ] = False,
    accept: AcceptChangedCode = False,
    trust: TrustCode = False,
) -> None:
    """Write a run's final weights, by the names of your own class."""
    from raffed.experiments.saved_model import export as exported

    for path in exported(place, out, onnx, client, best, accept):
        typer.echo(str(path))
