"""The table of the networks and what it says of each. Reading it does not import torch."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

from raffed.config.source import Described, described
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
    """A network: its name, which is that of its factory, and the module of the factory.

    What a listing shows is read from the docstring of the factory.
    """

    name: str
    module: str

    def load(self) -> Factory:
        """Return the factory. It is imported only now, and torch with it."""
        factory: Factory = getattr(importlib.import_module(self.module), self.name)
        return factory

    @cached_property
    def described(self) -> Described:
        """The arguments and the docstring of the factory."""
        return described(self.module, self.name)

    def said(self, section: str) -> list[str]:
        """Return the lines of a section of the docstring."""
        match = re.search(rf"^{section}:\n((?: +.+\n?)+)", self.described.doc, re.MULTILINE)
        return [line.strip() for line in match[1].splitlines()] if match else []

    @property
    def layers(self) -> str:
        """The layers from the input to the head; C is the number of classes."""
        return " ".join(self.said("Layers"))

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """Channels, height and width of the papers' inputs; the first is the default."""
        texts = self.said("Inputs")[0].split(", ")
        return tuple(tuple(map(int, text.split("x"))) for text in texts)

    @property
    def source(self) -> str:
        """Where the network comes from: the first line of what is said about that."""
        return self.said("Source")[0].removesuffix(".")


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
        call = f'timm.create_model("{name[5:]}", num_classes=num_classes, in_chans=in_shape[0])'
        raise UsageError(
            f"{name} is not read, but three lines make it yours: write `import timm` into net.py, "
            f'`def net(num_classes, in_shape) -> "nn.Module":` and `    return {call}`, and give ./net.py:net'
        )
    return spelled("model", text, GROUP, MODELS)


_HOMES = {  # file of this package → its networks
    "cnn": "cnn_mcmahan cnn_pfl cnn_pfllib femnist_cnn lenet lenet_2d lenet_authors linear simplecnn tfcnn",
    "mlp": "cnn5 lenet_dlg mlp mlp5 mlpnet mlpnet_authors",
    "mobilenet": "efficientnet_b0 mobilenet_v2",
    "resnet": "resnet18 resnet18_gn resnet20 resnet56 resnet8 wrn28",
    "vgg": "vgg11 vgg11_bn vgg11_dropout vgg16_bn vgg8 vgg8_bn",
}
MODELS: dict[str, ModelInfo] = {
    name: ModelInfo(name, f"raffed.models.{home}")
    for name, home in sorted((name, home) for home, names in _HOMES.items() for name in names.split())
}
