"""The table of the networks and what it says of each. Reading it does not import torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from raffed.config.validation import Doc, Length, Range
from raffed.errors import UsageError
from raffed.own.names import reference_of, spelled

if TYPE_CHECKING:
    from raffed.models.net import Net

# Arguments that several networks take with one meaning.


ImageShape = Annotated[
    tuple[int, int, int], Length(3, 3), Range(1), Doc("Channels, height and width of an image.")
]
AnyShape = Annotated[
    tuple[int, ...], Length(1), Range(1), Doc("Shape of one sample: (channels, height, width), or any other.")
]
Classes = Annotated[int, Range(1), Doc("Number of classes C.")]
HeadBias = Annotated[bool, Doc("Whether the head has a bias.")]
HiddenWidths = Annotated[Sequence[int], Length(1), Range(1), Doc("Widths of the hidden layers.")]
MoonProjection = Annotated[
    int, Range(0, 65536), Doc("Width of MOON's projection between body and head; 0 for none.")
]
ProjectionHidden = Annotated[
    int, Range(0, 65536), Doc("Width of the projection's hidden layer; 0: that of the last layer before it.")
]
Norm = Annotated[
    Literal["none", "layer"],
    Doc(
        "What follows each hidden layer: nothing (none), or LayerNorm over a sample, without weights (layer)."
    ),
]
NormPlace = Annotated[
    Literal["after", "before"], Doc("Whether this LayerNorm stands after or before the activation.")
]
DropoutRate = Annotated[float, Range(0.0, 0.99), Doc("Probability of dropout.")]


# What is known of a network before it is built.


GROUP = "raffed.models"  # of entry points
TORCHVISION = "torchvision:"  # what the names of torchvision's networks begin with
Shape = tuple[int, ...]
Factory = Callable[..., "Net"]


@dataclass(frozen=True)
class ModelInfo:
    """What `raffed models` prints about one network, and where its factory, which has its name, lives."""

    name: str
    layers: str  # one line, input to head; C is the number of classes
    in_shapes: tuple[Shape, ...]  # channels, height, width of the papers' inputs; the first is the default
    source: str
    module: str  # of this package, or with dots of another one
    takes_ids: bool = False  # whether samples are integers that number words, instead of measurements

    def load(self) -> Factory:
        """Return the factory. It is imported only now, and torch with it."""
        where = self.module if "." in self.module else f"raffed.models.{self.module}"
        found: Factory = getattr(importlib.import_module(where), self.name)
        return found


def is_own(name: str) -> bool:
    """Return whether a name stands for a network that is not raffed's own. Nothing is imported.

    Args:
        name: A key of MODELS, a reference such as "mylab.models:SmallNet", or "torchvision:resnet18".
    """
    return reference_of(name, GROUP, MODELS) is not None


def model_name(text: str) -> str:
    """Return the one spelling of a network's name: small letters, unless it is a reference.

    Raises:
        UnknownNameError: It is neither one of raffed's names nor a reference.
        UsageError: It looks like a reference and is not one.
    """
    if (name := text.strip()).startswith("timm:"):
        made = f'timm.create_model("{name[5:]}", num_classes=num_classes, in_chans=in_shape[0])'
        raise UsageError(
            f"{name} is not read, but three lines make it yours: write `import timm` into net.py, "
            f'`def net(num_classes, in_shape) -> "nn.Module":` and `    return {made}`, and give ./net.py:net'
        )
    return spelled("model", text, GROUP, MODELS)


_MAP = "Li et al., MAP, TKDE 2024"
_FEDMR = "FedMR, TMLR 2023"
_MPFEDCON = "MpFedcon 2022"

MODELS: dict[str, ModelInfo] = {
    info.name: info
    for info in (
        ModelInfo(
            "cnn5",
            (
                "conv5 64, ReLU, max-pool, conv5 64, ReLU, max-pool, flatten 1600, 120 ReLU, 64 ReLU | 64 ReLU, "  # noqa: E501
                "256, C"
            ),
            ((3, 32, 32), (1, 28, 28)),
            _MPFEDCON,
            "mlp",
        ),
        ModelInfo(
            "cnn_mcmahan",
            "conv5 32, ReLU, max-pool, conv5 64, ReLU, max-pool (padded), flatten 3136, 512 ReLU, C",
            ((1, 28, 28), (3, 32, 32)),
            "McMahan et al. 2017",
            "cnn",
        ),
        ModelInfo(
            "cnn_pfl",
            "conv3 32, ReLU, conv3 64, ReLU, max-pool, dropout 0.25, flatten 12544, 128 ReLU, dropout 0.5, C",
            ((3, 32, 32), (1, 28, 28)),
            "pfl-research (NeurIPS 2024)",
            "cnn",
        ),
        ModelInfo(
            "cnn_pfllib",
            "conv5 32, ReLU, max-pool, conv5 64, ReLU, max-pool, flatten 1024, 512 ReLU, C",
            ((1, 28, 28), (3, 32, 32)),
            "PFLlib (JMLR 2025); GPFL",
            "cnn",
        ),
        ModelInfo(
            "efficientnet_b0",
            "torchvision's B0 features, global mean, dropout 0.2, 640 ReLU, C",
            ((3, 200, 200),),
            f"{_FEDMR}; FLamby",
            "mobilenet",
        ),
        ModelInfo(
            "femnist_cnn",
            "conv5 32, ReLU, max-pool, conv5 64, ReLU, mean-pool to 4x4, flatten 1024, C",
            ((1, 28, 28),),
            f"{_MAP}, code",
            "cnn",
        ),
        ModelInfo(
            "lenet",
            "conv5 6, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten 400, 120 ReLU, 84 ReLU, C",
            ((1, 32, 32), (1, 28, 28), (3, 32, 32)),
            f"{_MAP}; LeCun et al. 1998",
            "cnn",
        ),
        ModelInfo(
            "lenet_2d",
            "lenet, 84 ReLU, 2, C (relu: ReLU on the 2-d feature)",
            ((1, 32, 32), (1, 28, 28)),
            f"{_MAP}, Figs. 5 and 8",
            "cnn",
        ),
        ModelInfo(
            "lenet_authors",
            "conv5 16, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten 400 (256 on 28x28), C",
            ((1, 32, 32), (1, 28, 28)),
            f"{_MAP}, code",
            "cnn",
        ),
        ModelInfo(
            "lenet_dlg",
            "3 times conv5 12, sigmoid (strides 2, 2, 1), flatten 768, C (fc_layers: 1 to 3)",
            ((3, 32, 32),),
            f"{_MPFEDCON}; Zhu et al. 2019",
            "mlp",
        ),
        ModelInfo(
            "linear",
            "flatten, C (sigmoid: a sigmoid before the cross-entropy)",
            ((1, 28, 28), (1, 8, 8)),
            "Li et al. 2020, FedProx; FedML; FLUTE",
            "cnn",
        ),
        ModelInfo(
            "mlp",
            "flatten, 64 ReLU, 64 ReLU, C (widths: hidden)",
            ((1, 8, 8),),
            "raffed, for tests and tiny images",
            "mlp",
        ),
        ModelInfo(
            "mlp5",
            "flatten, 512 ReLU, 256 ReLU | 256 ReLU, 256, C",
            ((1, 28, 28),),
            _MPFEDCON,
            "mlp",
        ),
        ModelInfo(
            "mlpnet",
            "flatten 1024, 512 ReLU, 512 ReLU, C (widths: hidden)",
            ((1, 32, 32), (1, 28, 28)),
            _MAP,
            "mlp",
        ),
        ModelInfo(
            "mlpnet_authors",
            "flatten 784, 1024 ReLU, 1024 ReLU, 128 ReLU, C",
            ((1, 28, 28), (1, 32, 32)),
            f"{_MAP}, code",
            "mlp",
        ),
        ModelInfo(
            "mobilenet_v2",
            "conv3 32, 17 inverted residuals 16 to 320, conv1 1280 (BN, ReLU after each), global mean, C",
            ((3, 32, 32),),
            "Sandler et al. 2018; FedVLS",
            "mobilenet",
        ),
        ModelInfo(
            "resnet18",
            "conv3 64, BN, ReLU, 4 stages of 2 basic blocks 64/128/256/512, global mean, C",
            ((3, 32, 32), (1, 28, 28)),
            f"{_FEDMR}; GLDP; MOON's code",
            "resnet",
        ),
        ModelInfo(
            "resnet18_gn",
            "resnet18 with GroupNorm instead of BN (groups: 2)",
            ((3, 32, 32), (1, 28, 28)),
            "Hsieh et al. 2020; Reddi et al. 2021",
            "resnet",
        ),
        ModelInfo(
            "resnet20",
            "conv3 16, BN, ReLU, 3 stages of 3 basic blocks 16/32/64, global mean, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            "resnet",
        ),
        ModelInfo(
            "resnet56",
            "conv3 16, BN, ReLU, 3 stages of 9 basic blocks 16/32/64, global mean, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            "resnet",
        ),
        ModelInfo(
            "resnet8",
            "conv3 16, BN, ReLU, 3 stages of 1 basic block 16/32/64, global mean, C",
            ((1, 8, 8), (1, 28, 28), (3, 32, 32)),
            "raffed, a BatchNorm stand-in for resnet18 on a CPU",
            "resnet",
        ),
        ModelInfo(
            "simplecnn",
            "conv5 6, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten, 120 ReLU, 84 ReLU, C",
            ((3, 32, 32), (1, 28, 28)),
            f"{_FEDMR}, code",
            "cnn",
        ),
        ModelInfo(
            "tfcnn",
            "conv3 32, ReLU, max-pool, conv3 64, ReLU, max-pool, conv3 64, ReLU, max-pool, flatten 1024, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            "cnn",
        ),
        ModelInfo(
            "vgg11",
            "conv3 64 M 128 M 256 256 M 512 512 M 512 512 M (ReLU after each; M: max-pool), flatten 512, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            "vgg",
        ),
        ModelInfo(
            "vgg11_bn",
            "vgg11 with BN after each convolution",
            ((3, 32, 32),),
            f"{_MAP}, code",
            "vgg",
        ),
        ModelInfo(
            "vgg11_dropout",
            "vgg11 up to flatten 512, then twice dropout 0.5, 512 ReLU, and C",
            ((3, 32, 32),),
            "Wang et al. 2020, FedNova, in Flower",
            "vgg",
        ),
        ModelInfo(
            "vgg16_bn",
            (
                "conv3 64 64 M 128 128 M 256x3 M 512x3 M 512x3 M (BN, ReLU after each; M: max-pool), flatten "
                "512, C"
            ),
            ((3, 32, 32),),
            f"{_MAP}, code",
            "vgg",
        ),
        ModelInfo(
            "vgg8",
            "conv3 64 M 128 M 256 M 512 M 512 M (ReLU after each; M: max-pool), flatten 512, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            "vgg",
        ),
        ModelInfo(
            "vgg8_bn",
            "vgg8 with BN after each convolution",
            ((3, 32, 32),),
            f"{_MAP}, code",
            "vgg",
        ),
        ModelInfo(
            "wrn28",
            (
                "conv3 16, 3 stages of 4 wide blocks 160/320/640 (dropout 0.3), BN, ReLU, global mean, C "
                "(widen: 10)"
            ),
            ((3, 32, 32),),
            f"{_FEDMR}, code",
            "resnet",
        ),
    )
}
