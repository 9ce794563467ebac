"""What mypy --strict accepts of a user's code: objects in a configuration, and typed memories of a method."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

import raffed
from raffed import Context, Data, Dataset, Federation, Forward, Method, Model
from raffed import Params, Private, RunConfig, Term
from raffed.data.label_splits import Dirichlet


class Last(Private):
    w: Params


class Pull(Term[Last]):
    mu: float

    def loss(self, f: Forward, k: Context[Last]) -> Tensor:
        return self.mu * (f.w - k.mine.w).sq_norm()


@raffed.method(title="Mine")
def mine(mu: float = 0.1) -> Method:
    return Method("Mine", terms=(Pull(mu),))


@raffed.split
def halves(labels: np.ndarray, clients: int = 4) -> Sequence[np.ndarray]:
    return np.array_split(np.arange(len(labels)), clients)


@raffed.loss
def hinge(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.sum()


@raffed.metric(unit="fraction")
def right(scores: Tensor, labels: Tensor) -> float:
    return 1.0


def net(in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Linear(in_shape[0], num_classes)


data = Dataset.from_arrays(np.zeros((4, 2)), np.arange(4) % 2)
config = RunConfig(
    method=mine,
    data=Data(dataset=data, split=halves),
    model=Model(name=net),
    loss=hinge,
    federation=Federation(metrics=[right, "mylab:top2"]),
)
other = replace(config, method=mine, data=Data(split=Dirichlet(4, 0.5)))
name: str = config.method + config.data.dataset + config.data.split + config.model.name + config.loss
"""
WRONG = """import raffed
from script import Last
raffed.RunConfig(method=3)
raffed.Data(split=3)
raffed.Model(name=3.0)
def of(k: raffed.Context[Last]) -> None:
    print(k.mine.weights)
"""


@pytest.mark.slow
def test_a_script_that_gives_objects_passes_mypy_strict_and_numbers_and_unknown_fields_do_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file="]
    found = subprocess.run(
        [*mypy, "--cache-dir", str(tmp_path / "cache"), "script.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    lines = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert not [line for line in lines if line.startswith("script.py")], found.stdout
    numbers = [line.partition(":")[2].partition(":")[0] for line in lines]
    assert numbers == ["3", "4", "5", "7"], found.stdout
    assert '"Last" has no attribute "weights"' in lines[-1]
