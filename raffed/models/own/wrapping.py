"""A user's module as raffed's network, and back."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from raffed.core.seeds import forked
from raffed.errors import RaffedError, UsageError
from raffed.models.net import Net
from raffed.own.user_code import UserCodeError, where_raised

# The head of a module: the linear layer whose output is the scores that the module returns.


@dataclass(frozen=True)
class ModelInputs:
    """What the inputs of a network look like.

    Attributes:
        shape: Shape of one input, without the axis of the samples. It may be any shape, such as (3, 32, 32)
            for images, (13,) for a row of a table, or (20,) for a sequence of 20 ids.
        dtype: "float32", or "int64" for ids.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"

    def batch(self, n: int) -> Tensor:
        """Return n inputs [n, *shape] that are always the same: random floats in [0, 1), or the id 0."""
        if not self.dtype.startswith("float"):
            return torch.zeros(n, *self.shape, dtype=torch.int64)
        return torch.rand(n, *self.shape, generator=torch.Generator().manual_seed(0))

    def __str__(self) -> str:
        return f"{self.dtype} {'x'.join(map(str, self.shape))}"


def find_head(module: nn.Module, head: str | None, x: Tensor, title: str) -> str:
    """Return the name of the linear layer whose output a module returns, in evaluation and in training.

    Args:
        module: A module from inputs [B, ...] to scores [B, C]. It is called twice; nothing of it changes.
        head: The name if it is known; without it, the layer that the module calls last.
        x: A batch of inputs.
        title: How messages name the module.

    Raises:
        UsageError: The module returns something else than the output of this layer, or calls no linear one.
    """
    calls: list[tuple[str, Tensor]] = []
    buffers = copy.deepcopy(dict(module.named_buffers()))
    hooks = [
        layer.register_forward_hook(lambda _, __, output, name=name: calls.append((name, output.clone())))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        for training in (False, True):
            calls.clear()
            with forked(0):
                scores = scores_of(module, x.clone(), title, training=training)
            if not calls:
                raise UsageError(
                    f"{title}: it calls no nn.Linear; let it end in an nn.Linear and return its output, "
                    "without softmax, or name that layer by head="
                )
            head = calls[-1][0] if head is None else head
            outputs = [output for name, output in calls if name == head]
            if len(outputs) != 1 or not torch.equal(outputs[0].flatten(), scores.flatten()):
                raise UsageError(
                    f"{title}: the scores that it returns are not the output of its layer {head!r} for one "
                    "vector a sample; return that output as it is, or name another layer by head="
                )
    finally:
        for hook in hooks:
            hook.remove()
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
    assert head is not None
    return head


def scores_of(module: nn.Module, x: Tensor, title: str, *, training: bool = False) -> Tensor:
    """Return the scores of a batch in evaluation or training mode, without gradient.

    Raises:
        UsageError: They are not one tensor, or torch cannot compute them.
        UserCodeError: The user's own code raised an error.
    """
    returned = _returned(module, x, title, training)
    return one_tensor(returned[0] if isinstance(module, Net) else returned, title)


def _returned(module: nn.Module, x: Tensor, title: str, training: bool) -> Any:
    """Return what a module returns for a batch, without gradient."""
    modes = {layer: layer.training for layer in module.modules()}
    with torch.no_grad(), own_errors(f"{title} with inputs [{', '.join(map(str, x.shape))}]"):
        try:
            return module.train(training)(x)
        finally:
            for layer, mode in modes.items():
                layer.training = mode


def one_tensor(returned: Any, title: str) -> Tensor:
    """Return the scores if they are one tensor, or the attribute `logits` of what was returned.

    Raises:
        UsageError: They are something else, such as a tuple.
    """
    scores = getattr(returned, "logits", returned)
    if not isinstance(scores, Tensor):
        raise UsageError(
            f"{title} returns a {type(scores).__name__}; it must return one tensor of scores [B, C], or an "
            "object with it as `logits`: return the output of the last nn.Linear (head= can name the layer)"
        )
    return scores


@contextmanager
def own_errors(title: str) -> Iterator[None]:
    """Report an error of the user's module in one line, beginning with the user's own file and line.

    Raises:
        UserCodeError: A line of the user's own code is on the way to the error.
        UsageError: The error comes from an installed library, such as torchvision.
    """
    try:
        yield
    except RaffedError:
        raise
    except (Exception, SystemExit) as error:
        text, place = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", where_raised(error, "")
        if "draws from torch's global generator" in text:
            raise UsageError(
                f"{place or title} draws random numbers by itself; use nn.Dropout layers, whose random "
                f"numbers raffed makes from the seed"
            ) from error
        if place:
            raise UserCodeError(f"{place}: {title}: {text}") from error
        raise UsageError(f"{title}: {text}") from error


NOT_REPEATED = (
    " gives other scores for the same batch when it is called again: it draws random numbers by itself, or "
    "remembers earlier batches; use nn.Dropout layers, whose random numbers raffed makes from the seed, and "
    "keep nothing between calls"
)


class Headless(nn.Module):
    """Stands where the head was, and returns its input: so the module returns its features z [B, D].

    It has the sizes of the head, because modules read them.
    """

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = head.in_features, head.out_features

    def forward(self, x: Tensor) -> Tensor:
        return x


class OnlyLogits(nn.Sequential):
    """A module whose output is an object with the scores as `logits`, such as those of Hugging Face."""

    def forward(self, x: Tensor) -> Tensor:
        (module,) = self
        return one_tensor(module(x), "the network")


class OwnNet(Net):
    """A user's module, divided into a body that returns z [B, D] and the linear head.

    The user's parameter `conv.weight` has the name `body.conv.weight`, and the parameters of the user's head,
    such as `fc.weight`, have the names `head.weight` and `head.bias`.

    Parameters that need no gradient become constants: they keep their names and values, and are neither
    trained nor sent.

    Args:
        module: The module. It belongs to the network afterwards.
        head: Name of the linear layer that makes the scores; "" if the module itself is that layer.
        within: Whether the scores are the attribute `logits` of what the module returns.
    """

    def __init__(self, module: nn.Module, head: str, within: bool = False) -> None:
        layer = module.get_submodule(head)
        assert isinstance(layer, nn.Linear)
        body, inner = _without(module, head, layer, within)
        super().__init__(body, layer)
        self.user_head, self.inner, self.ended = head, inner, False
        # A user's forward may use the layers of a Sequential one by one, so only a whole one may be rewritten
        self.rewritable = type(module) is nn.Sequential
        self.frozen = _freeze(body)
        self.constants = _constants(self)

    def end_body(self, name: str, layer: nn.Module) -> None:
        """Put a layer between the body and the head.

        In the user's module the head then becomes a Sequential of such layers and the linear layer:
        `fc.weight` has the name `fc.head.weight` there.
        """
        if not self.ended:
            self.body = nn.Sequential(OrderedDict([("net", self.body)]))
            self.inner, self.ended = f"net.{self.inner}", True
            self.frozen = tuple(f"net.{name}" for name in self.frozen)
        assert isinstance(self.body, nn.Sequential)
        self.body.add_module(name, layer)
        self.constants = _constants(self)

    def user_name(self, name: str) -> str:
        """Return the user's name of a parameter or buffer of this network."""
        part, _, rest = name.partition(".")
        if part == "head" or (self.ended and not rest.startswith("net.")):
            inside = f"head.{rest}" if self.ended and part == "head" else rest
            return f"{self.user_head}.{inside}".removeprefix(".")
        return rest.removeprefix(self.inner)

    def user_module(self) -> nn.Module:
        """Return a copy of the user's own module with the present weights."""
        whole = copy.deepcopy(self)
        head: nn.Module = whole.head
        if whole.ended:
            _, *ends = whole.body.named_children()
            head = nn.Sequential(OrderedDict([*ends, ("head", whole.head)]))
        if not whole.user_head:
            return head
        module = whole.body.get_submodule(whole.inner.removesuffix("."))
        for name in whole.frozen:
            owner, _, leaf = name.rpartition(".")
            layer = whole.body.get_submodule(owner)
            value = getattr(layer, leaf)
            delattr(layer, leaf)
            layer.register_parameter(leaf, nn.Parameter(value, requires_grad=False))
        owner, _, leaf = whole.user_head.rpartition(".")
        module.get_submodule(owner).register_module(leaf, head)
        return module


def as_net(
    module: nn.Module,
    head: str | None = None,
    *,
    in_shape: Sequence[int] | None = None,
    dtype: str = "float32",
) -> Net:
    """Make raffed's network from a module that returns class scores.

    Methods with personal heads and methods that use features need to know the module's last linear layer, its
    head. It is the linear layer that the module calls last. A network of raffed's is returned as it is.

    Args:
        module: A module from inputs [B, ...] to scores [B, C]. It belongs to the network afterwards.
        head: Name of the linear layer that makes the scores, such as "fc". Without it, the layer is found by
            calling the module.
        in_shape: Shape of one input, such as (3, 32, 32). It is needed if `head` is not given.
        dtype: "float32", or "int64" if inputs are ids.

    Returns:
        A network [B, ...] -> (scores [B, C], features z [B, D]), where z is the input of the head. The
        parameter `conv.weight` has the name `body.conv.weight` there, and those of the head have the names
        `head.weight` and `head.bias`.

    Raises:
        UsageError: There is no such layer, or something else is computed after it.

    Example:
        >>> net = as_net(nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), "3")
        >>> net.feature_dim
        32
    """
    inputs = None if in_shape is None else ModelInputs(tuple(in_shape), dtype)
    return wrapped(module, head, inputs, type(module).__name__)


def wrapped(module: nn.Module, head: str | None, inputs: ModelInputs | None, title: str) -> Net:
    """Do what `as_net` does, for messages that name the module by a title."""
    _check_layers(module, title)
    if isinstance(module, Net):
        return module
    if inputs is None and head is None:
        raise UsageError("as_net: give in_shape=, the shape of one input, or head=, the layer of the scores")
    if inputs is not None and _is_lazy(module):
        scores_of(module, inputs.batch(2), title)  # gives lazy layers their shapes, and weights from the seed
    if _is_lazy(module):
        raise UsageError(f"{title} has lazy layers, whose shapes are not known yet; give in_shape=")
    within = False
    if inputs is not None:
        head = find_head(module, head, inputs.batch(2), title)
        within = not isinstance(_returned(module, inputs.batch(2), title, False), Tensor)
    assert head is not None
    _check_head(module, head, title)
    with own_errors(title):
        net = OwnNet(module, head, within)
    if {id(weight) for weight in net.head.parameters()} & {id(weight) for weight in net.body.parameters()}:
        raise UsageError(
            f"{title}: its head {head} shares its weights with another layer, or is registered a second "
            "time, so that no method could treat head and body apart; keep the head in one place, with "
            "weights of its own"
        )
    return net


def _without(module: nn.Module, head: str, layer: nn.Linear, within: bool) -> tuple[nn.Module, str]:
    """Return the module without its head, and what stands before the user's names in it."""
    if not head:
        return nn.Identity(), ""
    owner, _, leaf = head.rpartition(".")
    parent = module.get_submodule(owner)
    last = list(module._modules)[-1]
    if parent is module and type(module) is nn.Sequential and last == leaf:
        delattr(module, leaf)
    else:
        parent.register_module(leaf, Headless(layer))
    if within:
        return OnlyLogits(OrderedDict(net=module)), "net."
    if hasattr(module, "projection"):  # that name would stand for the projection before the head
        return nn.Sequential(OrderedDict(net=module)), "net."
    return module, ""


def _freeze(body: nn.Module) -> tuple[str, ...]:
    """Turn parameters that need no gradient into buffers of the same names, and return the names."""
    frozen = [
        (f"{name}.{leaf}".removeprefix("."), layer, leaf)
        for name, layer in body.named_modules()
        for leaf, parameter in layer.named_parameters(recurse=False)
        if not parameter.requires_grad
    ]
    for _, layer, leaf in frozen:
        value = getattr(layer, leaf).detach()
        delattr(layer, leaf)
        layer.register_buffer(leaf, value)
    return tuple(name for name, _, _ in frozen)


def _constants(net: nn.Module) -> frozenset[str]:
    """Return the names of the buffers that training does not change: all but BatchNorm's statistics."""
    moving = {
        f"{name}.{leaf}"
        for name, layer in net.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm)
        for leaf in ("running_mean", "running_var", "num_batches_tracked")
    }
    return frozenset(name for name, _ in net.named_buffers() if name not in moving)


