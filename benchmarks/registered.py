"""Cost of a run against the number of registered clients, of whom 100 are drawn in a round.

    python -m benchmarks.registered [--clients 1000 10000 100000] [--rounds 10] [--repetitions 3]
        [--out FILE.json]

Synthetic images, 20 a client, in an npz file; MAP, whose clients keep a private model, on a small MLP, one
client after the other, a checkpoint at the end. Every step is a process of its own: the run, which stops one
round before its last, the resumption for that round, and the verification of every file and three rounds.

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
from rich.console import Console
from rich.table import Table

from benchmarks.history import add
from benchmarks.scale import SAMPLES

DRAWN, VERIFIED = 100, 3


def write_noise(path: Path, clients: int) -> None:
    """Write the data of these clients: images of 8 x 8 and ten classes."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (clients * SAMPLES, 1, 8, 8), dtype=np.uint8)
    y = rng.integers(0, 10, clients * SAMPLES)
    np.savez(path, x=x, y=y, x_test=x[:1000], y_test=y[:1000])


def config_of(data: Path, clients: int, rounds: int, cohort: int) -> Any:
    """Return the configuration of a run on these data."""
    from raffed import Data, Federation, Local, Model, Numerics, RunConfig, Runtime

    return RunConfig(
        method="map",
        data=Data(f"npz:{data}", f"iid:{clients}", local_test=0.2),
        model=Model("mlp", {"hidden": [64]}),
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


def step(what: str, data: Path, clients: int, rounds: int, cohort: int, out: Path) -> dict[str, Any]:
    """Return what one process of the benchmark measured of itself."""
    import raffed
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

        raffed.run(config_of(data, clients, rounds, cohort), out, stop=stop)
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


def line(clients: int, rounds: int, cohort: int) -> dict[str, Any]:
    """Return a line of the table. Every step is a process of its own."""
    with tempfile.TemporaryDirectory() as made:
        data, out = Path(made) / "noise.npz", Path(made) / "run"
        write_noise(data, clients)
        found = {}
        for what in ("run", "resume", "verify"):
            numbers = (str(number) for number in (clients, rounds, cohort))
            command = [
                sys.executable,
                "-m",
                "benchmarks.registered",
                "--step",
                what,
                str(data),
                str(out),
            ]
            environment = {**os.environ, "RAFFED_CACHE": f"{made}/cache"}
            told = subprocess.run([*command, *numbers], check=True, stdout=subprocess.PIPE, env=environment)
            found[what] = json.loads(told.stdout.splitlines()[-1])
    run, resumed, verified = found["run"], found["resume"], found["verify"]
    return {
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


def medians(sizes: Sequence[int], turns: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a line for each number of clients: the median of its turns, and how flat a round is."""
    found = [
        {name: statistics.median(turn[place][name] for turn in turns) for name in turns[0][place]}
        for place in range(len(sizes))
    ]
    fewest = min(found, key=lambda row: float(row["clients"]))["round_cpu_s"]
    return [{**row, "round_ratio": row["round_cpu_s"] / fewest} for row in found]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--cohort", type=int, default=0, help="clients in a stack")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--history", type=Path, help="file of JSON lines to which the lines are added")
    parser.add_argument("--step", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        what, data, out, *numbers = options.step
        clients, rounds, cohort = (int(number) for number in numbers)
        print(json.dumps(step(what, Path(data), clients, rounds, cohort, Path(out))))
        return
    turns = [
        [line(clients, options.rounds, options.cohort) for clients in options.clients]
        for _ in range(options.repetitions)
    ]
    found = medians(options.clients, turns)
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
