"""What portable bits cost: CPU seconds of a round, as a ratio to those with this machine's own arithmetic.

    python -m benchmarks.portable_cost [--only W1] [--repetitions 7] [--out FILE.json]

Two contestants of round_time, raffed-serial and raffed-serial-portable, compute a block in turn, each in a
process of its own. CPU seconds of a process are compared, which other work on the machine changes less than
wall time. The ratios are those of blocks of one repetition. RAFFED_DATA holds the data.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from benchmarks.process import Process, command

NAMES = ("raffed-serial", "raffed-serial-portable")
PATIENCE = 1800.0


def ratios(workload: str, rounds: int, repetitions: int) -> list[float]:
    """CPU seconds with portable bits over those without, one of each repetition; a block warms both up."""
    both = [Process(command(name, workload)) for name in NAMES]
    try:
        for one in both:
            one.start(PATIENCE)
        found = [
            [float(one.ask(PATIENCE, do="block", rounds=rounds)["cpu"]) for one in both]
            for _ in range(repetitions + 1)
        ]
    finally:
        for one in both:
            one.close()
    return [portable / usual for usual, portable in found[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=["W1", "W2", "W5"])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=1, help="rounds in a block")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table = {}
    for name in options.only:
        found = table[name] = ratios(name, options.rounds, options.repetitions)
        print(f"{name}: {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})", flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
