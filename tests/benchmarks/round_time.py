"""Wall time of a round as a ratio to a bare PyTorch loop that makes the same steps, alternating in one run.

    python -m tests.benchmarks.round_time [--repetitions 7] [--only W1] [--out FILE.json]

Two packed client actors against two forked processes. Every repetition times a block of rounds of each, one after the other,
so that a disturbed machine disturbs both; the ratio is the median over repetitions of the two medians' quotient.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from rich.console import Console
from rich.table import Table

from raffed.experiments.federation import Federation, draw_participants
from raffed.experiments.folder import VAULTS, RunFolder
from raffed.runtime.placement import Resources, make_plan
from raffed.runtime.ray_driver import start_actor
from raffed.runtime.ray_pool import RayPool
from raffed.runtime.ray_start import QUIET_RAY
from raffed.runtime.setup import Setup
from tests.benchmarks.bare import Floor
from tests.benchmarks.workloads import WORKLOADS, Workload

ROUNDS = {"W1": 4, "W2": 1, "W3": 20}  # rounds in a timed block


def measure(workload: Workload, setup: Setup, floor: Floor, repetitions: int) -> dict[str, Any]:
    """Medians in seconds and their ratio."""
    block = ROUNDS[workload.name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        plan = make_plan(setup.config, setup.partition.num_clients, Resources(2, 0, 2**40))
        reference = ray.put(setup)
        actors = [start_actor(reference, plan, actor, path / VAULTS) for actor in range(2)]
        pool = RayPool(setup, reference, plan, path / VAULTS, actors, start_actor)
        pool.placement()
        federation = Federation(setup, pool, RunFolder(path, setup))
        rounds = iter(range(1_000_000))
        bare, ours = [], []
        for repetition in range(repetitions + 1):
            slow = [_timed(lambda: floor.round(draw_participants(setup, next(rounds)))) for _ in range(block)]
            fast = [_timed(federation.step) for _ in range(block)]
            if repetition:  # the first block warms both up
                bare.append(statistics.median(slow))
                ours.append(statistics.median(fast))
        pool.close()
    floor.close()
    ratios = [a / b for a, b in zip(ours, bare, strict=True)]
    return {
        "workload": workload.name, "text": workload.text, "repetitions": repetitions, "rounds_per_block": block,
        "bare_s": statistics.median(bare), "raffed_s": statistics.median(ours),
        "ratio": statistics.median(ratios), "ratios": [round(r, 3) for r in ratios],
    }  # fmt: skip


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--only", choices=[w.name for w in WORKLOADS])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = [w for w in WORKLOADS if options.only in (None, w.name)]
    setups = [w.setup() for w in chosen]
    floors = [Floor(setup) for setup in setups]  # forked before Ray starts its threads
    os.environ.update(QUIET_RAY)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    results = [measure(*one, options.repetitions) for one in zip(chosen, setups, floors, strict=True)]
    ray.shutdown()
    table = Table("workload", "bare loop, s", "raffed, s", "ratio", "each repetition", title="median wall time of a round")
    for r in results:
        each = " ".join(f"{ratio:.2f}" for ratio in r["ratios"])
        table.add_row(f"{r['workload']}: {r['text']}", f"{r['bare_s']:.3f}", f"{r['raffed_s']:.3f}", f"{r['ratio']:.2f}", each)
    Console().print(table)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
