"""Thousands of rounds of a tiny federation on Ray: does anything grow that should not?

    python -m benchmarks.endurance [--rounds 5000] [--method map] [--samples 20] [--out FILE.json]

Digits, ten clients, five a round, a private model each, two actors; a checkpoint every 100 rounds. At equal
distances it writes down the memory of all processes (PSS), of the driver and the client actors alone, open
files and sockets, threads, processes, bytes in Ray's object store, live actors, files in the run's folder,
and seconds a round. The last column says how much a quantity grew from the end of the first fifth, when
everything is warm, to the end.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import psutil
import ray
from rich.console import Console
from rich.table import Table

from benchmarks.memory import tree
from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from raffed.runs.federation import conduct
from raffed.runtime.ray.launch import launched
from raffed.runtime.ray.session import RaySession
from raffed.runtime.setup import prepare_run

WARM = 0.2  # of all rounds


def quantities(folder: Path) -> dict[str, float]:
    """What might grow, now."""
    found = dict.fromkeys(("pss_mib", "actors_pss_mib", "open_files", "threads", "processes", "actors"), 0.0)
    for process in tree(os.getpid()):
        try:
            pss = process.memory_full_info().pss / 2**20
            actor = process.cmdline()[:1] != ["ray::IDLE"] and "".join(process.cmdline()[:1]).startswith(
                "ray::"
            )
            found["open_files"] += process.num_fds()
            found["threads"] += process.num_threads()
        except psutil.Error:  # ended since it was listed
            continue
        found["pss_mib"] += pss
        found["actors"] += actor
        found["actors_pss_mib"] += pss * actor
        found["processes"] += 1
    held, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    store = "object_store_memory"
    found["object_store_mib"] = (held.get(store, 0.0) - free.get(store, 0.0)) / 2**20
    found["files"] = sum(len(names) for _, _, names in os.walk(folder))
    return found


def endured(method: str, rounds: int, samples: int) -> list[dict[str, float]]:
    """The quantities after equal numbers of rounds."""
    config = RunConfig(
        method,
        data=Data("digits", "p10c2", local_test=0.2),
        model=Model("mlp", {"hidden": [16]}),
        local=Local(lr=0.05, batch_size=32, epochs=1),
        federation=Federation(rounds, participation=0.5, eval_every=50),
        runtime=Runtime(actors=2, checkpoint_every=100),
    )
    setup, every, found = prepare_run(config), max(rounds // samples, 1), []
    with tempfile.TemporaryDirectory() as folder, RaySession(None) as session:
        session.wait()
        path, last = Path(folder) / "run", (0, time.perf_counter())
        for event in launched(setup, path, path / "vaults", False, conduct, lambda: False):
            if event.round % every == 0:
                took = (time.perf_counter() - last[1]) / (event.round - last[0])
                row = {"round": float(event.round), **quantities(path), "ms_a_round": 1e3 * took}
                found.append(row)
                print(json.dumps({name: round(value, 1) for name, value in row.items()}), flush=True)
                last = event.round, time.perf_counter()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", default="map")
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = endured(options.method, options.rounds, options.samples)
    warm = next(row for row in found if row["round"] >= WARM * options.rounds)
    table = Table(
        "quantity",
        "first",
        f"round {warm['round']:.0f}",
        f"round {found[-1]['round']:.0f}",
        "grown since then",
    )
    for name in found[0]:
        first, before, after = (row[name] for row in (found[0], warm, found[-1]))
        if name != "round":
            table.add_row(name, f"{first:.1f}", f"{before:.1f}", f"{after:.1f}", f"{after - before:+.1f}")
    Console().print(table)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
