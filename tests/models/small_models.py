"""Every model at the smallest shape that it takes, with three classes, and images for it."""

import torch
from torch import Tensor

from raffed.models import build
from raffed.models.net import Net

SMALLEST = {
    "cnn5": (1, 16, 16),
    "cnn_mcmahan": (1, 4, 4),
    "cnn_pfl": (1, 6, 6),
    "cnn_pfllib": (1, 16, 16),
    "efficientnet_b0": (3, 33, 33),
    "femnist_cnn": (1, 8, 8),
    "lenet": (1, 28, 28),
    "lenet_2d": (1, 28, 28),
    "lenet_authors": (1, 16, 16),
    "lenet_dlg": (1, 2, 2),
    "linear": (1, 2, 2),
    "mlp": (1, 2, 2),
    "mlp5": (1, 2, 2),
    "mlpnet": (1, 2, 2),
    "mlpnet_authors": (1, 2, 2),
    "mobilenet_v2": (1, 9, 9),
    "resnet18": (1, 9, 9),
    "resnet18_gn": (1, 8, 8),
    "resnet20": (1, 8, 8),
    "resnet56": (1, 8, 8),
    "resnet8": (1, 8, 8),
    "simplecnn": (1, 16, 16),
    "tfcnn": (1, 8, 8),
    "vgg11": (1, 32, 32),
    "vgg11_bn": (1, 32, 32),
    "vgg11_dropout": (1, 32, 32),
    "vgg16_bn": (1, 32, 32),
    "vgg8": (1, 32, 32),
    "vgg8_bn": (1, 32, 32),
    "wrn28": (1, 8, 8),
}
ARGS: dict[str, dict[str, object]] = {"mlpnet": {"hidden": (16, 8)}, "wrn28": {"widen": 1}}
BATCH_NORM = [
    *("efficientnet_b0", "mobilenet_v2", "resnet18", "resnet20", "resnet56", "resnet8"),
    *("vgg11_bn", "vgg16_bn", "vgg8_bn", "wrn28"),
]
SIGNED = {"cnn5", "lenet_2d", "linear", "mlp5"}  # the last layer before the head has no ReLU
# Network: dropouts, without B0's first branches, which are never dropped
DROPOUT = {"cnn_pfl": 2, "efficientnet_b0": 10, "vgg11_dropout": 2, "wrn28": 12}
HEAVY = {
    *("efficientnet_b0", "mobilenet_v2", "resnet18", "resnet18_gn", "resnet56", "vgg11", "vgg11_bn"),
    *("vgg11_dropout", "vgg16_bn", "vgg8", "vgg8_bn", "wrn28"),
}
STILL: dict[str, dict[str, float]] = {
    "efficientnet_b0": {"dropout": 0.0, "stochastic_depth": 0.0},
    "cnn_pfl": {"dropout": 0.0},
    "vgg11_dropout": {"dropout": 0.0},
    "wrn28": {"dropout": 0.0},
}


def small(name: str, seed: int = 0, **args: float) -> Net:
    return build(name, SMALLEST[name], 3, seed, **{**ARGS.get(name, {}), **args})


def inputs(name: str, *batch: int) -> Tensor:
    return torch.randn(*batch, *SMALLEST[name], generator=torch.Generator().manual_seed(5))
