"""The networks, by name. Listing them does not import torch.

`build` makes a network whose weights depend on the seed alone:

    net = build("lenet", in_shape=(1, 32, 32), num_classes=10, seed=7)
    logits, z = net(x)                      # x [B, 1, 32, 32] -> [B, 10], [B, 84]

The arguments of a model are the keywords of its factory. All have `head_bias`, the MLPs have `hidden`, and
networks with dropout have `dropout`. Those that FedMR's tables use, and MAP's LeNet, have `projection`
(MOON's). To add a network, write a factory `(in_shape, num_classes, *, keywords) -> Net` in this package and
add one entry to MODELS.
"""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raffed.errors import UsageError, check_choice

if TYPE_CHECKING:
    from raffed.models.net import Net

Shape = tuple[int, ...]
Factory = Callable[..., "Net"]
Loader = Callable[[], Factory]


@dataclass(frozen=True)
class ModelInfo:
    """What `raffed models` prints about one network, and the function that imports its factory."""

    name: str
    title: str
    layers: str  # one line, input to head; C is the number of classes
    in_shapes: tuple[Shape, ...]  # channels, height, width of the papers' inputs; the first is the default
    source: str
    load: Loader = field(repr=False)
    inputs: str = "images"  # "images" (channels, height, width), "numbers" of any shape, or "any": also ids


def build(name: str, in_shape: Sequence[int], num_classes: int, seed: int, **args: object) -> Net:
    """Make a network on the CPU, in training mode, with weights that depend on `seed` alone.

    torch's global generator is neither read nor changed.

    Args:
        name: A key of MODELS, such as "lenet".
        in_shape: Channels, height and width of an image. Each is at least 1.
        num_classes: Number of classes C, at least 1.
        seed: Seed of the weights. Equal seeds give equal weights, bit for bit.
        **args: Keywords of the network's factory; `accepted_args(name)` lists them with their defaults.

    Returns:
        A network that maps images [B, *in_shape] to logits [B, C] and features [B, D].

    Raises:
        UnknownNameError: `name` is not in MODELS.
        UsageError: The network does not take this keyword, shape or number of classes.

    Example:
        >>> net = build("mlp", in_shape=(1, 8, 8), num_classes=10, seed=7, hidden=(64,))
        >>> sum(p.numel() for p in net.parameters())
        4810
    """
    check_choice("model", name, MODELS)
    shape = _checked_shape(name, in_shape)
    classes = _positive(f"{name}: num_classes", num_classes)
    factory = MODELS[name].load()
    _check_args(name, factory, args)
    import torch

    from raffed.core.seeds import forked

    with forked(seed), torch.device("cpu"):
        return factory(shape, classes, **args)


def accepted_args(name: str) -> dict[str, object]:
    """Return the keywords of `build(name, ...)` with their default values. Imports torch.

    Args:
        name: A key of MODELS.

    Returns:
        Keyword → default value.

    Raises:
        UnknownNameError: `name` is not in MODELS.
    """
    check_choice("model", name, MODELS)
    return _keywords(MODELS[name].load())


def _keywords(factory: Factory) -> dict[str, object]:
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _check_args(name: str, factory: Factory, args: dict[str, object]) -> None:
    known = _keywords(factory)
    unknown = [key for key in args if key not in known]
    if unknown:
        accepted = ", ".join(f"{key}={value!r}" for key, value in known.items())
        raise UsageError(f"{name}: unknown keyword {', '.join(map(repr, unknown))}; it accepts {accepted}")
    for key, value in args.items():
        _check_kind(f"{name}: {key} = {value!r}", value, known[key])


def _check_kind(what: str, value: object, default: object) -> None:
    """Check that a value has the type of its default: a truth value, an integer or a number.

    The factory checks ranges and lists itself.
    """
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"{what} is neither True nor False")
    elif isinstance(default, int | float):
        kinds = (int,) if isinstance(default, int) else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise UsageError(f"{what} is not {'an integer' if kinds == (int,) else 'a number'}")


def _checked_shape(name: str, in_shape: Sequence[int]) -> Shape:
    if not isinstance(in_shape, (tuple, list)) or not in_shape:
        raise UsageError(f"{name}: in_shape = {in_shape!r} is not (channels, height, width)")
    if len(in_shape) != 3 and MODELS[name].inputs == "images":
        raise UsageError(
            f"{name}: in_shape = {in_shape!r} is not (channels, height, width); --model mlp takes numbers "
            f"of any shape"
        )
    return tuple(_positive(f"{name}: each side of in_shape {tuple(in_shape)}", n) for n in in_shape)


