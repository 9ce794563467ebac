"""T17: Table 1 of pfl-research, CIFAR-10 in 1,000 parts. It is about throughput and has no target."""

from __future__ import annotations

from raffed import Data, Federation, Local, Model, RunConfig
from raffed.tables.items import Cell, Published

from .common import item

RUN = RunConfig(
    "fedavg",
    {},
    Data("cifar10", "iid:1000", transform="plain", local_test=0.0),
    Model("cnn_pfl"),
    Local(lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=10, epochs=1),
    Federation(1500, 0.05, eval_every=10, weighting="clients"),
)
ITEM = item(
    "pfl-cifar10",
    "pfl-research's Table 1, CIFAR-10",
    "accuracy_last",
    (Cell("FedAvg", "IID", RUN, {}), Cell("FedAvg (seconds a round)", "IID", RUN, {}, "seconds_round")),
    note="throughput without a target; workload W4 of benchmarks compares its seconds",
    published=Published(
        "pfl-research, configs/baseline.yaml (apple/pfl-research c9d1f32)",
        "minutes and accuracy after 1,500 rounds",
        "CIFAR-10 and a GPU",
        "375,000 steps a run, an estimated hour on one GPU, not measured",
        ("Its minutes and accuracies could not be read anywhere.",),
    ),
)
