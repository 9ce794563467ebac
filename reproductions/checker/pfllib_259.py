"""D1: PFLlib's issue 259. FedAvg with ResNet18 has 89.63, where FedALA's paper prints 59.16.

No item holds an author's engine: its path is the user's, and a table is no word for code of a stranger. So
raffed's methods stand for both ways to score the same training.
"""

from __future__ import annotations

from dataclasses import replace

from raffed import Claim, Model, RunConfig
from raffed.tables.items import Published, shortened

from .common import HALVED, TableRow, cells, item
from .pfllib import BETWEEN, DOWNLOADED, column_base

COLUMN, PROXY_ROUNDS, PROXY_IMAGES = "Dir 0.1", 100, 10_000
OWN, MEAN = "own statistics", "mean statistics"
ROWS = (
    TableRow(OWN, "fedbn", {"kept": "statistics"}, weighting="samples"),
    TableRow(MEAN, "fedavg", measure=DOWNLOADED),
)
RUN = column_base("cifar10", "capped-dirichlet:20:0.1:40:pfllib:0:1", "plain", HALVED).changed(
    {"model.name": "torchvision:resnet18", "federation.participation": 0.5, "federation.eval_every": 5}
)


def proxy(full: RunConfig) -> RunConfig:
    """Return the run with 100 of the 2,000 rounds, 10,000 images, and a small network with BatchNorm."""
    federation = shortened(full.federation, PROXY_ROUNDS)
    data, model = replace(full.data, samples=PROXY_IMAGES), Model("resnet8", {"stem_stride": 2})
    return replace(full, federation=federation, data=data, model=model)


GAIN = ((1.0, OWN, COLUMN), (-1.0, MEAN, COLUMN))
ITEM = item(
    "pfllib-259",
    "PFLlib's issue 259: FedAvg above its print",
    BETWEEN,
    tuple(cell for row in ROWS for cell in cells(row, COLUMN, RUN, [], False)),
    baseline=MEAN,
    note=(
        "no number is a target; raffed's methods in the place of its engine; at proxy scale "
        f"resnet8, {PROXY_IMAGES:,} images and {PROXY_ROUNDS} rounds"
    ),
    proxy=proxy,
    claims=(
        Claim("clients' own statistics score higher than their mean", GAIN),
        Claim("they add more than half of the 30.47 points", GAIN, minus=15.24, sized=True),
    ),
    published=Published(
        "the issue's commands (TsingZ0/PFLlib d832e76)",
        "best round of 2,000 by Σ correct / Σ test samples over all clients, one run",
        "CIFAR-10 and a GPU, or one CPU core at proxy scale",
        "4.5 million steps a run, about 250 hours on one core; 37,000 steps at proxy scale, 8 minutes",
        (
            "The cause is not found. PFLlib sends no statistics of BatchNorm, so each client is scored with "
            "its own. After 20 rounds of its engine the same weights had 17.4 % with these and 22.1 % with "
            "their mean (253 images, one seed), hardly better than chance.",
        ),
        may_differ=("federation.weighting",),
    ),
)
