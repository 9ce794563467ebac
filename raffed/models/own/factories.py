"""From a name to a network: the user's own code, or a name of torchvision's, also pretrained."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torchvision
from torch import nn
from torchvision.ops import StochasticDepth

from raffed.config.validation import Value
from raffed.errors import UnknownNameError, UsageError, check_choice
from raffed.models.net import Dropout, Net
from raffed.models.own import GROUP, TORCHVISION
from raffed.models.own.wrapping import ModelInputs, own_errors, wrapped
from raffed.own.names import reference_of
from raffed.own.resolve import load
from raffed.own.user_code import may_be_called

# Stochastic depth whose random numbers come from raffed.


def replace_branches(net: nn.Module) -> None:
    """Replace torchvision's StochasticDepth, which draws from torch's global generator, by raffed's dropout
    of whole samples. Layers with p = 0 are left alone.

    Raises:
        UsageError: A layer drops whole batches, so that the samples of a batch depend on each other.
    """
    for parent in list(net.modules()):
        for name, layer in list(parent._modules.items()):  # an object that is used twice, too
            if isinstance(layer, StochasticDepth) and layer.p > 0:
                if layer.mode != "row":
                    raise UsageError(f"StochasticDepth(mode={layer.mode!r}) drops whole batches; use 'row'")
                setattr(parent, name, Dropout(layer.p, rows=True))


# torchvision's weights for ImageNet, from the file in its cache. Nothing is downloaded.


FOLDER = "checkpoints"  # below torch.hub's folder, where torchvision keeps its files


def weights_file(name: str) -> Path:
    """Return where torchvision keeps the default weights of a network.

    Raises:
        UsageError: torchvision has no weights for it.
    """
    try:
        known = torchvision.models.get_model_weights(name).DEFAULT
    except (AttributeError, ValueError) as error:
        raise UsageError(
            f"torchvision:{name}: torchvision has no weights for it; leave pretrained out"
        ) from error
    return Path(torch.hub.get_dir()) / FOLDER / str(known.url).rpartition("/")[2]


def load_pretrained(module: nn.Module, name: str) -> None:
    """Copy torchvision's weights for ImageNet into a network, except those of the head.

    The file's name ends with the beginning of its SHA-256, which is compared.

    Args:
        module: torchvision's network of this name, with any number of classes.
        name: Name of the network.

    Raises:
        UsageError: The file is not there, is damaged, or does not belong to this form of the network.
    """
    path = weights_file(name)
    if not path.is_file():
        raise UsageError(
            f"torchvision:{name}: pretrained = true needs the file {path.name} in {path.parent}, and it is "
            "not there; put it there, or leave pretrained out"
        )
    wanted, digest = path.stem.rpartition("-")[2], hashlib.sha256(path.read_bytes()).hexdigest()
    if not digest.startswith(wanted):
        raise UsageError(
            f"{path} has the SHA-256 {digest[:12]}, and its name says {wanted}; put the file back"
        )
    stored: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    weights = module.state_dict()
    fitting = {
        key: value for key, value in stored.items() if key in weights and weights[key].shape == value.shape
    }
    left = sorted(weights.keys() - fitting.keys())
    if len({key.rpartition(".")[0] for key in left}) > 1:  # more than the head
        raise UsageError(
            f"torchvision:{name}: {path.name} has no weights for {left[0]}; leave out the arguments that "
            "change the network"
        )
    module.load_state_dict(fitting, strict=False)


Factory: TypeAlias = Callable[..., nn.Module]
GIVEN = ("in_shape", "num_classes")  # what a factory receives if its signature names it
HEAD = "head"  # the argument that raffed takes itself, unless the factory has one of this name


def make_own(name: str, args: Mapping[str, Value], inputs: ModelInputs, num_classes: int) -> Net:
    """Make a network of one's own, with weights from the present random seed.

    Args:
        name: A reference, such as "mylab.models:SmallNet", or "torchvision:resnet18".
        args: Keyword arguments of the class or function. It also receives `num_classes` and `in_shape` if
            its signature names them. `head`, the name of the layer that makes the scores, is raffed's own.
        inputs: Shape and type of the inputs.
        num_classes: Number of classes C.

    Raises:
        UnknownNameError: The class or function has no such argument.
        UsageError: It cannot be called like this, or its result cannot be trained.
        UserCodeError: The user's own code raised an error.
    """
    factory = factory_of(name)
    keywords = keywords_of(name, factory, args)
    known = inspect.signature(factory).parameters
    head = None if HEAD in known or HEAD not in keywords else str(keywords.pop(HEAD))
    about: dict[str, Value] = {"in_shape": inputs.shape, "num_classes": num_classes}
    keywords = {**{key: value for key, value in about.items() if key in known}, **keywords}
    with own_errors(name):
        module = factory(**keywords)
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"{name} made a {type(module).__name__}; it must make an nn.Module that returns scores"
        )
    return wrapped(module, head, inputs, name)


def factory_of(name: str) -> Factory:
    """Return the class or function behind a name.

    Raises:
        UsageError: There is none, or it is an object that is neither.
    """
    if name.startswith(TORCHVISION):
        return _torchvision(name.removeprefix(TORCHVISION))
    maker: Any = load(reference_of(name, GROUP, ()) or name)
    if isinstance(maker, nn.Module) or not callable(maker):
        raise UsageError(
            f"{name} is a {type(maker).__name__}; it must be a class or a function, so that every "
            f"process makes a network of its own"
        )
    is_network = isinstance(maker, type) and issubclass(maker, nn.Module)
    if not (is_network or (isinstance(maker, types.FunctionType) and may_be_called(maker, "Module", "Net"))):
        raise UsageError(
            f"{name} is not known to make a network; it must be a subclass of nn.Module, or a function with "
            f"the annotation `-> nn.Module`"
        )
    factory: Factory = maker
    return factory


def keywords_of(name: str, factory: Factory, args: Mapping[str, Value]) -> dict[str, Value]:
    """Return the arguments if the factory takes them and no other is missing.

    Raises:
        UnknownNameError: The factory has no such argument. The message lists those that it has.
        UsageError: An argument that the factory needs was not given.
    """
    known, named = inspect.signature(factory).parameters, named_arguments(factory)
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    for key in args:
        if not (free or key in named or key == HEAD):
            raise UnknownNameError(f"argument of {name}", key, [*named, HEAD])
    for key in named:
        if known[key].default is inspect.Parameter.empty and key not in (*args, *GIVEN):
            raise UsageError(f"{name} needs a value for {key}: --model-arg {key}=VALUE")
    return dict(args)


def named_arguments(factory: Factory) -> list[str]:
    """Return the names of the arguments that a factory's signature spells out."""
    known = inspect.signature(factory).parameters
    by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return [key for key, parameter in known.items() if parameter.kind in by_name]


