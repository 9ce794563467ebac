"""The commands `raffed bundle` and `raffed replay`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import raffed
from raffed.cli.checking import MARKS
from raffed.cli.messages import counted, duration, plain
from raffed.cli.options import AsJson, DataRoot
from raffed.cli.tables import mark, show
from raffed.results.storage import named
from raffed.results.text import tell

if TYPE_CHECKING:
    from raffed.bundles.replaying import Replay

SHORT = 16


def bundle(place: str, *, out: Path, license: str = "", as_json: AsJson = False) -> None:
    """Write a run, a comparison, a sweep or a reproduced table into one zip for reviewers.

    It has configurations, partitions, rows, hashes, versions of packages, own code and, unless it is a single
    run, report.html, but no data and no weights. Texts are not searched for names or secrets, so read it
    before you publish it. The same results give the same bytes.

    Args:
        place (PLACE): Folder or URL of a run, a comparison, a sweep or a reproduced table.
        out (FILE): New file for the zip, such as map.zip.
        license: Terms of use of the results, as a text or a URL.

    Examples:

        raffed bundle runs/a --out a.zip

        raffed bundle sweeps/fedmr --out fedmr.zip --license https://creativecommons.org/licenses/by/4.0/
    """
    found = raffed.bundle(place, out, license=license)
    if as_json:
        tell(json.dumps({"event": "bundle", **asdict(found), "path": str(found.path)}, allow_nan=False))
        return
    what = f"{counted(len(found.runs), 'run')}, {counted(found.files, 'file')}, {found.size:,} bytes"
    tell(f"{found.path}: {what}")
    tell(f"sha256 {found.sha256}")
    for one in found.left_out:
        tell(f"left out: {named(one)}")


def replay(
    archive: Path,
    *,
    out: Path,
    rounds: Annotated[int, typer.Option(min=0)] = 0,
    run: list[str] | None = None,
    data_root: DataRoot = None,
    trust_code: bool = False,
    as_json: AsJson = False,
) -> None:
    """Execute the runs of a bundle again, and say what is equal.

    The exit code is 0 if everything has the recorded bits, 1 if something differs, and 2 if the bundle is
    refused. It may come from a stranger: it is checked before anything is written, and nothing is downloaded.

    Args:
        archive (ZIP): File that `raffed bundle` wrote.
        out (FOLDER): New folder for the recorded and the new results.
        rounds: Number of rounds to execute of each run; 0: all.
        run (NAME): Only this run of the bundle; repeat for more.
        trust_code: Execute the code that the bundle brings. Read it first.

    Examples:

        raffed replay a.zip --out again

        raffed replay fedmr.zip --out again --run fedmr/final/seed-0 --rounds 5
    """
    found = raffed.replay(
        archive,
        out,
        rounds=rounds,
        only=run or (),
        data_root=data_root,
        trust_code=trust_code,
        progress=sys.stdout.isatty() and not as_json,
    )
    if as_json:
        tell(json.dumps({"event": "replay", **plain(found.as_dict())}, allow_nan=False))
    else:
        _show(found)
    if not found.ok:
        raise typer.Exit(1)


def _show(found: Replay) -> None:
    """Show a table of what was compared for each run, and what may explain differences."""
    rows = [
        (
            one.name,
            check.what if check.round is None else f"{check.what}, round {check.round}",
            check.recorded[:SHORT],
            check.found[:SHORT],
            mark(*MARKS["ok" if check.ok else "broken"]),
        )
        for one in found.runs
        for check in one.checks
    ]
    show(("run", "what", "recorded", "found", ""), rows, title="Replay")
    equal = sum(one.ok for one in found.runs)
    rounds = sum(one.rounds for one in found.runs)
    words = (
        f"{equal} of {counted(len(found.runs), 'run')}, {counted(rounds, 'round')}, {duration(found.seconds)}"
    )
    tell(f"EQUAL: {words}" if found.ok else f"NOT EQUAL: {words}")
    for one in found.runs:
        for note in one.notes:
            tell(f"{one.name}: {note}")
        if one.differs:
            explained = "" if one.ok else " (may explain other bits)"
            tell(f"{one.name}: versions differ: {', '.join(one.differs)}{explained}")
    out = found.folder
    tell(f"raffed report {out}/recorded --out {out}/report shows what was recorded")
