"""Peak memory of every process of a run: 100 LeNet clients packed on two actors, MAP, so that every client
has a vault.

    python -m benchmarks.memory [--method map] [--rounds 5] [--actors 2]

Prints the largest sum over processes, sampled every quarter second: PSS counts shared pages once (the honest
figure), RSS counts them in every process. Ray's own processes are included. Also the PSS of each kind of
process at that moment, and seconds from the command to the end of round 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil


def tree(pid: int) -> list[psutil.Process]:
    """The process and all that descends from it."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


ROLES = (  # what a process is, by a word of its command line
    ("ray::ClientActor", "client actors"),
    ("ray::Driver", "driver actor"),
    ("raylet/raylet", "Ray: raylet"),
    ("gcs_server", "Ray: gcs_server"),
    ("ray", "Ray: other processes"),
)


def role(process: psutil.Process) -> str:
    """What a process is, in words."""
    words = process.cmdline()
    line = " ".join(words)
    if "raffed" in words or "benchmarks.contestant" in words:
        return "command"
    return next((name for word, name in ROLES if word in line), "other processes")


def sampled(
    pid: int, peaks: dict[str, float], stop: threading.Event, by_role: dict[str, float] | None = None
) -> None:
    """Keep the largest sums of PSS and RSS, in MiB, until `stop`; at least one sample.

    `by_role` gets the PSS of each kind of process when their sum was largest.
    """
    more = True
    while more:
        roles: dict[str, float] = {}
        rss = 0.0
        for process in tree(pid):
            try:
                info, what = process.memory_full_info(), role(process)
            except psutil.Error:  # ended since it was listed
                continue
            roles[what] = roles.get(what, 0.0) + info.pss / 2**20
            rss += info.rss / 2**20
        pss = sum(roles.values())
        if by_role is not None and pss > peaks["pss"]:
            by_role.clear()
            by_role.update(roles)
        peaks["pss"], peaks["rss"] = max(peaks["pss"], pss), max(peaks["rss"], rss)
        more = not stop.wait(0.25)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", default="map")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--split", default="incomplete:100")
    parser.add_argument("--model", default="lenet")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "raffed",
            "run",
            "--json",
            "--method",
            options.method,
            "--dataset",
            options.dataset,
            "--split",
            options.split,
            "--model",
            options.model,
            "--rounds",
            str(options.rounds),
            "--epochs",
            "1",
            "--actors",
            str(options.actors),
            "--out",
            str(Path(folder) / "run"),
        ]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        peaks, stop = {"pss": 0.0, "rss": 0.0}, threading.Event()
        by_role: dict[str, float] = {}
        watcher = threading.Thread(target=sampled, args=(process.pid, peaks, stop, by_role))
        watcher.start()
        first = None
        assert process.stdout is not None
        for line in process.stdout:
            if first is None and json.loads(line).get("event") == "round":
                first = time.perf_counter() - began
        code = process.wait()
        stop.set()
        watcher.join()
    print(
        json.dumps(
            {
                **{k: round(v) for k, v in peaks.items()},
                "unit": "MiB",
                "first_round_s": first,
                "exit": code,
                "pss_by_process": {name: round(by_role[name]) for name in sorted(by_role)},
            }
        )
    )


if __name__ == "__main__":
    main()
