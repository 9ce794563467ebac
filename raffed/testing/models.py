"""The contract of a network: an `nn.Module` that returns class scores and can be trained by many clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from raffed.config.validation import Value
from raffed.core import seeds
from raffed.errors import UsageError
from raffed.testing.findings import Check, Findings, found_by, is_code, named, resolved
from raffed.testing.generators import global_draws

ModuleFactory: TypeAlias = Callable[..., nn.Module]
BATCH = 5
CLOSE = 1e-4  # float32: a stack of networks and the networks one by one
GIVEN = ("in_shape", "num_classes")


@dataclass(frozen=True)
class ModelSubject:
    """A network to be checked: how it is made from a seed, and a batch of inputs [5, ...]."""

    make: Callable[[int], nn.Module]
    inputs: Tensor
    num_classes: int

    @cached_property
    def module(self) -> nn.Module:
        """The network with the weights of seed 0. Checks must not change it."""
        return self.make(0)

    def scores(self, module: nn.Module, inputs: Tensor | None = None) -> Tensor:
        """Return the scores [B, C]; a network may return (scores, features) too."""
        return scores_of(module(self.inputs if inputs is None else inputs))


def scores_of(returned: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """Return the scores of what a network returned: scores, or scores and features."""
    return returned[0] if isinstance(returned, tuple) else returned


def check_model(
    model: str | ModuleFactory,
    args: Mapping[str, Value] | None = None,
    *,
    in_shape: Sequence[int] = (1, 8, 8),
    num_classes: int = 10,
    inputs: Tensor | None = None,
    name: str | None = None,
) -> Findings:
    """Check a network: its scores, its weights, and whether clients with it can be stacked.

    Args:
        model: A name such as "mlp", a reference such as "mylab.models:SmallNet", or the class or function.
            It receives `in_shape` and `num_classes` if its signature names them.
        args: Further arguments.
        in_shape: Shape of one input.
        num_classes: Number of classes C.
        inputs: A batch [5, ...] of another type than images in [0, 1], such as ids of words.
        name: What messages call the network.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such network, or it does not take these arguments.

    Example:
        >>> check_model("mlp", {"hidden": [16]}).ok
        True
    """
    maker = _maker(model, args or {}, tuple(in_shape), num_classes)
    if inputs is None:
        inputs = torch.rand(BATCH, *in_shape, generator=torch.Generator().manual_seed(0))
    return found_by(MODEL_CHECKS, ModelSubject(maker, inputs, num_classes), "model", name or named(model))


def _maker(
    model: str | ModuleFactory, args: Mapping[str, Value], shape: tuple[int, ...], classes: int
) -> Callable[[int], nn.Module]:
    from raffed.models import build

    if isinstance(model, str) and not is_code(model):
        return lambda seed: build(str(model), shape, classes, seed, **args)
    factory: ModuleFactory = resolved(model) if isinstance(model, str) else model
    known = inspect.signature(factory).parameters
    own: dict[str, int | tuple[int, ...]] = {"in_shape": shape, "num_classes": classes}
    given = {**{key: value for key, value in own.items() if key in known}, **args}
    needed = [
        key
        for key, one in known.items()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    if missing := [key for key in needed if key not in given]:
        raise UsageError(f"{named(model)} needs {', '.join(missing)}; give a default, or args=")

    def make(seed: int) -> nn.Module:
        with seeds.forked(seed):
            return factory(**given)

    return make


def _scores(subject: ModelSubject) -> str:
    module = subject.module
    if not issubclass(type(module), nn.Module):
        return f"a {type(module).__name__} was made; it must be an nn.Module"
    found, wanted = subject.scores(module), (len(subject.inputs), subject.num_classes)
    if not issubclass(type(found), Tensor):
        return f"a {type(found).__name__} is returned; it must be scores {list(wanted)}"
    if tuple(found.shape) != wanted:
        return (
            f"the output has the shape {list(found.shape)}; it must be {list(wanted)}, one "
            f"score for each class"
        )
    return "" if bool(torch.isfinite(found).all()) else "a score is not finite"


def _by_seed(subject: ModelSubject) -> str:
    one, two, other = (subject.make(seed).state_dict() for seed in (0, 0, 1))
    for name in one:
        if not torch.equal(one[name], two[name]):
            return f"{name} differs between two networks of one seed"
    if any(True for _ in subject.module.parameters()) and all(
        torch.equal(one[name], other[name]) for name in one
    ):
        return "another seed gives the same weights"
    return ""


def _generator(subject: ModelSubject) -> str:
    return global_draws(lambda: subject.scores(subject.make(0).eval()))


def _gradients(subject: ModelSubject) -> str:
    module = subject.make(0)
    labels = torch.arange(len(subject.inputs)) % subject.num_classes
    with seeds.forked(0):  # dropout draws
        loss = F.cross_entropy(subject.scores(module), labels)
    trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
    found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    unused = [name for name, slope in zip(trained, found, strict=True) if slope is None]
    return f"the scores do not depend on {', '.join(unused[:3])}; remove what is not used" if unused else ""


def _independent(subject: ModelSubject) -> str:
    module = subject.make(0).eval()
    with torch.no_grad():
        whole, first = subject.scores(module), subject.scores(module, subject.inputs[:1])
    same = torch.allclose(whole[:1], first, rtol=CLOSE, atol=CLOSE)
    return "" if same else "the scores of a sample depend on the others of its batch, in evaluation mode"


def _repeats(subject: ModelSubject) -> str:
    module = subject.make(0).eval()
    with torch.no_grad():
        same = torch.equal(subject.scores(module), subject.scores(module))
    return "" if same else "two calls in evaluation mode give different scores"


def _stackable(subject: ModelSubject) -> str:
    modules = [subject.make(seed).eval() for seed in (0, 1, 2)]
    weights, buffers = stack_module_state(modules)

    def one(w: dict[str, Tensor], b: dict[str, Tensor]) -> Tensor:
        return scores_of(functional_call(modules[0], {**w, **b}, (subject.inputs,)))

    with torch.no_grad():
        try:
            together = vmap(one)(weights, buffers)
        except RuntimeError as error:
            return (
                f"vmap refuses it ({str(error).splitlines()[0]}); leave --cohort at 0, or replace the layer"
            )
        alone = torch.stack([subject.scores(module) for module in modules])
    return "" if torch.allclose(together, alone, rtol=CLOSE, atol=CLOSE) else "a stack gives other scores"


def _buffers(subject: ModelSubject) -> str:
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    known = {
        f"{name}.{key}" if name else key
        for name, layer in subject.module.named_modules()
        if isinstance(layer, norms)
        for key, _ in layer.named_buffers(recurse=False)
    }
    other = [name for name, _ in subject.module.named_buffers() if name not in known]
    if other:
        return (
            f"{other[0]} is a buffer that is not BatchNorm's; register it with persistent=False, or drop it"
        )
    return ""


_LOOKS: tuple[tuple[str, str, Callable[[ModelSubject], str]], ...] = (
    ("returns-scores", "It returns one finite score for each sample and class.", _scores),
    ("weights-by-seed", "One seed gives the same weights twice, and another seed gives others.", _by_seed),
    ("no-global-generator", "Evaluation draws no random numbers.", _generator),
    ("every-weight-used", "The scores depend on every trainable parameter.", _gradients),
    (
        "samples-independent",
        "In evaluation, a sample's scores do not depend on its batch.",
        _independent,
    ),
    ("repeats-itself", "In evaluation, two calls give the same scores.", _repeats),
    ("stackable", "Networks of several clients can be computed as one stack.", _stackable),
    ("known-buffers", "It has no other buffers than those of BatchNorm.", _buffers),
)
MODEL_CHECKS: tuple[Check[ModelSubject], ...] = tuple(Check(*one) for one in _LOOKS)
