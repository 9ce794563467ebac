"""A published benchmark to its last round: contestants side by side, each on a core of its own.

    RAFFED_DATA=DIR python -m benchmarks.whole --out FILE.json [--workload W8] [--rounds 1500]
    [--every 50] [--contestants raffed-serial,pfl]

W8 is pfl-research's CIFAR-10 benchmark as its configuration has it. Every so many rounds a contestant's model
is scored on the test set, which is not timed, and what is known so far is written to the file. All of them
make the same steps on the same partition from the same weights, in the same minutes, so a change of the
machine's speed meets everybody. There must be a core for each of them, and nothing else may run. If one of
them dies, the table says so, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.contestant import CONTESTANTS
from benchmarks.process import GoneError, Process, command
from benchmarks.round_time import machine
from benchmarks.workloads import workload

PATIENCE = 3600.0  # seconds that a contestant may take for one answer
ROUNDS, EVERY = 1500, 50


class Side:
    """One contestant on its way: after each part the rounds done, the seconds so far, and its accuracy."""

    def __init__(self, name: str, number: str, core: int) -> None:
        self.name, self._core, self._command = name, core, command(name, number)
        self.points: list[dict[str, float]] = []
        self.note = ""

    def go(self, rounds: int, every: int, told: threading.Condition) -> None:
        """Make all rounds, and tell after each part."""
        try:
            process = Process(self._command)
            try:
                psutil.Process(process.pid).cpu_affinity([self._core])  # before it makes threads
                process.start(PATIENCE)
                seconds = 0.0
                for first in range(0, rounds, every):
                    count = min(every, rounds - first)
                    seconds += sum(process.ask(PATIENCE, do="block", rounds=count)["seconds"])
                    accuracy = process.ask(PATIENCE, do="accuracy")["accuracy"]
                    with told:
                        self.points.append(
                            {"rounds": first + count, "seconds": seconds, "accuracy": accuracy}
                        )
                        told.notify()
            finally:
                process.close()
        except GoneError as gone:
            self.note = str(gone)
        with told:
            told.notify()

    def row(self) -> dict[str, Any]:
        """Return what is known so far, as plain data."""
        return {"contestant": self.name, "points": list(self.points), "note": self.note}


def side_by_side(
    names: Sequence[str], number: str, rounds: int, every: int, out: Path | None = None
) -> list[dict[str, Any]]:
    """Return a row of each contestant, and write them to a file after each part.

    Args:
        names: Names of the contestants.
        number: Name of the workload.
        rounds: Rounds that each of them makes.
        every: Rounds from one score to the next.
        out: The file, or None.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < len(names):
        raise ValueError(f"{len(names)} contestants need a core each, and there are {len(cores)}")
    told = threading.Condition()
    sides = [Side(name, number, core) for name, core in zip(names, cores, strict=False)]
    lanes = [threading.Thread(target=one.go, args=(rounds, every, told)) for one in sides]
    about = {"machine": machine(), "workload": number, "text": workload(number).text}
    before = ""
    with told:
        for lane in lanes:
            lane.start()
        while any(lane.is_alive() for lane in lanes):
            told.wait(timeout=5)
            rows = [one.row() for one in sides]
            if out is not None:
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
            said = ", ".join(f"{row['contestant']} {last(row)['rounds']:.0f}" for row in rows)
            if said != before:
                print(f"rounds done: {said}", flush=True)
            before = said
    return [one.row() for one in sides]


def last(row: dict[str, Any]) -> dict[str, float]:
    """Return the last point of a row, or one of zeros."""
    nothing: dict[str, float] = {"rounds": 0.0, "seconds": 0.0, "accuracy": 0.0}
    return row["points"][-1] if row["points"] else nothing


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the table of the end: time, its ratio to the first contestant's, and accuracy."""
    made = Table()
    for header in ("contestant", "rounds", "seconds", "ratio", "accuracy", "best", "note"):
        made.add_column(header, justify="left" if header in ("contestant", "note") else "right")
    base = last(rows[0])
    for row in rows:
        end = last(row)
        pace = end["seconds"] / end["rounds"] if end["rounds"] else 0.0
        floor = base["seconds"] / base["rounds"] if base["rounds"] else 0.0
        best = max((point["accuracy"] for point in row["points"]), default=0.0)
        shown = (
            f"{end['rounds']:.0f}",
            f"{end['seconds']:.0f}",
            f"{pace / floor:.2f}" if floor and pace else "–",
        )
        made.add_row(row["contestant"], *shown, f"{end['accuracy']:.4f}", f"{best:.4f}", row["note"])
    return made


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", default="W8")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--every", type=int, default=EVERY)
    parser.add_argument("--contestants", default="raffed-serial,pfl")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    names = options.contestants.split(",")
    unknown = [name for name in names if name not in CONTESTANTS]
    if unknown:
        parser.error(f"no contestant {unknown[0]!r}; there are {', '.join(CONTESTANTS)}")
    rows = side_by_side(names, options.workload, options.rounds, options.every, options.out)
    Console(width=max(Console().width, 120)).print(table(rows))


if __name__ == "__main__":
    main()
