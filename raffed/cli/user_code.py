"""The commands for code of one's own: `raffed new`, `check`, `leakage` and `adopt`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from raffed.api.creating import adopt as audited
from raffed.api.creating import new_project
from raffed.cli.config import assignments, read_config
from raffed.cli.messages import counted, few, tell_event
from raffed.cli.options import FLAGS, AsJson, Flags, run_options
from raffed.cli.tables import ABSENT, BROKEN, OK, show, show_pairs
from raffed.results.text import tell

MARKS = {"holds": OK, "does not apply": ABSENT, "fails": BROKEN}


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

    report = checked(reference, assignments(given or []), kind, dataset)
    if as_json:
        for outcome in report:
            tell_event({"event": "check", "kind": report.kind, "reference": reference, **vars(outcome)})
        for note in report.notes:
            tell_event({"event": "note", "kind": report.kind, "reference": reference, "note": note})
    else:
        rows = [(MARKS[outcome.state], outcome.name, outcome.why or outcome.sentence) for outcome in report]
        show(("", "check", "what holds, or what is wrong"), rows, title=f"{reference}, a {report.kind}")
        for note in report.notes:
            tell(f"note: {note}")
        failed, total = len(report.failed), counted(len(report.found), "check")
        tell(f"{reference}: {total}, {failed} failed" if failed else f"{reference}: {total}, none failed")
    if not report.ok:
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
    values = measured(config, images=images, iterations=iterations, restarts=restarts)
    if as_json:
        tell_event({"event": "leakage", "method": config.method, **values})
        return
    title = f"{config.method}, {config.model.name}, {config.data.dataset}: {counted(images, 'image')}"
    show(("metric", "value"), [(name, f"{value:.4g}") for name, value in values.items()], title=title)


# `raffed adopt`: what an author's checkout says about itself.


TITLES = {  # what the audit lists → the title of its table
    "flags": "Flags of the author's parser",
    "versions": "Versions that it was written for",
    "packages": "Packages that are not installed here",
    "missing": "Files that are not released",
    "undefined": "Names that nothing defines",
    "unreadable": "Files that are not Python of this version",
    "traps": "Habits that change numbers",
}


def adopt(path: Path, *, as_json: bool = False) -> None:
    """Show what released code of an author does, without executing anything of it.

    It finds the kind of engine, the methods and flags of its parser, what is missing, and which habits
    of the code change its numbers, each with file and line. `--json` prints all places.

    Args:
        path: Folder of the author's code.
        as_json (--json): Print one JSON object.

    Examples:
        raffed adopt ~/PFLlib
    """
    audit = audited(path)
    if as_json:
        tell_event({"event": "adopt", **audit})
    else:
        _show(audit)


def _show(audit: Mapping[str, Any]) -> None:
    methods = audit["methods"]
    lost = ", ".join(method["name"] for method in methods if not method["server"])
    show_pairs(
        (
            ("family", f"{audit['family']}, started by {audit['main']}"),
            ("commit", audit["commit"] or "not a checkout of git"),
            ("licence", audit["licence"] or "no file states one"),
            ("files", f"{counted(len(audit['files']), 'Python file')}, SHA-256 {audit['sha256']}"),
            ("methods", ", ".join(method["name"] for method in methods if method["server"])),
            ("not released", lost or "none of its methods"),
        )
    )
    for key, title in TITLES.items():
        cells = [entry.values() for entry in audit[key]]
        if rows := [[value if isinstance(value, str) else few(value) for value in row] for row in cells]:
            show(tuple(audit[key][0]), rows, title=title)
