"""Cost of a round and peak memory against the number of clients, the number drawn, the model's size and the
execution.

    python -m benchmarks.scale [--rounds 5] [--out FILE.json]           tables of one process
    python -m benchmarks.scale --vaults 3550 [--rounds 2] [--small]      every client keeps a private
                                                                               model
    python -m benchmarks.scale --answers     a server that answers each client, beside FedAvg (docs/cost.md)

Synthetic images, 20 a client. The first part runs FedAvg in this process, one by one and in stacks of 100;
every line is its own process, so that its peak memory is its own. The second runs MAP on Ray with two actors,
every client in every round, vaults on disk, with femnist_cnn (115,584 weights, 62 classes) or a small MLP
(4,810 weights, 10 classes); memory is the sum over all processes of what is private to each or shared
(PSS). The third runs methods whose server sends every client a model of its own, with every client in every
round, one after the other.
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
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from raffed import Data, Federation, Local, Model, Numerics, RunConfig, Runtime
from raffed.data.dataset import Dataset
from raffed.data.partition_file import Partition
from raffed.runtime.setup import Setup

SAMPLES = 20  # a client
SMALL, LARGE = Model("mlp", {"hidden": [64]}), Model("mlp", {"hidden": [512, 512]})
LINES = (  # clients, drawn, model
    (10, 10, SMALL),
    (100, 100, SMALL),
    (1000, 100, SMALL),
    (10_000, 100, SMALL),
    (1000, 10, SMALL),
    (1000, 1000, SMALL),
    (100, 100, LARGE),
)
ANSWERS = (  # method, clients
    ("fedavg", 1000),
    ("ifca", 1000),
    ("cwfedavg", 1000),
    ("fedavg", 50),
    ("fedamp", 50),
    ("fedavg", 100),
    ("fedamp", 100),
)


def synthetic(
    clients: int, drawn: int, model: Model, cohort: int, side: int = 8, classes: int = 10, **config: Any
) -> Setup:
    """A federation of equal clients whose images are noise: only its cost is looked at."""
    rng = np.random.default_rng(0)
    n = clients * SAMPLES
    x = rng.integers(0, 255, (n, 1, side, side), dtype=np.uint8)
    y = rng.integers(0, classes, n)
    dataset = Dataset(x, y, x[:100], y[:100], name="noise", num_classes=classes)
    own = tuple(np.arange(k * SAMPLES, (k + 1) * SAMPLES) for k in range(clients))
    none = tuple(np.zeros(0, dtype=np.int64) for _ in range(clients))
    made = RunConfig(
        data=Data("digits", f"iid:{clients}", transform="plain", local_test=0.0),
        model=model,
        local=Local(lr=0.01, batch_size=10, epochs=1),
        numerics=Numerics(cohort=cohort),
        federation=Federation(rounds=10_000, participation=drawn / clients, eval_every=10_000),
        runtime=Runtime(execution="serial", checkpoint_every=10_000),
    )
    return Setup(replace(made, **config), dataset, Partition(own, none, classes))


def one_line(clients: int, drawn: int, model: Model, cohort: int, rounds: int) -> dict[str, Any]:
    """Median seconds of a round after two, and this process's peak memory."""
    from raffed.runs.federation import RoundLoop as Run
    from raffed.runs.folder import RunFolder
    from raffed.runtime.worker import SerialBackend

    setup = synthetic(clients, drawn, model, cohort)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(setup, SerialBackend(setup), RunFolder(Path(folder) / "run", setup))
        seconds = []
        for _ in range(rounds + 2):
            began = time.perf_counter()
            run.step()
            seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = statistics.median(seconds[2:])
    return {
        "clients": clients,
        "drawn": drawn,
        "hidden": model.args["hidden"],
        "cohort": cohort,
        "round_s": took,
        "client_ms": 1e3 * took / drawn,
        "peak_mib": round(peak),
    }


def answer(method: str, clients: int, rounds: int) -> dict[str, Any]:
    """What a round of LeNet-5 costs whose server answers each client, and the peak memory of this process."""
    from benchmarks.ours import Raffed, in_process

    setup = synthetic(clients, clients, Model("lenet"), 0, side=28, method=method)
    contestant = Raffed(setup, Numerics(), in_process)
    contestant.round()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        contestant.round()
        seconds.append(time.perf_counter() - began)
    reports = contestant.reports()
    contestant.close()
    return {
        "method": method,
        "clients": clients,
        "round_s": statistics.median(seconds),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "up": max(report.bytes_up for report in reports),
        "down": max(report.bytes_down for report in reports),
    }


def in_processes(*lines: Sequence[object], rounds: int) -> list[dict[str, Any]]:
    """Return lines of a table, each measured in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--rounds", str(rounds)]
    told = [
        subprocess.run([*command, *map(str, line)], check=True, capture_output=True, text=True).stdout
        for line in lines
    ]
    return [json.loads(printed) for printed in told]


def vaults(clients: int, rounds: int, small: bool) -> dict[str, Any]:
    """Every client keeps a private model, FEMNIST-sized or small; Ray, two actors."""
    from benchmarks.memory import sampled
    from raffed.runs.federation import conduct
    from raffed.runtime.ray.launch import launched
    from raffed.runtime.ray.session import RaySession

    model, side, classes = (SMALL, 8, 10) if small else (Model("femnist_cnn"), 28, 62)
    setup = synthetic(
        clients,
        clients,
        model,
        0,
        side=side,
        classes=classes,
        method="map",
        runtime=Runtime(actors=2),
        federation=Federation(rounds=rounds, eval_every=rounds),
    )
    peaks, stop = {"pss": 0.0, "rss": 0.0}, threading.Event()
    watcher = threading.Thread(target=sampled, args=(os.getpid(), peaks, stop))
    watcher.start()
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder, RaySession(None) as session:
        session.wait()
        path = Path(folder) / "run"
        for event in launched(setup, path, path / "vaults", False, conduct, lambda: False):
            seconds.append(event.seconds)
            print(
                json.dumps({"round": event.round, "seconds": event.seconds, "peak_mib": round(peaks["pss"])}),
                flush=True,
            )
        kept = path.rglob("client-*@*.safetensors")  # of a finished run: in its only checkpoint
        size = sum(file.stat().st_size for file in kept) / 2**20
    stop.set()
    watcher.join()
    took, peak = statistics.median(seconds), round(peaks["pss"])
    return {"clients": clients, "round_s": took, "vaults_mib": round(size), "peak_pss_mib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vaults", type=int, default=0, metavar="CLIENTS")
    parser.add_argument("--small", action="store_true", help="with --vaults: a small MLP")
    parser.add_argument("--answers", action="store_true", help="methods whose server answers each client")
    parser.add_argument("--answer", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--line", nargs=2, type=int, metavar=("NUMBER", "COHORT"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.line:
        number, cohort = options.line
        print(json.dumps(one_line(*LINES[number], cohort, options.rounds)))
        return
    if options.answer:
        print(json.dumps(answer(*ANSWERS[options.answer - 1], options.rounds)))
        return
    if options.answers:
        orders = [("--answer", number) for number, _ in enumerate(ANSWERS, start=1)]
        found = in_processes(*orders, rounds=options.rounds)
    elif options.vaults:
        found = [vaults(options.vaults, options.rounds, options.small)]
    else:
        sizes = [("--line", number, cohort) for number in range(len(LINES)) for cohort in (0, 100)]
        found = in_processes(*sizes, rounds=options.rounds)
    table = Table(*found[0])
    for row in found:
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