def check_inputs(name: str, in_shape: Sequence[int], ids: bool) -> None:
    """Check that a network takes samples of this shape and kind.

    Args:
        name: A key of MODELS.
        in_shape: Shape of one sample.
        ids: Whether samples are integers that number words or categories, instead of numbers.

    Raises:
        UsageError: It does not.
    """
    check_choice("model", name, MODELS)
    _checked_shape(name, in_shape)
    if ids and MODELS[name].inputs != "any":
        raise UsageError(
            f"{name} takes numbers, and the samples are ids (int64); use a model with an embedding, or "
            f"give x as x.astype('float32') if they are measurements"
        )


def _positive(what: str, value: object) -> int:
    if hasattr(value, "__index__") and not isinstance(value, bool) and operator.index(value) >= 1:
        return operator.index(value)
    raise UsageError(f"{what} must be an integer of at least 1, got {value!r}")


def _from(module: str, name: str) -> Loader:
    """Return a function that imports the factory `name` of raffed/models/`module`.py, and torch with it."""

    def load() -> Factory:
        factory: Factory = getattr(importlib.import_module(f"raffed.models.{module}"), name)
        return factory

    return load


_MAP = "Li et al., MAP, TKDE 2024"
_FEDMR = "FedMR, TMLR 2023"
_MPFEDCON = "MpFedcon 2022"

