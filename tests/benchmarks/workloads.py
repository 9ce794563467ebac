"""The three workloads of the peer benchmark, as setups: one partition, one set of initial weights, momentum SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from raffed.data.datasets import Dataset
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split
from raffed.runtime.setup import Setup, prepare


@dataclass(frozen=True)
class Workload:
    name: str
    text: str
    config: RunConfig
    all_digits: bool = False

    def setup(self) -> Setup:
        setup = prepare(self.config)
        return _with_all_digits(setup) if self.all_digits else setup


def _config(data: Data, model: Model, epochs: float, batch: int, participation: float) -> RunConfig:
    return RunConfig(
        data=data,
        model=model,
        local=Local(lr=0.03, momentum=0.9, weight_decay=1e-5, batch_size=batch, epochs=epochs),
        federation=Federation(rounds=10_000, participation=participation, eval_every=10_000),
        runtime=Runtime(execution="ray", actors=2, checkpoint_every=10_000),
    )


_FASHION = Data("fashion-mnist", "shards:100:2", transform="plain", local_test=0.0)
_BIAS: dict[str, Any] = {"head_bias": True}

WORKLOADS = (
    Workload("W1", "Fashion-MNIST, 20 of 100 clients, 1 epoch, MLP of 669,706 weights",
             _config(_FASHION, Model("mlpnet", _BIAS), 1, 64, 0.2)),
    Workload("W2", "Fashion-MNIST, 20 of 100 clients, 5 epochs, LeNet-5 of 61,706 weights",
             _config(_FASHION, Model("lenet", _BIAS), 5, 64, 0.2)),
    Workload("W3", "digits, 100 of 100 clients, 1 epoch of batch 16, MLP of 4,810 weights",
             _config(Data("digits", "iid:100", local_test=0.0), Model("mlp", {"hidden": [64]}), 1, 16, 1.0), True),
)  # fmt: skip


def _with_all_digits(setup: Setup) -> Setup:
    """All 1,797 digits as training data, 17 or 18 a client, as in the peer benchmark."""
    old = setup.dataset
    x, y = np.concatenate([old.x_train, old.x_test]), np.concatenate([old.y_train, old.y_test])
    dataset = Dataset(old.name, x, y, old.x_test, old.y_test, old.num_classes, None, old.max_value)
    partition = make_partition(parse_split("iid:100"), y, old.num_classes, None, 0, 0.0)
    return Setup(setup.config, dataset, partition)
