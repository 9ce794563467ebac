"""Steps per second of the optimisers relative to SGD with momentum, one client at a time and in stacks.

    python -m benchmarks.optimizers [--clients 20] [--repetitions 7] [--model mlp]

Every optimiser trains the same clients of `digits` for a round, in this process, in turns. A ratio is the
median over repetitions of SGD's seconds to the optimiser's in the same repetition, so 0.8 means four steps in
the time of five. No server, no scoring and no files are in it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from raffed.config.run import RunConfig
from raffed.config.sections import Data, Model, Numerics
from raffed.config.training import Local
from raffed.core.round import client_rounds, server_init
from raffed.core.training.session import Participant
from raffed.runtime.setup import prepare_run
from raffed.runtime.worker import ClientWorker

CASES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "nesterov": {"optimizer_args": {"nesterov": True}},
    "sgd, cosine by step": {"schedule": "cosine", "schedule_by": "step"},
    "adam": {"optimizer": "adam"},
    "adamw": {"optimizer": "adamw"},
    "adamw, kept": {"optimizer": "adamw", "keep_optimizer": True},
    "adamw, cosine by step": {"optimizer": "adamw", "schedule": "cosine", "schedule_by": "step"},
    "rmsprop": {"optimizer": "rmsprop"},
    "adagrad": {"optimizer": "adagrad"},
    "sgd, smoothed": {"label_smoothing": 0.1},
}


class Contestant:
    """The clients of one setting, which train one round after the other from the same model."""

    def __init__(self, local: Local, clients: int, model: str, cohort: int) -> None:
        config = RunConfig(
            data=Data(split=f"iid:{clients}"),
            model=Model(model),
            local=local,
            numerics=Numerics(cohort=cohort),
        )
        self.worker = ClientWorker(prepare_run(config), None)
        session = self.worker.session
        server = server_init(self.worker.method, session.net.initial, session.spec)
        self.broadcast = server.broadcast()
        self.participants = [Participant(i, None, self.worker.data.client(i)) for i in range(clients)]

    def round(self) -> tuple[float, int]:
        """Train everybody, and return the seconds and the number of steps."""
        groups = (
            [self.participants]
            if self.worker.setup.config.numerics.cohort
            else [[one] for one in self.participants]
        )
        began = time.perf_counter()
        done = [
            one
            for group in groups
            for one in client_rounds(self.worker.method, self.broadcast, group, self.worker.session)
        ]
        spent = time.perf_counter() - began
        self.participants = [
            Participant(one.client, end.client_state, one.data)
            for one, end in zip(self.participants, done, strict=True)
        ]
        return spent, sum(one.steps for one in done)


def measure(clients: int, model: str, cohort: int, repetitions: int) -> dict[str, tuple[float, float]]:
    """Return case → (median ratio to SGD, median steps per second)."""
    made = {
        name: Contestant(Local(lr=0.001, batch_size=16, epochs=2, **given), clients, model, cohort)
        for name, given in CASES.items()
    }
    for one in made.values():
        one.round()
    ratios: dict[str, list[float]] = {name: [] for name in made}
    speeds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(repetitions):
        spent = {name: one.round() for name, one in made.items()}
        for name, (seconds, steps) in spent.items():
            ratios[name].append(spent["sgd"][0] / seconds)
            speeds[name].append(steps / seconds)
    return {name: (statistics.median(ratios[name]), statistics.median(speeds[name])) for name in made}


def main() -> None:
    """Print a table of both executions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--model", default="mlp")
    options = parser.parse_args()
    torch.set_num_threads(1)
    alone, stacks = (
        measure(options.clients, options.model, cohort, options.repetitions)
        for cohort in (0, options.clients)
    )
    print("| setting | one by one | in stacks |\n|---|---|---|")
    for name in CASES:
        cells = (f"{found[name][0]:.2f} ({found[name][1]:,.0f}/s)" for found in (alone, stacks))
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
