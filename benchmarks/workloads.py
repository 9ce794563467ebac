"""The workloads of the benchmark, as setups: one partition, one set of initial weights, momentum SGD.

W1 to W3 are those of the peer benchmark. W4 is pfl-research's Table 1 (Granqvist et al. 2024,
arXiv:2404.06430, appendix D) with its network (`pfl_cnn`), but with this benchmark's optimiser where theirs
is plain SGD. W5 is for bf16. W6 is in gpu.py. W7 is the CNN of BlazeFL's own benchmark
(benchmarks/blazefl-case of its repository: all clients, five local epochs, plain SGD; five rounds are timed
there).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from raffed import Data, Federation, Local, Model, Numerics, RunConfig, Runtime
from raffed.core import seeds
from raffed.data.dataset import Dataset
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split
from raffed.models import MODELS, ModelInfo, build
from raffed.models.net import Net
from raffed.runtime.setup import Setup, prepare_run


@dataclass(frozen=True)
class Workload:
    """block: rounds timed at a time; cohort: clients stacked by the contestants that stack."""

    name: str
    text: str
    config: RunConfig
    block: int
    cohort: int
    all_digits: bool = False

    def setup(self, numerics: Numerics | None = None) -> BenchmarkSetup:
        register()
        config = replace(self.config, numerics=numerics or Numerics())
        setup = prepare_run(config)
        partition, dataset = _all_digits(setup) if self.all_digits else (setup.partition, setup.dataset)
        return BenchmarkSetup(config, dataset, partition)


class BenchmarkSetup(Setup):
    """A setup that makes `pfl_cnn` known wherever it is unpickled: in Ray's actors."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.config, self.dataset, self.partition)


def _restored(*parts: Any) -> BenchmarkSetup:
    register()
    return BenchmarkSetup(*parts)


def register() -> None:
    """Add the benchmark's own network to this process's list; not at import, other tests walk through
    that list.
    """
    MODELS["pfl_cnn"] = ModelInfo("pfl_cnn", __name__)


def pfl_cnn(in_shape: tuple[int, int, int], num_classes: int) -> Net:
    """The CNN of pfl-research's CIFAR-10 benchmark: 1,626,442 parameters on 3x32x32 with 10 classes,
    Glorot-uniform weights.

        Unpadded 3x3 convolutions. Biases keep torch's default, as there.
    """
    channels, height, width = in_shape
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, 32, 3),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(32, 64, 3),
        relu2=nn.ReLU(),
        pool=nn.MaxPool2d(2),
        drop1=nn.Dropout(0.25),
        flatten=nn.Flatten(1),
        fc=nn.Linear((height - 4) // 2 * ((width - 4) // 2) * 64, 128),
        relu3=nn.ReLU(),
        drop2=nn.Dropout(0.5),
    )
    net = Net(nn.Sequential(layers), nn.Linear(128, num_classes))
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
    return net


def initial_net(setup: Setup) -> Net:
    """The workload's network with the weights that raffed starts from."""
    model, config = setup.config.model, setup.config
    return build(
        model.name,
        setup.data.input_shape,
        setup.dataset.num_classes,
        seeds.seed(config.seed, "weights"),
        **model.args,
    )


def started(data: Data, model: Model, epochs: float, batch: int, participation: float) -> RunConfig:
    """FedAvg with the benchmark's optimiser; evaluation and checkpoints out of reach."""
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
    Workload(
        "W1",
        "Fashion-MNIST, 20 of 100 clients, 1 epoch, MLP of 669,706 weights",
        started(_FASHION, Model("mlpnet", _BIAS), 1, 64, 0.2),
        4,
        10,
    ),
    Workload(
        "W2",
        "Fashion-MNIST, 20 of 100 clients, 5 epochs, LeNet-5 of 61,706 weights",
        started(_FASHION, Model("lenet", _BIAS), 5, 64, 0.2),
        1,
        10,
    ),
    Workload(
        "W3",
        "digits, 100 of 100 clients, 1 epoch of batch 16, MLP of 4,810 weights",
        started(Data("digits", "iid:100", local_test=0.0), Model("mlp", {"hidden": [64]}), 1, 16, 1.0),
        20,
        100,
        True,
    ),
    Workload(
        "W4",
        "CIFAR-10, 50 of 1,000 clients of 50 images, 1 epoch of batch 10, pfl's CNN of 1,626,442 weights",
        started(
            Data("cifar10", "iid:1000", transform="plain", local_test=0.0), Model("pfl_cnn"), 1, 10, 0.05
        ),
        2,
        10,
    ),
    Workload(
        "W5",
        "CIFAR-10, 20 of 100 clients, 1 epoch of batch 64, TFCNN of 66,570 weights",
        started(
            Data("cifar10", "shards:100:2", transform="plain", local_test=0.0),
            Model("tfcnn", _BIAS),
            1,
            64,
            0.2,
        ),
        1,
        10,
    ),
    Workload(
        "W7",
        "CIFAR-10, 100 of 100 clients, 5 epochs of batch 50, LeNet-5 of 62,006 weights",
        replace(
            started(
                Data("cifar10", "shards:100:2", transform="plain", local_test=0.0),
                Model("lenet", _BIAS),
                5,
                50,
                1.0,
            ),
            local=Local(lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=50, epochs=5),
        ),
        1,
        10,
    ),
)


# pfl-research's own settings (benchmarks/image_classification, baseline.yaml), for `whole.py` alone
_PFL = next(one for one in WORKLOADS if one.name == "W4")
WHOLE = replace(
    _PFL,
    name="W8",
    text="CIFAR-10, 50 of 1,000 clients of 50 images, 1 epoch of batch 10, pfl's CNN, plain SGD of rate 0.1",
    config=replace(_PFL.config, local=Local(lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=10, epochs=1)),
    block=1,
)


_CIFAR = Data("cifar10", "iid:10", transform="plain", local_test=0.0)
RESNET = Workload(
    "W6",
    "CIFAR-10, 10 of 10 clients of 5,000 images, 1 epoch of batch 64, ResNet-18",
    started(_CIFAR, Model("resnet18"), 1, 64, 1.0),
    1,
    10,
)
# Where other packages train: benchmarks.gpu says it to their processes
PEERS_DEVICE = os.environ.get("RAFFED_PEERS_DEVICE", "cpu")


def workload(name: str) -> Workload:
    return {w.name: w for w in (*WORKLOADS, WHOLE, RESNET)}[name]


def _all_digits(setup: Setup) -> tuple[Any, Dataset]:
    """All 1,797 digits as training data, 17 or 18 a client, as in the peer benchmark."""
    old = setup.dataset
    x, y = np.concatenate([old.x, old.x_test]), np.concatenate([old.y, old.y_test])
    dataset = replace(old, x=x, y=y)
    return make_partition(parse_split("iid:100"), y, old.num_classes, None, 0, 0.0), dataset
