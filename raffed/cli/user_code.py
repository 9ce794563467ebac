"""The commands for code of one's own: `raffed new`, `raffed check` and `raffed leakage`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from raffed.api.creating import new_project
from raffed.cli.config import assignments, read_config
from raffed.cli.messages import counted, plain
from raffed.cli.options import FLAGS, AsJson, Flags, run_options
from raffed.cli.tables import mark, show
from raffed.results.text import tell

MARKS = {"holds": ("✓", "green"), "does not apply": ("·", "dim"), "fails": ("✗", "red")}


def check(
    reference: str,
    *,
    given: list[str] | None = None,
    kind: str | None = None,
    dataset: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Check a method, network, data set, split, loss, metric, schedule, selection or table.

    It is recognised by what it is. Exit code 0 if every check holds, 1 if one fails, 2 if the reference is
    wrong.

    Args:
        reference (REFERENCE): package.module:name, ./file.py:name, data such as csv:FILE?label=y, or a name.
        given (--set NAME=VALUE): Argument of what is checked; repeat.
        kind (KIND): What it is, such as loss or metric, where that cannot be recognised.
        dataset (SOURCE): Data that a network is checked with, such as npz:words.npz or cifar10.

    Examples:

        raffed check mylab.methods:myprox --set mu=0.1

        raffed check ./net.py:SmallNet

        raffed check ./bag.py:Bag --dataset npz:words.npz

        raffed check ./losses.py:focal --kind loss

        raffed check dirichlet:20:0.5
    """
    from raffed.testing import check as checked

    found = checked(reference, assignments(given or []), kind, dataset)
    if as_json:
        for one in found:
            tell(json.dumps({"event": "check", "kind": found.kind, "reference": reference, **vars(one)}))
        for note in found.notes:
            tell(json.dumps({"event": "note", "kind": found.kind, "reference": reference, "note": note}))
    else:
        rows = [(mark(*MARKS[one.state]), one.name, one.why or one.sentence) for one in found]
        show(("", "check", "what holds, or what is wrong"), rows, title=f"{reference}, a {found.kind}")
        for note in found.notes:
            tell(f"note: {note}")
        failed, total = len(found.failed), counted(len(found.found), "check")
        tell(f"{reference}: {total}, {failed} failed" if failed else f"{reference}: {total}, none failed")
    if not found.ok:
        raise typer.Exit(1)


def new(folder: Path) -> None:
    """Write a small project with a method, a network, data, a run and their tests.

    Args:
        folder (NAME): New folder; its name is the package's.

    Example:

        raffed new mylab && cd mylab && pip install -e . && pytest
    """
    for file in new_project(folder):
        tell(str(file))
    tell(f"next: cd {folder} && pip install -e '.[dev]' && pytest")


USED = ("method", "args", "data.dataset", "data.root", "data.download", "model.name", "model.args", "seed")


@run_options(without=[flag.field for flag in FLAGS if flag.field not in USED])
def leakage(
    flags: Flags,
    file: Path | None = None,
    *,
    images: Annotated[int, typer.Option(min=1)] = 4,
    iterations: Annotated[int, typer.Option(min=1)] = 100,
    restarts: Annotated[int, typer.Option(min=1)] = 2,
    as_json: AsJson = False,
) -> None:
    """Attack uploads by deep leakage from gradients, and say how much of an image leaks.

    Every client has one image and makes one step of plain SGD. The attacker knows all weights, the learning
    rate, and what was sent. An mse near 0 means that the server gets the image. The search needs a network
    with smooth activations, such as lenet_dlg.

    Args:
        file (EXPERIMENT.toml): TOML file of a run, of which method, data set, network and seed are used.
        images: Number of training images that are attacked.
        iterations: Iterations of L-BFGS for each start.
        restarts: Starts for each image.

    Example:

        raffed leakage --method ./prox.py:myprox --model lenet_dlg --images 1
    """
    from raffed.attacks.protocol import leakage as measured

    config = read_config(file, flags)
    found = measured(config, images=images, iterations=iterations, restarts=restarts)
    if as_json:
        tell(json.dumps({"event": "leakage", "method": config.method, **plain(found)}, allow_nan=False))
        return
    title = f"{config.method}, {config.model.name}, {config.data.dataset}: {counted(images, 'image')}"
    show(("metric", "value"), [(name, f"{value:.4g}") for name, value in found.items()], title=title)
