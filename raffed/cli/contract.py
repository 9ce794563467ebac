"""The command `raffed check`: the contract on a method, network, metric and the like of one's own."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from raffed.cli.config import assignments
from raffed.cli.numbers import counted
from raffed.results.visible import visible

MARKS = {"holds": ("✓", "green"), "does not apply": ("·", "dim"), "fails": ("✗", "red")}


def check(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REFERENCE",
            help="package.module:name, ./file.py:name, data such as csv:FILE?label=y, or a name.",
        ),
    ],
    given: Annotated[
        list[str] | None,
        typer.Option("--set", help="Argument of what is checked; repeat.", metavar="NAME=VALUE"),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="What it is, such as loss or metric, where that cannot be recognised.",
            metavar="KIND",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line on stdout, nothing else.")
    ] = False,
) -> None:
    """Check a method, network, data set, split, loss, metric, schedule, selection or table.

    It is recognised by what it is. Exit code 0 if every check holds, 1 if one fails, 2 if the reference is
    wrong.
    """
    from raffed.cli.tables import mark, show
    from raffed.testing import check as checked

    found = checked(reference, assignments(given or []), kind)
    if as_json:
        for one in found:
            print(json.dumps({"event": "check", "kind": found.kind, "reference": reference, **vars(one)}))
        for note in found.notes:
            print(json.dumps({"event": "note", "kind": found.kind, "reference": reference, "note": note}))
    else:
        rows = [(mark(*MARKS[one.state]), one.name, one.why or one.sentence) for one in found]
        show(("", "check", "what holds, or what is wrong"), rows, title=f"{reference}, a {found.kind}")
        for note in found.notes:
            print(visible(f"note: {note}"))
        failed, total = len(found.failed), counted(len(found.found), "check")
        print(
            visible(
                f"{reference}: {total}, {failed} failed" if failed else f"{reference}: {total}, none failed"
            )
        )
    if not found.ok:
        raise typer.Exit(1)
