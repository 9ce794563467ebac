"""D2: FedLESAM's issue 1. Its released code has 76.40, where FedSAM has 77.51.

The release cannot be executed, and no item holds an author's engine. So raffed's FedLESAM, which is the
paper's, stands beside FedSAM: it says what the published rule has in the issue's setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from raffed import Claim, Data, Federation, Model, RunConfig
from raffed.config.validation import Value
from raffed.tables.items import Published, shortened

from . import fedwmsam_fmnist
from .common import TableRow, cells, item

if TYPE_CHECKING:
    from torch import nn

COLUMN, ROUNDS, PROXY_ROUNDS = "Dir 0.1", 800, 100
ROWS = (TableRow("FedSAM", "fedsam", {"rho": 0.01}), TableRow("FedLESAM", "fedlesam", {"rho": 0.01}))
PREPARED: Mapping[str, Value] = {
    "mean": [0.491, 0.482, 0.447],
    "std": [0.247, 0.243, 0.262],
    "crop_padding": 4,
    "flip": True,
}


def resnet18(num_classes: int) -> nn.Module:
    """Return torchvision's ResNet-18 with group norm in 2 groups."""
    import torchvision  # late, because every list of tables imports this file
    from torch import nn

    def norm(channels: int) -> nn.Module:
        return nn.GroupNorm(2, channels)

    model: nn.Module = torchvision.models.resnet18(num_classes=num_classes, norm_layer=norm)
    return model


RUN = RunConfig(
    "fedavg",
    {},
    Data(
        "cifar10",
        f"{fedwmsam_fmnist.__name__}:refilled",
        split_args={"alpha": 0.1},
        transform="plain",
        transform_args=PREPARED,
        local_test=0.0,
    ),
    Model(f"{__name__}:resnet18"),
    fedwmsam_fmnist.LOCAL,
    Federation(ROUNDS, 0.1),
)


def proxy(full: RunConfig) -> RunConfig:
    """Return the run with 100 of the 800 rounds and LeNet."""
    return replace(full, federation=shortened(full.federation, PROXY_ROUNDS), model=Model("lenet"))


ITEM = item(
    "fedlesam-1",
    "FedLESAM's issue 1: below FedSAM",
    "accuracy_best",
    tuple(cell for row in ROWS for cell in cells(row, COLUMN, RUN, [], False)),
    baseline="FedSAM",
    note=(
        "no number is a target; raffed's methods in the place of its engine; at proxy scale "
        f"LeNet and {PROXY_ROUNDS} rounds"
    ),
    proxy=proxy,
    claims=(Claim.above("the published FedLESAM is above FedSAM", "FedLESAM", "FedSAM", COLUMN),),
    published=Published(
        "the issue's commands (MediaBrain-SJTU/FedLESAM d6663cc)",
        "best round of 800, one run",
        "CIFAR-10 and a GPU, or one CPU core at proxy scale",
        "400,000 steps a run, about 60 hours on one core, FedSAM twice as long; at proxy scale 50,000 steps, "
        "9 minutes",
        (
            "The cause is not found. The released optimiser adds a vector 40 to 62 times as long as ρ, with "
            "a cosine of at most 0.004 with the paper's, but at ρ = 0.01 neither turned the gradient by a "
            "cosine below 0.999, and no training was compared.",
        ),
    ),
)
