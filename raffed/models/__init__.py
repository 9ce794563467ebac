"""The networks, by name. Listing them does not import torch.

`build` makes a network whose weights depend on the seed alone:

    net = build("lenet", in_shape=(1, 32, 32), num_classes=10, seed=7)
    logits, z = net(x)                      # x [B, 1, 32, 32] -> [B, 10], [B, 84]

The arguments of a model are the keywords of its factory, which declares their types, ranges, defaults and
meanings, and those of `last_layers`, which are the same for every network; `raffed models NAME` prints both.
A network of one's own is named by a reference, such as
`./net.py:SmallNet`, and torchvision's by `torchvision:resnet18` (docs/own_model.md). To add a network to
raffed itself, write a factory `(in_shape, num_classes, *, keywords) -> Net` in this package, with the
sections Layers, Inputs and Source in its docstring, and add its name to `_HOMES`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

from raffed.budget import allow
from raffed.config.source import Described, described
from raffed.config.validation import (
    Declaration,
    Doc,
    Length,
    Range,
    Value,
    check_arguments,
    check_values,
    declarations,
)
from raffed.errors import UsageError, check_choice
from raffed.models.own import GROUP
from raffed.own.names import reference_of, spelled

if TYPE_CHECKING:
    from raffed.models.last_layers import LastLayers
    from raffed.models.net import Net as Net


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


BIAS = "head_bias"  # an argument of each of raffed's factories, and of every network of one's own
COPIES = 4  # of the weights that training holds at least: a client's, the server's, a gradient, a sum


def build(name: str, in_shape: Sequence[int], num_classes: int, seed: int, **args: Value) -> Net:
    """Make a network on the CPU, in training mode, with weights that depend on `seed` alone.

    torch's global generator is neither read nor changed.

    Args:
        name: A key of MODELS, such as "lenet", a reference, or "torchvision:resnet18".
        in_shape: Shape of one input: channels, height and width of an image, or another shape if the network
            takes it. Each is at least 1.
        num_classes: Number of classes C, at least 1.
        seed: Seed of the weights. Equal seeds give equal weights, bit for bit.
        **args: Keywords of the network's factory and of `last_layers`.

    Returns:
        A network that maps images [B, *in_shape] to logits [B, C] and features [B, D].

    Raises:
        UnknownNameError: `name` is not in MODELS, and not a reference.
        UsageError: The network does not take this keyword, shape or number of classes.
        UserCodeError: The user's own code raised an error.

    Example:
        >>> net = build("mlp", in_shape=(1, 8, 8), num_classes=10, seed=7, hidden=(64,))
        >>> sum(p.numel() for p in net.parameters())
        4810
    """
    return build_for(name, args, in_shape, num_classes, seed)


def build_for(
    name: str,
    args: Mapping[str, Value],
    in_shape: Sequence[int],
    num_classes: int,
    seed: int,
    dtype: str = "float32",
) -> Net:
    """Do what `build` does, for inputs of type `dtype`: "float32", or "int64" for ids."""
    import torch

    from raffed.core.seeds import forked

    chosen, bias, last = check_args(name, args)
    shape = tuple(in_shape) if isinstance(in_shape, list | tuple) else in_shape
    if is_own(name):
        from raffed.models.own.factories import make_own, replace_branches
        from raffed.models.own.wrapping import ModelInputs

        if not isinstance(shape, tuple):
            raise UsageError(f"{name}: in_shape = {shape!r} is not a shape, such as (3, 32, 32)")
        with forked(seed), torch.device("cpu"):
            net = make_own(name, chosen, ModelInputs(shape, dtype), num_classes)
        replace_branches(net)
        if isinstance(bias, bool):
            net.set_head_bias(bias, name)
    else:
        factory = MODELS[name].load()
        _check_inputs(name, factory, shape, dtype)
        check_arguments(factory, {"in_shape": shape, "num_classes": num_classes})
        if chosen:  # such as widths; the numbers are counted before they take memory
            with forked(seed), torch.device("meta"):
                numbers = sum(tensor.numel() for tensor in factory(shape, num_classes, **chosen).parameters())
            allow(4 * COPIES * numbers, f"{name}, a network of {numbers:,} weights,")
        with forked(seed), torch.device("cpu"):
            net = factory(shape, num_classes, **chosen)
    last.put_into(net, seed)
    return net


def _check_inputs(name: str, factory: Factory, shape: Sequence[int], dtype: str) -> None:
    """Refuse ids, which raffed's own networks cannot take, and no images where only images can be taken."""
    if not dtype.startswith("float"):
        raise UsageError(
            f"{name} takes numbers, and the samples are ids (int64); use a model with an embedding "
            f"(--model ./file.py:NAME), or give x as x.astype('float32') if they are measurements"
        )
    wanted = declarations(factory)["in_shape"].length
    if wanted is not None and isinstance(shape, tuple) and len(shape) not in wanted:
        got = "x".join(map(str, shape)) or "()"
        raise UsageError(
            f"{name}: in_shape = {got} is not that of an image (channels x height x width); use `mlp`, or a "
            f"network of your own (--model ./file.py:NAME)"
        )


def check_args(name: str, args: Mapping[str, Value]) -> tuple[dict[str, Value], Value, LastLayers]:
    """Check the arguments of a network against their declarations. Imports torch.

    Args:
        name: A key of MODELS, a reference, or "torchvision:resnet18".
        args: The keywords of `build(name, ...)`.

    Returns:
        The arguments of the factory, whether the head of a network of one's own has a bias (None: as the
        network has it), and what becomes of the last layers.

    Raises:
        UnknownNameError: `name` is not in MODELS, or the network has no such argument.
        UsageError: A value has another type or is outside its range.
    """
    from raffed.models.last_layers import last_layers

    names = common_args(name)
    common = {key: value for key, value in args.items() if key in names}
    chosen = {key: value for key, value in args.items() if key not in names}
    if is_own(name):
        from raffed.models.own.factories import factory_of, keywords_of

        keywords_of(name, factory_of(name), chosen)
        check_values(name, {**declarations(last_layers), BIAS: Declaration(BIAS, "bool")}, common)
    else:
        check_choice("model", name, MODELS)
        known = declarations(MODELS[name].load())
        keywords = {key: entry for key, entry in known.items() if key not in ("in_shape", "num_classes")}
        check_values(name, {**keywords, **declarations(last_layers)}, args)
    bias = common.pop(BIAS, None)
    make: Callable[..., LastLayers] = last_layers
    return chosen, bias, make(**common)


def common_args(name: str) -> frozenset[str]:
    """Return which arguments of a network are raffed's own, and not those of its factory. Imports torch.

    A network of one's own may have an argument of such a name itself. Then it gets what is given for it.

    Args:
        name: A key of MODELS, a reference, or "torchvision:resnet18".
    """
    from raffed.models.last_layers import last_layers

    common = frozenset(declarations(last_layers))
    if not is_own(name):
        return common
    from raffed.models.own.factories import factory_of, named_arguments

    return (common | {BIAS}) - set(named_arguments(factory_of(name)))
