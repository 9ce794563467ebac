"""Cost of a run against the number of registered clients, of whom 100 are drawn in a round.

    python -m benchmarks.registered [--clients 1000 1000000] [--method fedavg map] [--rounds 10]
        [--repetitions 3] [--out FILE.json]

Every client draws 20 of 60,000 synthetic images of 28 x 28 (a split of this file). LeNet; FedAvg, and MAP,
whose clients keep a private model; one client after the other; a checkpoint at the end. Every step is a
process of its own: the run, which stops one round before its last, the resumption for that round, and the
verification of every file and three rounds.

Columns: CPU seconds from the start of the process to the first round ("start"); median wall and CPU seconds
of a round after the first two; wall and CPU seconds of the checkpoint, of the resumption without its round,
and of the verification without its rounds; the largest peak memory of the three processes; and the CPU
seconds of a round as a ratio to those with the fewest clients. The numbers of clients take turns, and each
value is the median over the repetitions. CPU seconds are what other work on the machine changes least.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

import raffed
from benchmarks.history import add
from benchmarks.scale import SAMPLES

DRAWN, VERIFIED, IMAGES = 100, 3, 60_000


@raffed.split(overlapping=True)
def drawn(labels: np.ndarray, rng: np.random.Generator, num_classes: int, clients: int) -> list[np.ndarray]:
    """Give each client 20 different samples; clients share them.

    Args:
        labels: Labels [N].
        rng: Generator of all draws.
        num_classes: C.
        clients: Number of clients.
    """
    first = rng.integers(0, len(labels), clients)
    step = rng.integers(1, len(labels) // SAMPLES, clients)
    return list((first[:, None] + step[:, None] * np.arange(SAMPLES)) % len(labels))


def write_noise(path: Path) -> None:
    """Write images of 28 x 28 and ten classes."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (IMAGES, 1, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, IMAGES)
    np.savez(path, x=x, y=y, x_test=x[:1000], y_test=y[:1000])


def config_of(method: str, data: Path, clients: int, rounds: int, cohort: int) -> Any:
    """Return the configuration of a run on these data."""
    from raffed import Data, Federation, Local, Model, Numerics, RunConfig, Runtime

    return RunConfig(
        method=method,
        data=Data(
            f"npz:{data}", "benchmarks.registered:drawn", split_args={"clients": clients}, local_test=0.2
        ),
        model=Model("lenet"),
        local=Local(lr=0.01, batch_size=10, epochs=1),
        numerics=Numerics(cohort=cohort),
        federation=Federation(rounds=rounds, participation=DRAWN / clients, eval_every=rounds),
        runtime=Runtime(execution="serial", checkpoint_every=rounds - 1),
    )


class Spent:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self.began, self.cpu = time.perf_counter(), time.process_time()

    def both(self) -> tuple[float, float]:
        return time.perf_counter() - self.began, time.process_time() - self.cpu


def spent_in(owner: type, name: str, found: list[tuple[float, float]]) -> None:
    """Note what every call of a method takes."""
    method: Callable[..., Any] = getattr(owner, name)

    def timed(*args: Any, **named: Any) -> Any:
        spent = Spent()
        try:
            return method(*args, **named)
        finally:
            found.append(spent.both())

    setattr(owner, name, timed)


FIRST = "_begun"  # the method of the round loop that is called when everything is loaded


def step(
    what: str, method: str, data: Path, clients: int, rounds: int, cohort: int, out: Path
) -> dict[str, Any]:
    """Return what one process of the benchmark measured of itself."""
    from raffed.runs.federation import RoundLoop
    from raffed.runs.folder import RunFolder

    saved: list[tuple[float, float]] = []
    trained: list[tuple[float, float]] = []
    begun: list[float] = []
    spent_in(RunFolder, "checkpoint", saved)
    began = getattr(RoundLoop, FIRST)

    def noted(loop: RoundLoop) -> Any:
        begun.append(time.process_time())
        return began(loop)

    setattr(RoundLoop, FIRST, noted)
    spent_in(RoundLoop, "_trained", trained)
    spent = Spent()
    if what == "run":
        done = 0

        def stop() -> bool:
            nonlocal done
            done += 1
            return done == rounds - 1

        raffed.run(config_of(method, data, clients, rounds, cohort), out, stop=stop)
    elif what == "resume":
        raffed.resume(out)
    else:
        assert raffed.verify(out, rounds=VERIFIED).ok
    wall, cpu = spent.both()
    took = trained[2:] or trained
    return {
        "start": begun[0],
        "round": [statistics.median(one[kind] for one in took) for kind in (0, 1)],
        "saved": saved[0] if saved else None,
        "rest": [wall - sum(one[0] for one in trained), cpu - sum(one[1] for one in trained)],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def line(method: str, clients: int, rounds: int, cohort: int) -> dict[str, Any]:
    """Return a line of the table. Every step is a process of its own."""
    with tempfile.TemporaryDirectory() as made:
        data, out = Path(made) / "noise.npz", Path(made) / "run"
        write_noise(data)
        found = {}
        for what in ("run", "resume", "verify"):
            numbers = (str(number) for number in (clients, rounds, cohort))
            command = [
                sys.executable,
                "-m",
                "benchmarks.registered",
                "--step",
                what,
                method,
                str(data),
                str(out),
            ]
            environment = {**os.environ, "RAFFED_CACHE": f"{made}/cache"}
            told = subprocess.run([*command, *numbers], check=True, stdout=subprocess.PIPE, env=environment)
            found[what] = json.loads(told.stdout.splitlines()[-1])
    run, resumed, verified = found["run"], found["resume"], found["verify"]
    return {
        "method": method,
        "clients": clients,
        "start_cpu_s": run["start"],
        "round_s": run["round"][0],
        "round_cpu_s": run["round"][1],
        "checkpoint_s": run["saved"][0],
        "checkpoint_cpu_s": run["saved"][1],
        "resume_s": resumed["rest"][0],
        "resume_cpu_s": resumed["rest"][1],
        "verify_s": verified["rest"][0],
        "verify_cpu_s": verified["rest"][1],
        "peak_mib": round(max(one["peak"] for one in found.values())),
    }


def medians(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the medians for each method and number of clients, and how flat a round is."""
    table = pd.DataFrame(lines).groupby(["method", "clients"]).median().reset_index()
    fewest = table.groupby("method")["round_cpu_s"].transform("first")  # the rows are in order
    table = table.assign(round_ratio=table["round_cpu_s"] / fewest)
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 1_000_000])
    parser.add_argument("--method", nargs="+", default=["fedavg", "map"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--cohort", type=int, default=0, help="clients in a stack")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--history", type=Path, help="file of JSON lines to which the lines are added")
    parser.add_argument("--step", nargs=7, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        what, method, data, out, *numbers = options.step
        clients, rounds, cohort = (int(number) for number in numbers)
        print(json.dumps(step(what, method, Path(data), clients, rounds, cohort, Path(out))))
        return
    found = medians(
        [
            line(method, clients, options.rounds, options.cohort)
            for _ in range(options.repetitions)
            for method in options.method
            for clients in options.clients
        ]
    )
    table = Table(*found[0])
    for row in found:
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=200).print(table)  # a file is as wide as a small terminal otherwise
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=2) + "\n")
    if options.history:
        add(options.history, "registered", found)


if __name__ == "__main__":
    main()
