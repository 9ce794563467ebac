"""How far raffed's FedAvg is from an author's after one round, and what each habit of their code adds to it.

    python -m benchmarks.engine_gap "pfllib:PATH#FedAvg" "flsim:PATH#FedAvg" --out benchmarks/engine_gap.json

Both engines get the same clients. raffed starts with its own settings, and takes over one habit of the
author's engine after the other: inputs, optimiser, batches, initial weights, and at the end the very order of
the samples, which a spy in the author's process noted (engine_spy.py). Of each, two numbers are measured: how
far the engines are apart once it is taken over after those above it, and how far if only it is undone at
the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import raffed
from raffed import RunConfig
from raffed.core.training import phases
from raffed.own import gate
from raffed.runtime.setup import prepare_run

SPY = Path(__file__).with_name("engine_spy.py")
NETWORKS = """
import torch
from torch import nn
from torch.nn.functional import log_softmax, max_pool2d, relu


class Dense(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.hidden = nn.Linear(784, 100)
        self.head = nn.Linear(100, num_classes)

    def forward(self, x):
        return self.head(relu(self.hidden(x.flatten(1))))


class Split(Dense):
    def forward(self, x):
        return self.head(log_softmax(relu(self.hidden(x.flatten(1))), dim=1))


class LeNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 64, 5), nn.Conv2d(64, 64, 5)
        self.wide, self.narrow = nn.Linear(1600, 384), nn.Linear(384, 192)
        self.head = nn.Linear(192, num_classes)

    def forward(self, x):
        x = max_pool2d(relu(self.second(max_pool2d(relu(self.first(x)), 2))), 2)
        return self.head(relu(self.narrow(relu(self.wide(x.flatten(1))))))
