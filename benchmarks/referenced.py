"""Race a method that is named by reference against the same method of raffed's own, in one process.

    python -m benchmarks.referenced --repetitions 7

FedProx is copied into a file of a temporary folder and named `./copied.py:fedprox`. Serial rounds are taken
in turns, and their CPU time is compared. On Ray whole runs are taken in turns, and the seconds of their
rounds are compared. A ratio of 1.00 means that a reference costs nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import raffed
import raffed.methods.fedprox
from raffed.api.running import one_ray
from raffed.config.run import RunConfig

NAMES = ("fedprox", "./copied.py:fedprox")
LOCAL = raffed.Local(lr=0.05, batch_size=16, epochs=1)


def configuration(method: str, rounds: int, execution: str, seed: int = 0) -> RunConfig:
    """100 digits clients with a small network: rounds in which whatever is not training weighs most."""
    return RunConfig(
        method=method,
        args={"mu": 0.1},
        data=raffed.Data(dataset="digits", split="iid:50"),
        model=raffed.Model("mlp", {"hidden": [64]}),
        local=LOCAL,
        federation=raffed.Federation(rounds=rounds, eval_every=rounds),
        runtime=raffed.Runtime(execution=execution, **({"actors": 2} if execution == "ray" else {})),
        seed=seed,
    )


def serial(rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each round after the first; the two take turns, and change who is first."""
    runs: dict[str, Generator[object, None, object]] = {
        name: raffed.iterate(configuration(name, rounds, "serial")) for name in NAMES
    }
    taken: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(rounds):
        for name in NAMES if number % 2 else NAMES[::-1]:
            began = time.process_time()
            next(runs[name])
            if number:
                taken[name].append(time.process_time() - began)
    for run in runs.values():
        run.close()
    return taken


def on_ray(repetitions: int, rounds: int) -> dict[str, list[float]]:
    """Median seconds of a round of each run; the two take turns."""
    taken: dict[str, list[float]] = {name: [] for name in NAMES}
    with one_ray(configuration(NAMES[0], rounds, "ray")):
        for number in range(repetitions + 1):
            for name in NAMES if number % 2 else NAMES[::-1]:
                seconds: list[float] = []
                config = replace(configuration(name, rounds, "ray"), seed=number)
                raffed.run(config, watch=lambda event, found=seconds: found.append(event.seconds))
                if number:
                    taken[name].append(statistics.median(seconds[2:]))
    return taken


def told(title: str, taken: dict[str, list[float]]) -> None:
    built_in, referenced = (taken[name] for name in NAMES)
    ratios = sorted(b / a for a, b in zip(built_in, referenced, strict=True))
    low, high = (ratios[int(share * (len(ratios) - 1))] for share in (0.1, 0.9))
    medians = [1000 * statistics.median(one) for one in (built_in, referenced)]
    print(
        f"{title}: built-in {medians[0]:.1f} ms, referenced {medians[1]:.1f} ms; ratio of medians "
        f"{medians[1] / medians[0]:.3f}, median of paired ratios {statistics.median(ratios):.3f} "
        f"({low:.2f} to {high:.2f}), {len(ratios)} pairs"
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--repetitions", type=int, default=7, help="runs of each on Ray; 0: none")
    words.add_argument("--rounds", type=int, default=60)
    given = words.parse_args()
    source = Path(raffed.methods.fedprox.__file__).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["RAFFED_CACHE"] = folder
        Path("copied.py").write_text(source, encoding="utf-8")
        told("serial, CPU time of a round", serial(given.rounds))
        if given.repetitions:
            told("Ray, two actors, seconds of a round", on_ray(given.repetitions, given.rounds))
        os.chdir("/")


if __name__ == "__main__":
    main()
