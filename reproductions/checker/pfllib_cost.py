"""T8: PFLlib's table of minutes an iteration, the only public cost by method.

Only ratios to FedAvg are judged. The published network and data need a GPU. At proxy scale the rounds are
those of PFLlib's CNN on Fashion-MNIST.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from raffed import Claim, Data, Federation, Model, RunConfig
from raffed.tables.items import Published

from .common import Printed, TableRow, cells, item
from .pfllib import LOCAL

COLUMN = "Dir 0.1"
RATIOS: Mapping[str, float] = {  # minutes an iteration, divided by FedAvg's 1.59
    "FedProx": 1.25,
    "Per-FedAvg": 2.24,
    "pFedMe": 6.4,
    "Ditto": 7.4,
    "APFL": 1.7,
    "FedPer": 1.2,
    "FedRep": 2.6,
    "FedRoD": 1.1,
    "FedProto": 3.5,
}
ROWS = (
    TableRow("FedAvg", "fedavg"),
    TableRow("FedProx", "fedprox"),
    TableRow("Per-FedAvg", "perfedavg"),
    TableRow("pFedMe", "pfedme"),
    TableRow("Ditto", "ditto"),
    TableRow("APFL", "apfl"),
    TableRow("FedPer", "fedper"),
    TableRow("FedRep", "fedrep", {"head_epochs": 1.0, "body_epochs": 1.0}),
    TableRow("FedRoD", "fedrod"),
    TableRow("FedProto", "fedproto"),
)
FULL = RunConfig(
    "fedavg",
    {},
    Data(
        "tiny-imagenet",
        "capped-dirichlet:20:0.1:40:pfllib:0:1",
        pool="joined",
        transform="plain",
        local_test=0.25,
    ),
    Model("torchvision:resnet18"),
    LOCAL,
    Federation(3),
)


def proxy(full: RunConfig) -> RunConfig:
    """Return the same method on 6,000 images of Fashion-MNIST with PFLlib's CNN."""
    data = replace(full.data, dataset="fashion-mnist", transform="map-authors", samples=6000)
    return replace(full, data=data, model=Model("cnn_pfllib"))


ITEM = item(
    "pfllib-cost",
    "PFLlib's minutes an iteration",
    "seconds_round",
    tuple(
        cell
        for row in ROWS
        for cell in cells(
            row,
            COLUMN,
            FULL,
            [Printed("pfllib", "cost", "Tiny-ImageNet Dir0.1", "minutes_per_iteration")],
            False,
        )
    ),
    note=(
        "printed are minutes on a card that is not named, ours are seconds on this machine, so only the "
        "ratios to FedAvg are judged: raffed's should be below the printed one"
    ),
    proxy=proxy,
    claims=tuple(
        Claim(
            f"{row} takes less than {ratio:g} times FedAvg's seconds",
            ((ratio, "FedAvg", COLUMN), (-1.0, row, COLUMN)),
        )
        for row, ratio in RATIOS.items()
    ),
    published=Published(
        "PFLlib, docs/benchmark.html (TsingZ0/PFLlib d832e76)",
        "minutes an iteration, one number each",
        "Tiny-ImageNet and a GPU; at proxy scale Fashion-MNIST and one CPU core",
        "3 rounds a run; minutes on a GPU",
        (
            "The card is not named. Ditto's 7.4 for twice the steps shows an implementation at work, not a "
            "method.",
        ),
        dict.fromkeys(
            ("FedGen", "FedFomo", "FedAMP", "APPLE", "FedCP", "GPFL", "FedDistill"),
            "raffed has no such method",
        )
        | dict.fromkeys(("FedALA", "FedBABU", "FedDBE"), "the settings behind the print are not known"),
    ),
)
