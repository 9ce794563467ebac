"""The contract of a network: an `nn.Module` that returns class scores and can be trained by many clients.

What a run refuses before it begins is found here by the same laws (raffed.models.own.laws).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.config.sections import Data
from raffed.config.validation import Value
from raffed.core import seeds
from raffed.data.transforms import prepare_inputs
from raffed.errors import RaffedError
from raffed.models import build_for, check_args
from raffed.models.net import Net
from raffed.models.own.laws import Laws, check_seeded
from raffed.models.own.wrapping import ModelInputs
from raffed.runtime.setup_model import load_data
from raffed.testing.contract import Contract, Findings, NotApplicableError, global_draws, named, typed

ModuleFactory: TypeAlias = Callable[..., nn.Module]
BATCH = 5


@dataclass(frozen=True)
class GivenInputs(ModelInputs):
    """Inputs that a person gave."""

    samples: Tensor = field(kw_only=True)

    def batch(self, n: int) -> Tensor:
        """Return the first n of them."""
        return self.samples[:n].clone()


@dataclass(frozen=True)
class ModelContract(Contract):
    """A network, by how it is made from a seed, and its inputs."""

    make: Callable[[int], Net]
    inputs: ModelInputs
    num_classes: int
    called: str

    kind = "model"

    def net(self, seed: int = 0) -> Net:
        """Return the network with the weights of a seed."""
        try:
            return self.make(seed)
        except RaffedError as error:
            raise NotApplicableError("raffed cannot make a network of it") from error

    @cached_property
    def laws(self) -> Laws:
        """What a run demands of the network, with the weights of seed 0."""
        return Laws(self.net(), self.called, self.inputs, self.num_classes)

    def check_returns_scores(self) -> str:
        """It returns one finite score for each sample and class, and leaves its inputs as they are."""
        self.make(0)  # raises the error that says why no network can be made
        self.laws.check_scores()
        scores = self.laws.trial.scores(self.inputs.batch(3), training=False)
        return "" if bool(torch.isfinite(scores).all()) else "a score is not finite"

    def check_weights_by_seed(self) -> str:
        """One seed gives the same weights twice, and another seed gives others."""
        net, other = self.net(), self.net(1)
        check_seeded(net, self.net(), self.called)
        pairs = list(zip(net.parameters(), other.parameters(), strict=True))
        same = all(torch.equal(*pair) for pair in pairs)
        return "another seed gives the same weights" if pairs and same else ""

    def check_no_global_generator(self) -> str:
        """Evaluation draws no random numbers."""
        return global_draws(lambda: self.net().eval()(self.inputs.batch(BATCH)))

    def check_every_weight_used(self) -> str:
        """The scores depend on every trainable parameter."""
        net, inputs = self.net(), self.inputs.batch(BATCH)
        with seeds.forked(0):  # dropout draws
            loss = F.cross_entropy(net(inputs)[0], torch.arange(len(inputs)) % self.num_classes)
        trained = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
        slopes = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        unused = [name for name, slope in zip(trained, slopes, strict=True) if slope is None]
        if not unused:
            return ""
        return f"the scores do not depend on {', '.join(unused[:3])}; remove what is not used"

    def check_samples_independent(self) -> str:
        """In evaluation, a sample's scores do not depend on its batch."""
        self.laws.check_samples()
        return ""

    def check_repeats_itself(self) -> str:
        """The same batch gives the same scores again, in training and in evaluation."""
        self.laws.check_repeats()
        return ""

    def check_known_buffers(self) -> str:
        """Training changes no other buffers than those of BatchNorm."""
        self.laws.check_buffers()
        return ""

    def check_stackable(self) -> str:
        """Networks of several clients can be computed as one stack."""
        self.laws.check_stacks(2)
        return ""


def check_model(
    model: str | ModuleFactory,
    args: Mapping[str, Value] | None = None,
    *,
    in_shape: Sequence[int] = (1, 8, 8),
    num_classes: int = 10,
    inputs: Tensor | None = None,
    dataset: str | None = None,
    name: str | None = None,
) -> Findings:
    """Check a network: its scores, its weights, and whether clients with it can be stacked.

    Args:
        model: A name such as "mlp", a reference such as "mylab.models:SmallNet", or the class or function.
            It receives `in_shape` and `num_classes` if its signature names them.
        args: Further arguments.
        in_shape: Shape of one input.
        num_classes: Number of classes C.
        inputs: A batch of 4 samples or more [n, ...] of another type than numbers in [0, 1], such as ids.
        dataset: Data whose shape, classes and first samples are taken, such as "npz:words.npz" or "cifar10".
        name: What messages call the network.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such network, or it does not take these arguments.

    Example:
        >>> check_model("mlp", {"hidden": [16]}).ok
        True
    """
    called, shape = name or named(model), tuple(in_shape)
    if dataset is not None:
        data, _ = load_data(Data(dataset))
        inputs = prepare_inputs(data.x[:BATCH], data.transform_in("plain"))
        num_classes = data.num_classes
    if inputs is None:
        kind = ModelInputs(shape)
    else:
        shape, dtype = tuple(inputs.shape[1:]), str(inputs.dtype).removeprefix("torch.")
        kind = GivenInputs(shape, dtype, samples=inputs)

    check_args(typed(model), args or {})

    def make(seed: int) -> Net:
        return build_for(typed(model), args or {}, shape, num_classes, seed, kind.dtype)

    return ModelContract(make, kind, num_classes, called).findings(called)
