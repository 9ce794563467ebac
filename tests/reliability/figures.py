"""The figures of tests/reliability/README.md, from the logs of the suite.

    python -m tests.reliability.figures reliability.jsonl --into tests/reliability/README.md

They are printed, or put between the two comments of a page.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.reliability.case_log import GOOD, UNCOUNTED, Case, CaseLog
from tests.reliability.targets import HANG

BEGIN, END = "<!-- figures of tests/reliability/figures.py -->", "<!-- end of the figures -->"
Of = Callable[[Case], str]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.figures", description=__doc__)
    parser.add_argument("logs", type=Path, nargs="+", help="logs of the suite")
    parser.add_argument("--into", type=Path, help="a page that has the two comments")
    wanted = parser.parse_args(words)
    found = figures([case for log in wanted.logs for case in CaseLog(log).cases])
    if wanted.into is None:
        print(found)
    else:
        wanted.into.write_text(inserted(wanted.into.read_text(encoding="utf-8"), found), encoding="utf-8")
    return 0


def figures(cases: Sequence[Case]) -> str:
    """All tables, in Markdown."""
    counted = [one for one in cases if one.outcome not in UNCOUNTED]
    kills, damages = ([one for one in counted if one.kind == kind] for kind in ("kill", "damage"))
    parts = [_overview(cases, counted, kills, damages)]
    if kills:
        parts += [
            "Kills by target and signal:\n\n" + crossed(kills, "target", target, lambda one: one.signal),
            "Kills by execution and outcome:\n\n"
            + crossed(kills, "execution", lambda one: one.execution, outcome),
        ]
    if damages:
        parts += [
            "Damages by kind and outcome:\n\n" + crossed(damages, "damage", lambda one: one.signal, outcome),
            "Damages by command and outcome:\n\n"
            + crossed(damages, "command", lambda one: one.execution, outcome),
            "Damages by file and outcome:\n\n" + crossed(damages, "file", file, outcome),
        ]
    return "\n\n".join(parts)


def _overview(cases: Sequence[Case], counted: Sequence[Case], *kinds: Sequence[Case]) -> str:
    kills, damages = kinds
    faults = [one for one in counted if one.outcome not in GOOD]
    spread = ", ".join(
        f"{len({of(one) for one in kills})} {name}"
        for name, of in (
            ("signals", lambda one: one.signal),
            ("targets", target),
            ("executions", lambda one: one.execution),
            ("methods", lambda one: one.method),
        )
    )
    endings = [float(one.details.get("after") or 0.0) for one in kills]
    revisions = Counter((one.kind, one.revision or "unknown") for one in counted)
    lines = [
        f"{len(kills)} kills ({spread}) and {len(damages)} damages were counted. "
        f"{len(cases) - len(counted)} cases came too late or were impossible, and are not counted. "
        f"Faults: {len(faults)}.",
        *(f"- {one.key}, {one.target}, {one.signal or one.execution}: {one.outcome}" for one in faults),
    ]
    if endings:
        lines.append(
            f"The longest wait after a signal, until the command had ended or went on, took "
            f"{max(endings):.0f} seconds by the clock. More than {HANG:.0f} seconds by the clock: "
            f"{sum(one > HANG for one in endings)}; hangs by the rule above: "
            f"{sum(one.outcome == 'hang' for one in kills)}."
        )
    lines.append(
        "Revisions: "
        + ", ".join(f"{name} ({n} {kind}s)" for (kind, name), n in sorted(revisions.items()))
        + "."
    )
    return "\n".join(lines)


def crossed(cases: Sequence[Case], head: str, row: Of, column: Of) -> str:
    """A table of numbers of cases, with a column for each value of `column` and one for all."""
    columns = sorted({column(one) for one in cases})
    counts = Counter((row(one), column(one)) for one in cases)
    rows = [
        (
            name,
            *(str(counts[name, one] or "") for one in columns),
            str(sum(counts[name, one] for one in columns)),
        )
        for name in sorted({row(one) for one in cases})
    ]
    lines = [(head, *columns, "all"), *rows]
    head_line, *others = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head_line, "|---" * len(lines[0]) + "|", *others])


def target(case: Case) -> str:
    return case.target


def outcome(case: Case) -> str:
    return case.outcome


def file(case: Case) -> str:
    """The name of a damaged file, without numbers and without its run or sweep."""
    return re.sub(r"^\w+: ", "", case.target).rpartition("/")[2]


def inserted(page: str, found: str) -> str:
    """The page with these figures between the two comments; ValueError if one is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must have the comments {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{found}\n\n{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
