"""The history of benchmarks: JSON lines with host and commit, and a figure of them.

    python -m benchmarks.history FILE.jsonl --out bench/history.svg

Every benchmark adds its figures with `--history FILE`: one line for each row of its table, with the time, the
host, the commit and whether the tree had changes beside it. A figure of a host is comparable only with those
of the same host, so each host has a line of its own in the plot.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

Number: TypeAlias = "int | float"
Row: TypeAlias = "Mapping[str, Number | str | None]"
ROOT = Path(__file__).resolve().parents[2]
KEYS = ("clients", "actors", "weights", "nodes", "workload", "name", "cohort", "sums")  # what a row is of

INCHES = 0.17  # of a line of a legend


def commit() -> tuple[str, bool]:
    """Return the commit of this tree, and whether files have changed since; ("", False) without git."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "", False
    return found.removesuffix("-dirty"), found.endswith("-dirty")


def host() -> str:
    """Return the host's kind: the processor, whether it has AVX-512, and the cores that this process may use.

    Two processors of one name differ most in that.
    """
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(one.partition(":")[2].strip() for one in lines if one.startswith("model name"))
        model += " with AVX-512" if any("avx512f" in one.split() for one in lines) else ""
    except (OSError, StopIteration):
        pass
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def add(file: Path, benchmark: str, rows: Sequence[Row]) -> None:
    """Add the rows of a benchmark to the history.

    Args:
        file: The file of JSON lines, which is made if it is missing.
        benchmark: Name of the benchmark.
        rows: The rows of its table: what was measured (KEYS), and the figures.
    """
    sha, changed = commit()
    about = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "host": host(), "commit": sha}
    load = os.getloadavg()[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as target:
        for row in rows:
            whole = {**about, "changed": changed, "load": round(load, 1), "benchmark": benchmark, **row}
            target.write(json.dumps(whole) + "\n")


def lines_in(file: Path) -> Iterator[dict[str, Number | str | None]]:
    """Return the lines of a history, oldest first.

    Raises:
        ValueError: A line is not a JSON object; the message names it.
    """
    for number, text in enumerate(file.read_text().splitlines(), 1):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: not JSON ({error}); delete or mend the line") from error
        if not isinstance(found, dict):
            raise ValueError(f"{file}, line {number}: not a JSON object; delete or mend the line")
        yield found


Points: TypeAlias = "dict[tuple[str, str], dict[str, list[tuple[str, float]]]]"


def series(lines: Iterator[dict[str, Number | str | None]]) -> Points:
    """Return (benchmark, figure) → host and row → [(commit, value)], in the order of the history."""
    found: Points = defaultdict(lambda: defaultdict(list))
    for line in lines:
        of = ", ".join(f"{key} {line[key]}" for key in KEYS if line.get(key) is not None)
        for name, value in line.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or name in (*KEYS, "load"):
                continue
            who = f"{of} ({line['host']})"
            found[str(line["benchmark"]), name][who].append((str(line["commit"])[:8], float(value)))
    return found


def plot(file: Path, out: Path) -> None:
    """Draw a panel for each figure of each benchmark, by commit, with a line for each row and host."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    found = series(lines_in(file))
    commits = list(dict.fromkeys(str(line["commit"])[:8] for line in lines_in(file)))
    heights = [max(2.6, 0.3 + INCHES * len(rows)) for _, rows in sorted(found.items())] or [2.6]
    figure, panels = pyplot.subplots(
        len(heights),
        1,
        squeeze=False,
        figsize=(11, sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    for panel, ((benchmark, name), rows) in zip(panels[:, 0], sorted(found.items()), strict=False):
        for who, points in rows.items():
            places = [commits.index(sha) for sha, _ in points]
            panel.plot(places, [value for _, value in points], marker="o", label=who)
        panel.set_title(f"{benchmark}: {name}", loc="left")
        panel.set_xticks(range(len(commits)), commits, rotation=45)
        panel.set_ylim(bottom=0)
        panel.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, default=Path("bench/history.svg"))
    options = parser.parse_args()
    if not options.file.exists():
        parser.error(f"{options.file} is missing; a benchmark makes it with --history {options.file}")
    plot(options.file, options.out)
    print(options.out)


if __name__ == "__main__":
    main()