"""
USUAL = {"momentum": 0.9, "weight_decay": 1e-5}
LIKE_THEIRS: dict[str, dict[str, Any]] = {  # habit of an engine's → what raffed is given for it
    "inputs are not standardised": {"standardised": False},
    "no momentum (raffed's default is 0.9)": {"momentum": 0.0},
    "no weight decay (raffed's default is 1e-5)": {"weight_decay": 0.0},
    "weight decay 1e-3 (raffed's default is 1e-5)": {"weight_decay": 1e-3},
    "the network's log-softmax stands before its head": {"network": "Split"},
    "the last batch is dropped": {"drop_last": True},
    "gradients are clipped at 10": {"clip_norm": 10.0},
    "images are flipped and cropped": {"augmented": True},
    "the mean weighs clients by samples": {"weighting": "samples"},
    "the mean weighs all clients alike": {"weighting": "clients"},
    "the same initial weights": {"same_start": True},
    "the same order of samples": {"same_order": True},
}
UNDONE: dict[str, Any] = {
    "network": "",
    "standardised": True,
    **USUAL,
    "drop_last": False,
    "clip_norm": None,
    "augmented": False,
    "same_start": False,
    "same_order": False,
}


@dataclass(frozen=True)
class Family:
    """What is executed of a family of engines.

    Attributes:
        dataset: Its data set, the name that the engine must get, and numbers of training and test samples.
        split: The split, and the fraction of local test samples.
        network: The author's network; its textbook form, and what the engine makes of it, in NETWORKS.
        local: Rate, batch size and epochs.
        args: Flags of the author's.
        habits: Keys of LIKE_THEIRS in the order in which raffed takes them over.
    """

    dataset: tuple[str, str, int, int]
    split: tuple[str, float | None]
    network: tuple[str, str, str]
    local: Mapping[str, float]
    habits: tuple[str, ...]


FAMILIES = {
    "pfllib": Family(
        ("fashion-mnist", "FMNIST", 3000, 1000),
        ("dirichlet:6:0.5", 0.2),
        ("DNN", "Dense", "Split"),
        {"lr": 0.002, "batch_size": 10, "epochs": 1},
        (
            "inputs are not standardised",
            "no momentum (raffed's default is 0.9)",
            "no weight decay (raffed's default is 1e-5)",
            "the network's log-softmax stands before its head",
            "the last batch is dropped",
            "the mean weighs clients by samples",
            "the same initial weights",
            "the same order of samples",
        ),
    ),
    "flsim": Family(
        ("cifar10", "CIFAR10", 600, 1000),
        ("equal:6:5", None),
        ("LeNet", "LeNet", "LeNet"),
        {"lr": 0.1, "batch_size": 32, "epochs": 1},
        (
            "inputs are not standardised",
            "no momentum (raffed's default is 0.9)",
            "weight decay 1e-3 (raffed's default is 1e-5)",
            "gradients are clipped at 10",
            "images are flipped and cropped",
            "the mean weighs all clients alike",
            "the same initial weights",
            "the same order of samples",
        ),
    ),
}


class Engines:
    """An author's engine and raffed on the same clients, for one round.

    Args:
        method: The author's FedAvg, such as "pfllib:PATH#FedAvg".
        python: The author's interpreter.
        work: An empty folder.
    """

    def __init__(self, method: str, python: str, work: Path) -> None:
        self.method, self.python, self.work = method, python, work
        self.family = FAMILIES[method.partition(":")[0]]
        name, _, train, test = self.family.dataset
        whole = prepare_run(RunConfig.from_dict({"data": {"dataset": name, "split": "iid:2"}}), None).dataset
        parts = (whole.x[:train], whole.y[:train], whole.x_test[:test], whole.y_test[:test])
        self.x, self.y, self.x_test, self.y_test = (
            part.astype(np.float32) / np.float32(255) if part.dtype == np.uint8 else part for part in parts
        )
        (work / "net.py").write_text(NETWORKS)
        self.theirs = self.author(seed=0)
        names = list(self.module("").state_dict())
        torch.save(dict(zip(names, self.theirs["before"], strict=True)), work / "start.pt")

    def module(self, network: str) -> nn.Module:
        """Return a network of NETWORKS; "" means the textbook form of the author's."""
        found: dict[str, Any] = {}
        exec(NETWORKS, found)
        made: nn.Module = found[network or self.family.network[1]](10)
        return made

    def config(self, x: Any, seed: int, **sections: Any) -> RunConfig:
        """Return a configuration of one round with all clients."""
        split, local_test = self.family.split
        data = {"dataset": raffed.Dataset(x, self.y, self.x_test, self.y_test), "split": split}
        return RunConfig.from_dict(
            {
                "federation": {"rounds": 1, "participation": 1.0, **sections.pop("federation", {})},
                "data": {**data, "local_test": local_test, **sections.pop("data", {})},
                "runtime": {"execution": "serial", **sections.pop("runtime", {})},
                "seed": seed,
                **sections,
            }
        )

    def author(self, seed: int) -> dict[str, Any]:
        """Execute the author's engine, and return what the spy noted."""
        spied, wrapper = self.work / f"spied-{seed}.pt", self.work / f"python-{seed}"
        wrapper.write_text(f'#!/bin/sh\nexec "{self.python}" "{SPY}" "{spied}" "$@"\n')
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        made = self.config(
            self.x,
            seed,
            method=self.method,
            model={"name": f"author:{self.family.network[0]}"},
            local=dict(self.family.local),
            runtime={"author_python": str(wrapper)},
            args={"dataset": self.family.dataset[1]},
        )
        raffed.run(made, self.work / f"author-{seed}")
        noted: dict[str, Any] = torch.load(spied)
        noted["batches"] = self._by_client(noted)
        return noted

    def _by_client(self, noted: Mapping[str, Any]) -> dict[int, list[tuple[Tensor, Tensor, Tensor]]]:
        """Return client → its batches: indices, inputs and labels. Clients trained one after the other."""
        waiting, found = iter(noted["batches"]), {}
        for client in noted["clients"]:
            n, size = self._sizes()[client], int(self.family.local["batch_size"])
            whole = "the last batch is dropped" in self.family.habits
            found[client] = [next(waiting) for _ in range(n // size if whole else -(-n // size))]
        return found

    def _sizes(self) -> list[int]:
        split = self.config(self.x, 0)
        return [len(rows) for rows in prepare_run(split, None).partition.train]

    def ours(self, seed: int = 0, **given: Any) -> list[Tensor]:
        """Return raffed's weights after a round with some settings of UNDONE's."""
        chosen = {**UNDONE, **given}
        partition = prepare_run(self.config(self.x, 0), None).partition.train
        x = self.x.copy()
        if chosen["augmented"]:
            for client, batches in self.theirs["batches"].items():
                for indices, inputs, _ in batches:
                    x[partition[client][indices.numpy()]] = inputs.numpy()
        usual = {"mean": [0.5] * x.shape[1], "std": [0.25] * x.shape[1]}
        made = self.config(
            x,
            seed,
            method="fedavg",
            model={
                "name": f"{self.work / 'net.py'}:{chosen['network'] or self.family.network[1]}",
                "init": str(self.work / "start.pt") if chosen["same_start"] else "",
            },
            local={
                **self.family.local,
                **{name: chosen[name] for name in ("momentum", "weight_decay", "drop_last", "clip_norm")},
            },
            federation={"weighting": chosen.get("weighting", "")},
            data={"transform": "plain", "transform_args": usual if chosen["standardised"] else {}},
        )
        folder = Path(tempfile.mkdtemp(dir=self.work)) / "run"
        with self._order(chosen["drop_last"]) if chosen["same_order"] else contextlib.nullcontext():
            raffed.run(made, folder)
        return [parameter.detach() for parameter in raffed.load_model(folder).parameters()]

    @contextlib.contextmanager
    def _order(self, drop_last: bool) -> Iterator[None]:
        """Give raffed's clients the author's batches. Samples that were dropped come last, if they count."""

        def batches(visit: Any, local: Any, steps: int, *_: Any) -> list[Tensor]:
            n = visit.participant.data.n
            found = [indices for indices, _, _ in self.theirs["batches"][visit.k.client]]
            left = sorted(set(range(n)) - {int(i) for indices in found for i in indices})
            if left and not drop_last:
                found.append(torch.tensor(left))
            assert len(found) == steps, f"client {visit.k.client}: {len(found)} batches, {steps} steps"
            return found

        with mock.patch.object(phases, "_batches", batches):
            yield

    def accuracy(self, weights: list[Tensor], network: str) -> float:
        """Return the accuracy of weights on the test set."""
        module = self.module(network)
        with torch.no_grad():
            for parameter, values in zip(module.parameters(), weights, strict=True):
                parameter.copy_(values)
            answers = module(torch.from_numpy(self.x_test)).argmax(1)
        return float((answers == torch.from_numpy(self.y_test)).float().mean())

    def gap(self, weights: list[Tensor], network: str = "", theirs: list[Tensor] | None = None) -> Any:
        """Return the largest difference in a weight, and that in accuracy, from the author's or others'."""
        others, split = theirs or self.theirs["after"], network if theirs else self.family.network[2]
        largest = max(float((a - b).abs().max()) for a, b in zip(weights, others, strict=True))
        found = self.accuracy(weights, network)
        return {"weights": largest, "accuracy": found - self.accuracy(others, split)}

    def ours_apart(self, **given: Any) -> Any:
        """Return the differences of raffed's round from the author's."""
        return self.gap(self.ours(**given), given.get("network", ""))

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each habit, and rows for what changes by chance alone."""
        given: dict[str, Any] = {}
        mine = [LIKE_THEIRS[habit] for habit in self.family.habits]
        all_given = {name: value for taken in mine for name, value in taken.items()}
        rows = [{"habit": "nothing taken over", "then": self.ours_apart(), "alone": None}]
        for habit in self.family.habits:
            taken = LIKE_THEIRS[habit]
            given |= taken
            other = {"samples": "clients", "clients": "samples"}
            undone = {name: other.get(str(value), UNDONE.get(name)) for name, value in taken.items()}
            rows.append(
                {
                    "habit": habit,
                    "then": self.ours_apart(**given),
                    "alone": self.ours_apart(**{**all_given, **undone}),
                }
            )
            print(rows[-1], flush=True)
        first = self.ours(same_start=True)
        rows += [
            {
                "habit": "the model before the round in place of that after it",
                "then": None,
                "alone": self.gap(self.theirs["before"], self.family.network[2]),
            },
            {
                "habit": "chance: the author's engine with another seed",
                "then": None,
                "alone": self.gap(self.author(seed=1)["after"], self.family.network[2]),
            },
            {
                "habit": "chance: raffed with another seed, same initial weights",
                "then": None,
                "alone": self.gap(self.ours(seed=1, same_start=True), "", first),
            },
        ]
        return rows


def main() -> None:
    """Measure, print and write the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--author-python", default=sys.executable)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    gate.trust_typed()
    tables = {}
    for method in options.methods:
        with tempfile.TemporaryDirectory() as folder:
            tables[method.partition(":")[0]] = Engines(method, options.author_python, Path(folder)).table()
    for family, rows in tables.items():
        print(f"\n{family}")
        for row in rows:
            pairs = [row["then"], row["alone"]]
            cells = [f"{p['weights']:.1e} | {p['accuracy']:+.3f}" if p else " | " for p in pairs]
            print(f"| {row['habit']} | {' | '.join(cells)} |")
    if options.out:
        options.out.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
