"""T14: FLamby's Fed-ISIC2019, six centres. It needs a GPU, the data and ImageNet weights."""

from __future__ import annotations

from raffed import Data, Federation, Local, Model, RunConfig
from raffed.tables.items import Published

from .common import Printed, TableRow, cells, item

LOSS = "raffed.reproductions.checker.isic_loss:weighted_focal"
RUN = RunConfig(
    "fedavg",
    {},
    Data("isic2019", "natural", transform="fedmr", local_test=0.0),
    Model("torchvision:efficientnet_b0", {"pretrained": True}),
    Local(lr=0.01, momentum=0.0, weight_decay=0.0, batch_size=64, epochs=0.001, min_steps=100),
    Federation(9),
    loss=LOSS,
)
ROWS = (
    TableRow("FedAvg", "fedavg", printed="FedAvg100"),
    TableRow("FedProx", "fedprox", {"mu": 0.001}, printed="FedProx100"),
    TableRow("SCAFFOLD", "scaffold", {"server_lr": 1.0}, printed="Scaffold100", weighting="samples"),
    TableRow("FedAdam", "fedadam", {"server_lr": 0.0032, "beta2": 0.999, "tau": 0.001}, printed="FedAdam100"),
    TableRow("FedYogi", "fedyogi", {"server_lr": 0.0032, "beta2": 0.999, "tau": 0.001}, printed="FedYogi100"),
    TableRow("FedAdagrad", "fedadagrad", {"server_lr": 0.032, "tau": 0.001}, printed="FedAdagrad100"),
)
PRINTED = Printed("flamby", "results_benchmark_fed_isic2019", "Fed-ISIC2019 pooled test", "balanced_accuracy")
ITEM = item(
    "isic2019",
    "FLamby's Fed-ISIC2019",
    "balanced_last",
    tuple(cell for row in ROWS for cell in cells(row, "pooled test", RUN, [PRINTED])),
    margin=2.07,  # √(mean s²) is 6.35, so half of the largest printed gain (FedAdam, +4.14)
    note="no order is claimed",
    published=Published(
        "FLamby, results_benchmark_fed_isic2019 (owkin/FLamby edacf54)",
        "balanced accuracy on the pooled test after 9 rounds of 100 updates, mean ± deviation of 5 seeds",
        "ISIC2019 in FLamby's preparation and a GPU",
        "5,400 steps a run, an estimated 30 minutes on one GPU, not measured",
        (
            "One of five seeds of FedAvg is at 33.0, which makes its deviation 11.40.",
            "BatchNorm's statistics stay with the clients there, and the model of client 0 is scored; raffed "
            "averages statistics.",
        ),
        {
            "Cyclic100": "raffed has no cyclic training of one model from centre to centre",
            "Pooled Training": "it is not federated",
            "Local": "local training of one centre, scored on the pooled test, is not a number of a raffed "
            "run",
        },
        lacks=(
            "torchvision's ImageNet weights of EfficientNet-B0: without their file in torchvision's cache no "
            "run begins",
        ),
        repeats={"flamby": 5},
    ),
)
