"""The networks, by name. Listing them imports no torch; `build` makes one from a seed, the same bits every time.

    net = build("lenet", in_shape=(1, 32, 32), num_classes=10, seed=7)
    logits, z = net(x)                      # x [B, 1, 32, 32] -> [B, 10], [B, 84]

A model's keywords are those of its factory: `head_bias` everywhere, `hidden` for the two MLPs.
To add one: a factory `(in_shape, num_classes, *, keywords) -> Net` in this package, and one entry in MODELS.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raffed.core.errors import UsageError, check_choice

if TYPE_CHECKING:
    from raffed.models.net import Net

Shape = tuple[int, int, int]
Factory = Callable[..., "Net"]
Loader = Callable[[], Factory]


@dataclass(frozen=True)
class ModelInfo:
    """What `raffed models` prints of one network, and the function that fetches its factory."""

    name: str
    title: str
    layers: str  # one line, input to head; C is the number of classes
    in_shapes: tuple[Shape, ...]  # channels, height, width of the papers' inputs; the first is the default
    source: str
    load: Loader = field(repr=False)


def build(name: str, in_shape: Sequence[int], num_classes: int, seed: int, **args: object) -> Net:
    """The network `name` for inputs [B, *in_shape], on the CPU, in train mode, its weights a function of `seed` alone.

    torch's global generator is neither read nor moved. Raises UnknownNameError for a name that is not in MODELS,
    and UsageError for a keyword, a shape or a number of classes that the network does not take.
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
    """The keywords of `build(name, ...)` with their defaults. Imports torch."""
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
    if not isinstance(args.get("head_bias", True), bool):
        raise UsageError(f"{name}: head_bias = {args['head_bias']!r} is neither True nor False")


def _checked_shape(name: str, in_shape: Sequence[int]) -> Shape:
    if not isinstance(in_shape, (tuple, list)) or len(in_shape) != 3:
        raise UsageError(f"{name}: in_shape = {in_shape!r} is not (channels, height, width)")
    channels, height, width = (_positive(f"{name}: each side of in_shape {tuple(in_shape)}", n) for n in in_shape)
    return channels, height, width


def _positive(what: str, value: object) -> int:
    if hasattr(value, "__index__") and not isinstance(value, bool) and operator.index(value) >= 1:
        return operator.index(value)
    raise UsageError(f"{what} must be an integer of at least 1, got {value!r}")


def _mlp() -> Factory:
    from raffed.models.mlp import mlp

    return mlp


def _mlpnet() -> Factory:
    from raffed.models.mlp import mlpnet

    return mlpnet


def _lenet() -> Factory:
    from raffed.models.cnn import lenet

    return lenet


def _lenet_authors() -> Factory:
    from raffed.models.cnn import lenet_authors

    return lenet_authors


def _simplecnn() -> Factory:
    from raffed.models.cnn import simplecnn

    return simplecnn


def _tfcnn() -> Factory:
    from raffed.models.cnn import tfcnn

    return tfcnn


def _femnist_cnn() -> Factory:
    from raffed.models.cnn import femnist_cnn

    return femnist_cnn


def _resnet8() -> Factory:
    from raffed.models.resnet import resnet8

    return resnet8


def _resnet18() -> Factory:
    from raffed.models.resnet import resnet18

    return resnet18


_MAP = "Li et al., MAP, TKDE 2024"
_FEDMR = "FedMR, TMLR 2023"

MODELS: dict[str, ModelInfo] = {
    info.name: info
    for info in (
        ModelInfo(
            "femnist_cnn",
            "CNN for handwritten characters",
            "conv5 32, ReLU, max-pool, conv5 64, ReLU, mean-pool to 4x4, flatten 1024, C",
            ((1, 28, 28),),
            f"{_MAP}, code",
            _femnist_cnn,
        ),
        ModelInfo(
            "lenet",
            "LeNet-5",
            "conv5 6, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten 400, 120 ReLU, 84 ReLU, C",
            ((1, 32, 32), (1, 28, 28), (3, 32, 32)),
            f"{_MAP}; LeCun et al. 1998",
            _lenet,
        ),
        ModelInfo(
            "lenet_authors",
            "LeNet of MAP's code",
            "conv5 16, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten 400 (256 on 28x28), C",
            ((1, 32, 32), (1, 28, 28)),
            f"{_MAP}, code",
            _lenet_authors,
        ),
        ModelInfo(
            "mlp",
            "Small MLP",
            "flatten, 64 ReLU, 64 ReLU, C (widths: hidden)",
            ((1, 8, 8),),
            "raffed, for tests and tiny images",
            _mlp,
        ),
        ModelInfo(
            "mlpnet",
            "MLPNet",
            "flatten 1024, 512 ReLU, 512 ReLU, C (widths: hidden)",
            ((1, 32, 32), (1, 28, 28)),
            _MAP,
            _mlpnet,
        ),
        ModelInfo(
            "resnet18",
            "ResNet-18, small-image stem",
            "conv3 64, BN, ReLU, 4 stages of 2 basic blocks 64/128/256/512, global mean, C",
            ((3, 32, 32), (1, 28, 28)),
            f"{_FEDMR}; GLDP; MOON's code",
            _resnet18,
        ),
        ModelInfo(
            "resnet8",
            "ResNet-8, small-image stem",
            "conv3 16, BN, ReLU, 3 stages of 1 basic block 16/32/64, global mean, C",
            ((1, 8, 8), (1, 28, 28), (3, 32, 32)),
            "raffed, a BatchNorm stand-in for resnet18 on a CPU",
            _resnet8,
        ),
        ModelInfo(
            "simplecnn",
            "SimpleCNN",
            "conv5 6, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten, 120 ReLU, 84 ReLU, C",
            ((3, 32, 32), (1, 28, 28)),
            f"{_FEDMR}, code",
            _simplecnn,
        ),
        ModelInfo(
            "tfcnn",
            "TFCNN",
            "conv3 32, ReLU, max-pool, conv3 64, ReLU, max-pool, conv3 64, ReLU, max-pool, flatten 1024, C",
            ((3, 32, 32),),
            f"{_MAP}, code",
            _tfcnn,
        ),
    )
}