def _is_lazy(module: nn.Module) -> bool:
    return any(isinstance(weight, UninitializedParameter) for weight in module.parameters())


def _check_layers(module: nn.Module, title: str) -> None:
    """Refuse trained parameters of another type than float32, BatchNorm that counts batches, and embeddings
    that change their weights when they are called, or whose gradients are sparse.

    Raises:
        UsageError: There is one. The message names it.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.momentum is None:
            raise UsageError(
                f"{title}: {name} is BatchNorm with momentum=None, which counts the batches of all clients "
                f"of a process; give it a momentum, such as 0.1"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and (layer.max_norm is not None or layer.sparse):
            raise UsageError(
                f"{title}: its layer {name} has max_norm, which changes weights in every call, or sparse "
                f"gradients, which raffed does not train; leave out max_norm and sparse=True"
            )
    for name, weight in module.named_parameters():
        if weight.requires_grad and weight.dtype != torch.float32:
            kind = str(weight.dtype).removeprefix("torch.")
            raise UsageError(
                f"{title}: its parameter {name} is {kind}, and raffed trains float32; call .float() on the "
                "module (--precision bf16 computes in bfloat16)"
            )


def _check_head(module: nn.Module, head: str, title: str) -> None:
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    if head not in layers:
        known = ", ".join(layers) or "none"
        raise UsageError(f"{title}: head = {head!r} is not an nn.Linear of it; its linear layers: {known}")
    names = [name for name, _ in layers[head].named_parameters()]
    if not set(names) <= {"weight", "bias"}:
        raise UsageError(f"{title}: its head {head or 'itself'} has other parameters than weight and bias")
    if not all(weight.requires_grad for weight in layers[head].parameters()):
        raise UsageError(
            f"{title}: its head {head or 'itself'} is frozen; let its parameters need a gradient"
        )
