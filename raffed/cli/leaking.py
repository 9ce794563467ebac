"""The command `raffed leakage`: what a server reads out of the uploads of a method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from raffed.cli.config import read_config
from raffed.cli.numbers import counted, plain
from raffed.cli.options import FLAGS, Flags, run_options
from raffed.results.visible import visible

USED = ("method", "args", "data.dataset", "data.root", "data.download", "model.name", "model.args", "seed")


@run_options(without=[flag.field for flag in FLAGS if flag.field not in USED])
def leakage(
    flags: Flags,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="TOML file of a run, of which method, data set, network and seed are used.",
            metavar="EXPERIMENT.toml",
        ),
    ] = None,
    images: Annotated[
        int, typer.Option("--images", help="Number of training images that are attacked.", min=1)
    ] = 4,
    iterations: Annotated[
        int, typer.Option("--iterations", help="Iterations of L-BFGS for each start.", min=1)
    ] = 100,
    restarts: Annotated[int, typer.Option("--restarts", help="Starts for each image.", min=1)] = 2,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write only JSON to stdout, one object per line.")
    ] = False,
) -> None:
    """Attack uploads of a method by deep leakage from gradients, and say how much of the images comes out.

    Every client has one image and makes one step of plain SGD. The attacker knows all weights, the learning
    rate, and what was sent. An mse near 0 means that the server gets the image. The search needs a network
    with smooth activations, such as lenet_dlg.
    """
    from raffed.attacks.own_leakage import leakage as measured
    from raffed.cli.tables import show

    config = read_config(file, flags)
    found = measured(config, images=images, iterations=iterations, restarts=restarts)
    if as_json:
        print(json.dumps({"event": "leakage", "method": config.method, **plain(found)}, allow_nan=False))
        return
    title = f"{config.method}, {config.model.name}, {config.data.dataset}: {counted(images, 'image')}"
    show(("metric", "value"), [(name, f"{value:.4g}") for name, value in found.items()], title=visible(title))
