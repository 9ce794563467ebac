"""T12: the FedAvg of Flower's baseline TAMUNA, MNIST in 1,000 equal parts."""

from __future__ import annotations

from raffed import Data, Local, Model
from raffed.tables.items import Published

from .common import Printed, TableRow, base, cells, item
from .fedprox_mnist import NORMALISED

RUN = base(
    Data("mnist", "iid:1000", transform="plain", local_test=0.0, transform_args=NORMALISED),
    Model("cnn_mcmahan", {"padding": "pools"}),
    Local(lr=0.01, momentum=0.0, weight_decay=0.0, batch_size=60, epochs=3),
    35,
    0.01,
)
ITEM = item(
    "tamuna-mnist",
    "TAMUNA's FedAvg, MNIST",
    "accuracy_last",
    tuple(
        cells(
            TableRow("FedAvg", "fedavg"),
            "IID",
            RUN,
            [Printed("flower-tamuna", "loss_accuracy.png", "MNIST 1000 clients IID")],
        )
    ),
    margin=1.0,  # no deviation is printed, and nothing beside FedAvg
    published=Published(
        "Flower's baseline tamuna, loss_accuracy.png (adap/flower fdef7af)",
        "accuracy after round 35, read off the figure",
        "MNIST and one CPU core",
        "1,050 steps a run, a few minutes on one core",
        ("Its three repeats reset the same seed, so they are one run.",),
    ),
)
