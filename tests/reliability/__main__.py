"""Kill raffed's processes and damage its files, through the command line only.

    python -m tests.reliability --kills 300 --damages 1000 --log reliability.jsonl --seed 0

The log has one JSON line a case. A suite that was interrupted goes on where its log ends. At the end a table
is printed; the exit code is 1 if a goal is missed. tests/reliability/README.md describes what is promised.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.reliability.case_log import GOOD, UNCOUNTED, Case, CaseLog
from tests.reliability.damages import damages
from tests.reliability.figures import figures
from tests.reliability.kills import kills
from tests.reliability.readings import Reading
from tests.reliability.sources import sources
from tests.warm import MORE

USED = (  # by the commands that are forked by the hundred
    "matplotlib.pyplot",
    "raffed.analysis.report",
    "raffed.api.reporting",
    "raffed.data.datasets",
    "raffed.runs.verify",
    "raffed.methods.map",
    "sklearn.datasets",
)
Over = Callable[[], bool]
FEW = 50  # so few damages are not worth a sweep, which starts Ray


def main(words: list[str] | None = None) -> int:
    wanted = arguments().parse_args(words)
    log = CaseLog(wanted.log, revision())
    until = time.monotonic() + 60 * wanted.minutes if wanted.minutes else float("inf")
    part = tuple(int(one) for one in wanted.part.split("/"))

    def over() -> bool:
        return time.monotonic() > until

    where = wanted.work or Path(tempfile.mkdtemp(prefix="raffed-reliability-"))
    try:
        damage(log, wanted.damages, wanted.seed, where, (part[0], part[1]), over)
        kill(log, wanted.kills, wanted.seed, where, (part[0], part[1]), over)
    finally:
        if wanted.work is None and not log.faults():
            shutil.rmtree(where, ignore_errors=True)
    print(figures(log.cases))
    goals = {"kill": wanted.kills, "damage": wanted.damages}
    missed = any(len(log.counted(kind)) < goal for kind, goal in goals.items())
    return 1 if log.faults() or missed else 0


def kill(log: CaseLog, wanted: int, seed: int, work: Path, part: tuple[int, int], over: Over) -> None:
    """Kill processes until the log has enough cases."""
    for chain in kills(seed, work / "kills", part):
        if len(log.counted("kill")) >= wanted or over():
            return
        if log.has(f"kill-{seed}-{chain.number}-0"):
            continue
        try:
            cases = chain.carried_out(wanted - len(log.counted("kill")))
        except RuntimeError as error:  # there is nothing to compare with
            key = f"kill-{seed}-{chain.number}-0"
            cases = [Case(key, "kill", "none", chain.execution.name, chain.method, f"not begun: {error}")]
        for case in cases:
            log.add(case)
            show(case)


def damage(log: CaseLog, wanted: int, seed: int, work: Path, part: tuple[int, int], over: Over) -> None:
    """Damage files until the log has enough cases."""
    if len(log.counted("damage")) >= wanted:
        return
    whole: dict[tuple[str, str], Reading] = {}
    for one in damages(seed, sources(work, sweeps=wanted > FEW), work / "damages", part):
        if len(log.counted("damage")) >= wanted or over():
            return
        if not log.has(one.key):
            log.add(one.carried_out(whole))
            show(log.cases[-1])


def revision() -> str:
    """The commit of this checkout, with a + if files differ from it; empty outside a checkout."""
    said = subprocess.run(
        ["git", "describe", "--always", "--abbrev=8", "--dirty=+", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return said.stdout.strip()


def show(case: Case) -> None:
    """One line about a case while the suite runs; faults begin with two exclamation marks."""
    mark = "  " if case.outcome in (*GOOD, *UNCOUNTED) else "!!"
    what = f"{case.key} {case.execution} {case.method} {case.target} {case.signal}"
    print(f"{mark} {what}: {case.outcome}", flush=True)


def arguments() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__.splitlines()[0])
    made.add_argument("--kills", type=int, default=300, help="how many signals are sent")
    made.add_argument("--damages", type=int, default=1000, help="how many files are damaged")
    made.add_argument("--log", type=Path, required=True, help="file of the log, which is continued")
    made.add_argument("--seed", type=int, default=0, help="another seed makes other cases")
    made.add_argument("--minutes", type=float, default=0.0, help="stop after so many minutes; 0: never")
    made.add_argument("--part", default="0/1", help="K/N: only every N-th case, from the K-th")
    made.add_argument(
        "--work", type=Path, default=None, help="folder for the files of runs; faults leave theirs there"
    )
    return made


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was begun is ended
    os.environ[MORE] = " ".join(USED)
    sys.exit(main())
