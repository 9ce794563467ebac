"""What FedLESAM's released optimiser adds to the weights, and what the paper's rule adds (its issue 1).

    python -m benchmarks.engine_perturbation PATH --out benchmarks/engine_perturbation.json

The release keeps the last global update as one flat vector, and its optimiser takes number i of that vector
for layer i. The file optimizer/LESAM.py of the checkout is executed as it is, on a ResNet18 with group norm
and an update of real training on CIFAR-10. Beside it stands the rule of the paper, ρ times the direction of
the update, against it. Measured are their lengths, their cosine, and what each does to loss and gradient.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torchvision.models import resnet18

from raffed import RunConfig
from raffed.runtime.setup import prepare_run

RHO, RATE, DECAY, BATCH, STEPS = 0.01, 0.1, 1e-3, 50, 50  # the command; 5 epochs of 10 batches


def network() -> nn.Module:
    return resnet18(num_classes=10, norm_layer=lambda channels: nn.GroupNorm(2, channels))


def gradient(model: nn.Module, weights: Tensor, x: Tensor, y: Tensor) -> tuple[float, Tensor]:
    """Return loss and gradient at some weights."""
    vector_to_parameters(weights, model.parameters())
    loss = cross_entropy(model(x), y)
    return float(loss.detach()), parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))


def released(path: Path, model: nn.Module, weights: Tensor, update: Tensor) -> Tensor:
    """Return what the released optimiser adds to the weights before it takes the gradient."""
    spec = importlib.util.spec_from_file_location("lesam", path / "optimizer" / "LESAM.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vector_to_parameters(weights.clone(), model.parameters())
    optimizer = module.LESAM(model.parameters(), torch.optim.SGD(model.parameters(), lr=RATE), rho=RHO)
    optimizer.first_step(update)
    return parameters_to_vector(model.parameters()).detach() - weights


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a, b) / (a.norm() * b.norm()))


def measured(path: Path, seed: int) -> dict[str, Any]:
    """Return the measures of both perturbations after one update of a seed."""
    torch.manual_seed(seed)
    config = RunConfig.from_dict({"data": {"dataset": "cifar10", "split": "iid:2"}})
    data = prepare_run(config, None).dataset
    rows = torch.randperm(len(data.y))[: STEPS * BATCH + 500]
    x, y = torch.tensor(data.x[rows]).float() / 255, torch.tensor(data.y[rows])
    x = (x - 0.5) / 0.25
    model = network()
    start = parameters_to_vector(model.parameters()).detach()
    weights = start.clone()
    for step in range(STEPS):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        _, slope = gradient(model, weights, x[batch], y[batch])
        slope = slope * min(1.0, 10 / float(slope.norm()))
        weights = weights - RATE * (slope + DECAY * weights)
    update, rest = weights - start, slice(STEPS * BATCH, None)
    loss, slope = gradient(model, weights, x[rest], y[rest])
    found: dict[str, Any] = {"numbers": len(weights), "layers": len(list(model.parameters())), "loss": loss}
    paper = -RHO * update / update.norm()
    for name, added in (("paper", paper), ("released", released(path, model, weights, update))):
        there, tilted = gradient(model, weights + added, x[rest], y[rest])
        found[name] = {
            "length / rho": float(added.norm()) / RHO,
            "cosine with the paper's": cosine(added, paper),
            "loss added": there - loss,
            "cosine of the gradient with that at w": cosine(tilted, slope),
        }
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {str(seed): measured(options.path, seed) for seed in range(options.seeds)}
    print(json.dumps(found, indent=1))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
