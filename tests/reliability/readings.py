"""What a command made of a folder: exit code, streams, and the numbers that it left or showed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raffed.results.runfile import RUN_FILE, SWEEP_FILE
from raffed.results.sweep_file import DAMAGED
from tests.reliability.commands import Command

# What differs between two equal runs: times, the machine, hashes of files that hold seconds
VOLATILE = (
    *("seconds", "segments", "files", "contents_sha256", "hardware", "command", "commit", "run_id", "cost"),
    *("placement", "started"),
)


@dataclass(frozen=True)
class Reading:
    """What came of a command."""

    code: int | None  # None if the command did not end
    out: str
    err: str
    result: str  # what must be equal if nothing is said
    verdict: bool  # whether standard output says that something differs

    @property
    def last(self) -> str:
        """The last line of standard error."""
        return (self.err.strip().splitlines() or [""])[-1][:300]


def reading(name: str, command: Command, run: Path, report: Path) -> Reading:
    """What a command that has ended left: of `resume` and `tune` in the folder, of `verify` on the screen."""
    code = command.poll()
    out, err = (path.read_text(errors="replace") for path in (command.log, command.errors))
    result = ""
    if code == 0:
        result = {"verify": _shown, "report": _reported}.get(name, _kept)(out, run, report)
    return Reading(code, out, err, result, '"ok": false' in out)


def _shown(out: str, run: Path, report: Path) -> str:
    """The certificate, without seconds."""
    return json.dumps([_steady(json.loads(line)) for line in out.replace(str(run), "RUN").splitlines()])


def _kept(out: str, run: Path, report: Path) -> str:
    """The numbers of every run and sweep in a folder, hashes of weights too, and rows without seconds."""
    found: dict[str, object] = {}
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if DAMAGED in path.parts:  # where a sweep puts runs that it executes again
            continue
        if path.name in (RUN_FILE, SWEEP_FILE):
            found[name] = _steady(json.loads(path.read_text(encoding="utf-8")))
        elif re.match(r"(part-|trial).*\.parquet$", path.name):
            found[name] = _rows(path)
    return json.dumps(found, sort_keys=True, indent=1)


def _rows(path: Path) -> str:
    import pandas as pd

    try:
        rows = pd.read_parquet(path)
    except (OSError, ValueError):
        return "damaged"
    rows = rows.drop(columns=[one for one in rows if one in VOLATILE])
    return hashlib.sha256(rows.to_csv(index=False).encode()).hexdigest()


def _reported(out: str, run: Path, report: Path) -> str:
    """The tables of a report."""
    found = {}
    for path in sorted(report.rglob("*")):
        if path.suffix in (".csv", ".md", ".tex", ".json"):
            text = path.read_text(encoding="utf-8", errors="replace")
            found[path.relative_to(report).as_posix()] = text.replace(str(run), "RUN")
    return json.dumps(found, sort_keys=True, indent=1)


def _steady(value: object) -> object:
    """The same without what differs between two equal runs."""
    if isinstance(value, Mapping):
        return {name: _steady(one) for name, one in value.items() if name not in VOLATILE}
    return [_steady(one) for one in value] if isinstance(value, list) else value
