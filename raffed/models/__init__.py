"""The networks, by name. Listing them does not import torch.

`build` makes a network whose weights depend on the seed alone:

    net = build("lenet", in_shape=(1, 32, 32), num_classes=10, seed=7)
    logits, z = net(x)                      # x [B, 1, 32, 32] -> [B, 10], [B, 84]

The arguments of a model are the keywords of its factory, which declares their types, ranges, defaults and
meanings, and those of `last_layers`, which are the same for every network; `raffed models NAME` prints both.
A network of one's own is named by a reference, such as
`./net.py:SmallNet`, and torchvision's by `torchvision:resnet18` (docs/own_model.md). To add a network to
raffed itself, write a factory `(in_shape, num_classes, *, keywords) -> Net` in this package, with the
sections Layers, Inputs and Source in its docstring, and add its name in catalogue.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from raffed.budget import allow
from raffed.config.validation import Declaration, Value, check_arguments, check_values, declarations
from raffed.errors import UsageError, check_choice
from raffed.models.catalogue import MODELS as MODELS
from raffed.models.catalogue import Factory, is_own

if TYPE_CHECKING:
    from raffed.models.last_layers import LastLayers
    from raffed.models.net import Net as Net

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