MODELS: dict[str, ModelInfo] = {
    info.name: info
    for info in (
        ModelInfo(
            "cnn5",
            "5-layer CNN with projection",
            (
                "conv5 64, ReLU, max-pool, conv5 64, ReLU, max-pool, flatten 1600, 120 ReLU, 64 ReLU | 64 ReLU, "  # noqa: E501
                "256, C"
            ),
            ((3, 32, 32), (1, 28, 28)),
            _MPFEDCON,
            _from("projected", "cnn5"),
        ),
        ModelInfo(
            "efficientnet_b0",
            "EfficientNet-B0 + 640",
            "torchvision's B0 features, global mean, dropout 0.2, 640 ReLU, C",
            ((3, 200, 200),),
            f"{_FEDMR}; FLamby",
            _from("efficientnet", "efficientnet_b0"),
        ),
        ModelInfo(
            "femnist_cnn",
            "CNN for handwritten characters",
            "conv5 32, ReLU, max-pool, conv5 64, ReLU, mean-pool to 4x4, flatten 1024, C",
            ((1, 28, 28),),
            f"{_MAP}, code",
            _from("cnn", "femnist_cnn"),
        ),
        ModelInfo(
            "lenet",
            "LeNet-5",
            "conv5 6, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten 400, 120 ReLU, 84 ReLU, C",
            ((1, 32, 32), (1, 28, 28), (3, 32, 32)),
            f"{_MAP}; LeCun et al. 1998",
            _from("cnn", "lenet"),
        ),
        ModelInfo(
            "lenet_2d",
            "LeNet-2d",
            "lenet, 84 ReLU, 2, C (relu: ReLU on the 2-d feature)",
            ((1, 32, 32), (1, 28, 28)),
            f"{_MAP}, Figs. 5 and 8",
            _from("cnn", "lenet_2d"),
        ),
        ModelInfo(
            "lenet_authors",
            "LeNet of MAP's code",
            "conv5 16, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten 400 (256 on 28x28), C",
            ((1, 32, 32), (1, 28, 28)),
            f"{_MAP}, code",
            _from("cnn", "lenet_authors"),
        ),
        ModelInfo(
            "lenet_dlg",
            "LeNet of gradient leakage",
            "3 times conv5 12, sigmoid (strides 2, 2, 1), flatten 768, C (fc_layers: 1 to 3)",
            ((3, 32, 32),),
            f"{_MPFEDCON}; Zhu et al. 2019",
            _from("projected", "lenet_dlg"),
        ),
        ModelInfo(
            "mlp",
            "Small MLP",
            "flatten, 64 ReLU, 64 ReLU, C (widths: hidden)",
            ((1, 8, 8),),
            "raffed, for tests and tiny images",
            _from("mlp", "mlp"),
            "numbers",
        ),
        ModelInfo(
            "mlp5",
            "MLP with projection",
            "flatten, 512 ReLU, 256 ReLU | 256 ReLU, 256, C",
            ((1, 28, 28),),
            _MPFEDCON,
            _from("projected", "mlp5"),
        ),
        ModelInfo(
            "mlpnet",
            "MLPNet",
            "flatten 1024, 512 ReLU, 512 ReLU, C (widths: hidden)",
            ((1, 32, 32), (1, 28, 28)),
            _MAP,
            _from("mlp", "mlpnet"),
            "numbers",
        ),
        ModelInfo(
            "mlpnet_authors",
            "MLPNet of MAP's code",
            "flatten 784, 1024 ReLU, 1024 ReLU, 128 ReLU, C",
            ((1, 28, 28), (1, 32, 32)),
            f"{_MAP}, code",
            _from("mlp", "mlpnet_authors"),
            "numbers",
        ),
        ModelInfo(
            "resnet18",
            "ResNet-18, small-image stem",
            "conv3 64, BN, ReLU, 4 stages of 2 basic blocks 64/128/256/512, global mean, C",
            ((3, 32, 32), (1, 28, 28)),
            f"{_FEDMR}; GLDP; MOON's code",
            _from("resnet", "resnet18"),
        ),
        ModelInfo(
            "resnet20",
            "ResNet-20",
            "conv3 16, BN, ReLU, 3 stages of 3 basic blocks 16/32/64, global mean, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            _from("resnet", "resnet20"),
        ),
        ModelInfo(
            "resnet56",
            "ResNet-56",
            "conv3 16, BN, ReLU, 3 stages of 9 basic blocks 16/32/64, global mean, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            _from("resnet", "resnet56"),
        ),
        ModelInfo(
            "resnet8",
            "ResNet-8, small-image stem",
            "conv3 16, BN, ReLU, 3 stages of 1 basic block 16/32/64, global mean, C",
            ((1, 8, 8), (1, 28, 28), (3, 32, 32)),
            "raffed, a BatchNorm stand-in for resnet18 on a CPU",
            _from("resnet", "resnet8"),
        ),
        ModelInfo(
            "simplecnn",
            "SimpleCNN",
            "conv5 6, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten, 120 ReLU, 84 ReLU, C",
            ((3, 32, 32), (1, 28, 28)),
            f"{_FEDMR}, code",
            _from("cnn", "simplecnn"),
        ),
        ModelInfo(
            "tfcnn",
            "TFCNN",
            "conv3 32, ReLU, max-pool, conv3 64, ReLU, max-pool, conv3 64, ReLU, max-pool, flatten 1024, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            _from("cnn", "tfcnn"),
        ),
        ModelInfo(
            "vgg11",
            "VGG11",
            "conv3 64 M 128 M 256 256 M 512 512 M 512 512 M (ReLU after each; M: max-pool), flatten 512, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            _from("vgg", "vgg11"),
        ),
        ModelInfo(
            "vgg11_bn",
            "VGG11-BN",
            "vgg11 with BN after each convolution",
            ((3, 32, 32),),
            f"{_MAP}, code",
            _from("vgg", "vgg11_bn"),
        ),
        ModelInfo(
            "vgg16_bn",
            "VGG16-BN",
            (
                "conv3 64 64 M 128 128 M 256x3 M 512x3 M 512x3 M (BN, ReLU after each; M: max-pool), flatten "
                "512, C"
            ),
            ((3, 32, 32),),
            f"{_MAP}, code",
            _from("vgg", "vgg16_bn"),
        ),
        ModelInfo(
            "vgg8",
            "VGG8",
            "conv3 64 M 128 M 256 M 512 M 512 M (ReLU after each; M: max-pool), flatten 512, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            _from("vgg", "vgg8"),
        ),
        ModelInfo(
            "vgg8_bn",
            "VGG8-BN",
            "vgg8 with BN after each convolution",
            ((3, 32, 32),),
            f"{_MAP}, code",
            _from("vgg", "vgg8_bn"),
        ),
        ModelInfo(
            "wrn28",
            "WRN-28-10",
            (
                "conv3 16, 3 stages of 4 wide blocks 160/320/640 (dropout 0.3), BN, ReLU, global mean, C "
                "(widen: 10)"
            ),
            ((3, 32, 32),),
            f"{_FEDMR}, code",
            _from("wrn", "wrn28"),
        ),
    )
}