@functools.cache
def torchvision_names() -> tuple[str, ...]:
    """Return the names of torchvision's classification networks."""
    return tuple(torchvision.models.list_models(module=torchvision.models))


def _torchvision(name: str) -> Factory:
    """Return a function that makes torchvision's network of this name.

    Its weights are random, or with `pretrained` those that torchvision has for ImageNet, except the head's.
    """
    check_choice("network of torchvision", name, torchvision_names())

    def make(
        in_shape: tuple[int, ...], num_classes: int, pretrained: bool = False, **args: Value
    ) -> nn.Module:
        if "weights" in args:
            raise UsageError(
                f"torchvision:{name}: weights are random here; pretrained=true starts from torchvision's, "
                "and --init FILE from a file"
            )
        if not isinstance(pretrained, bool):
            raise UsageError(f"torchvision:{name}: pretrained = {pretrained!r} must be true or false")
        if len(in_shape) != 3 or in_shape[0] != 3:
            got = "x".join(map(str, in_shape))
            raise UsageError(f"torchvision:{name} is for images 3xHxW; one input has the shape {got}")
        sizes = _sizes(name, in_shape)
        module: nn.Module = torchvision.models.get_model(
            name, weights=None, num_classes=num_classes, **{**sizes, **args}
        )
        if pretrained:
            load_pretrained(module, name)
        return module

    return make


def _sizes(name: str, in_shape: tuple[int, ...]) -> dict[str, Value]:
    """Return the arguments by which torchvision's networks learn the size of an image, and leave out heads
    that return a second tensor of scores in training.
    """
    if name.startswith("vit_"):
        return {"image_size": in_shape[1]}
    if name == "maxvit_t":
        return {"input_size": in_shape[1:]}
    if name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}
    return {}
