"""What BatchNorm's running statistics add to the score of PFLlib's FedAvg (its issues 223 and 259).

    python -m benchmarks.engine_statistics PATH --work DIR --out benchmarks/engine_statistics.json

PFLlib sends and averages parameters only, so every client is scored with the running means and variances of
its own training. This executes its FedAvg with ResNet18 on CIFAR-10, and scores the weights of the last round
with three sets of statistics, all else equal: each client's own, as released; their mean over clients; and
those that the network computes of each client's own test images.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import raffed
from raffed import RunConfig
from raffed.own import gate
from raffed.runtime.setup import prepare_run

SHARED: dict[str, Any] = {
    "data": {"dataset": "cifar10", "samples": 1000, "split": "capped-dirichlet:8:0.1:40", "local_test": 0.25},
    "federation": {"participation": 0.5, "eval_every": 20},
}
LOCAL = {"lr": 0.005, "batch_size": 10, "epochs": 1}


def theirs(path: str, python: str, network: str, seed: int, rounds: int, folder: Path) -> None:
    """Execute the author's FedAvg, or go on with it."""
    made = {
        **SHARED,
        "method": f"pfllib:{path}#FedAvg",
        "seed": seed,
        "model": {"name": f"author:{network}"},
        "local": LOCAL,
        "runtime": {"author_python": python},
        "federation": {**SHARED["federation"], "rounds": rounds},
    }
    if not (folder / "run.json").exists():
        raffed.run(RunConfig.from_dict(made), folder)


def _buffers(model: nn.Module) -> list[Tensor]:
    return [buffer for name, buffer in model.named_buffers() if "running" in name]


def scored(path: str, seed: int, rounds: int, folder: Path) -> dict[str, float]:
    """Return statistics → accuracy on all clients' tests together, of the weights after the last round."""
    sys.path.insert(0, str(Path(path) / "system"))
    state = torch.load(folder / f"engine-{rounds:06}.pt", weights_only=False)["server"]
    setup = prepare_run(RunConfig.from_dict({**SHARED, "seed": seed}), None)
    data, partition, clients = setup.dataset, setup.partition, state["clients"]
    pool = (data.x_test, data.y_test) if partition.test_pool == "test" else (data.x, data.y)
    sizes = torch.tensor([float(client.train_samples) for client in clients])
    own = [[buffer.clone() for buffer in _buffers(client.model)] for client in clients]
    mean = [torch.stack(parts).movedim(0, -1) @ (sizes / sizes.sum()) for parts in zip(*own, strict=True)]
    found = {}
    for name in ("each client's own", "their mean over clients", "of each client's tests"):
        right = total = 0
        for client, rows in enumerate(partition.test):
            model = state["global_model"].eval()
            _put(model, own[client] if name == "each client's own" else mean)
            if name == "of each client's tests":
                model.train()
            x = torch.tensor(pool[0][rows]).float() / 255
            with torch.no_grad():
                right += int((model(x).argmax(1) == torch.tensor(pool[1][rows])).sum())
            total += len(rows)
        found[name] = right / total
    return found


def _put(model: nn.Module, values: Sequence[Tensor]) -> None:
    for buffer, value in zip(_buffers(model), values, strict=True):
        buffer.copy_(value)


def main() -> None:
    """Execute, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--author-python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    gate.trust_typed()
    found = {}
    for seed in range(options.seeds):
        folder = options.work / f"pfllib-resnet18-{seed}"
        theirs(options.path, options.author_python, "ResNet18", seed, options.rounds, folder)
        row = scored(options.path, seed, options.rounds, folder)
        found[str(seed)] = row
        print(seed, row, flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
