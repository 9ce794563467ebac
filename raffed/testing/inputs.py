"""The contracts of what a run is given: a network, a data set, and a split of one.

A network is an `nn.Module` that returns class scores and can be trained by many clients. What a run refuses
before it begins is found here by the same laws (raffed.models.own.laws). A data set is complete and the same
in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from raffed.config.sections import Data
from raffed.config.validation import Value
from raffed.core import seeds
from raffed.data.dataset import ARRAYS, Dataset
from raffed.data.files import InputArray
from raffed.data.own_data import code_of
from raffed.data.partition_file import Partition
from raffed.data.split import LabelPool, Split
from raffed.data.splits import own_reference, parse_split
from raffed.data.transforms import prepare_inputs
from raffed.errors import RaffedError, UsageError
from raffed.models import build_for, check_args
from raffed.models.net import Net
from raffed.models.own.laws import Laws, check_seeded
from raffed.models.own.wrapping import ModelInputs
from raffed.own.resolve import load
from raffed.runtime.setup_model import load_data
from raffed.testing.contract import (
    Contract,
    Findings,
    NotApplicableError,
    PureContract,
    global_draws,
    named,
    same_values,
    typed,
)

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


LEAK = 0.01  # share of test samples that may occur in the training pool as well
BLOCK = 4096  # samples looked at together


@dataclass(frozen=True)
class DatasetContract(Contract):
    """A data set, by how it is loaded: complete arrays, the same in every process."""

    load: Callable[[], Dataset]

    kind = "dataset"

    @cached_property
    def data(self) -> Dataset:
        """The data set, loaded once."""
        return self.load()

    def check_loads(self) -> str:
        """It loads, and has training samples."""
        if not issubclass(type(self.data), Dataset):
            return f"a {type(self.data).__name__} is returned; it must be a raffed Dataset"
        return "" if len(self.data.x) else "there is no training sample"

    def check_same_twice(self) -> str:
        """It is the same when it is loaded again, as every worker does."""
        first, second = self.data, self.load()
        if first is second:
            raise NotApplicableError("a loaded Dataset was given, not what loads it")
        for part in ARRAYS:
            if not same_values(getattr(first, part), getattr(second, part)):
                return f"{part} differs when it is loaded again; draw nothing at random without a fixed seed"
        return ""

    def check_every_class(self) -> str:
        """Every class has a training sample."""
        missing = _missing(self.data.y, self.data.num_classes)
        return f"class {_named(missing[0], self.data.class_names)} has no training sample" if missing else ""

    def check_clients_numbered(self) -> str:
        """Its clients are numbered from 0, and each has a training sample."""
        if self.data.clients is None:
            raise NotApplicableError("nobody knows which client made which sample")
        missing = _missing(self.data.clients)
        if not missing:
            return ""
        name = _named(missing[0], self.data.facts.client_names)
        return f"client {name} has no training sample; number clients from 0"

    def check_test_apart(self) -> str:
        """At most 1 % of the test samples are training samples too."""
        total = len(self.data.x_test)
        if not total:
            raise NotApplicableError("it has no test set")
        known = {row.tobytes() for row in _rows(self.data.x)}
        shared = sum(row.tobytes() in known for row in _rows(self.data.x_test))
        return f"{shared} of {total} test samples are training samples too" if shared > LEAK * total else ""

    def check_prepared(self) -> str:
        """Its transform makes finite inputs."""
        inputs = prepare_inputs(self.data.x[:2].copy(), self.data.transform_in("plain"), self.data.max_value)
        if inputs.is_floating_point() and not bool(inputs.isfinite().all()):
            return "its transform makes values that are not finite"
        return ""

    def check_divides(self) -> str:
        """It can be divided among clients."""
        data = self.data
        pool = LabelPool(data.y, data.num_classes, data.clients, data.y_test, data.test_clients)
        split = parse_split("iid:2" if data.clients is None else "natural")
        return "" if split.partition(pool, 0, local_test=0.0).num_clients else "no client has data"


def _missing(numbers: NDArray[np.int64], count: int = 0) -> list[int]:
    """Return which of the numbers from 0 to the largest, or to count - 1, do not occur."""
    return np.flatnonzero(np.bincount(numbers, minlength=count) == 0).tolist()


def _named(number: int, names: Sequence[str]) -> str:
    """Return a number, with the name that stands for it if there is one."""
    return f"{number} ({names[number]})" if number < len(names) else str(number)


def _rows(x: InputArray) -> Iterator[InputArray]:
    """Yield the samples. They are read in blocks, since an array may lie in a file."""
    for first in range(0, len(x), BLOCK):
        yield from x[first : first + BLOCK]


def check_dataset(
    dataset: str | Dataset | Callable[[], Dataset], *, root: str | None = None, name: str | None = None
) -> Findings:
    """Check a data set: its arrays, its clients, and that it is the same whenever it is loaded.

    Args:
        dataset: A name such as "digits", data such as "csv:table.csv?label=y", a reference such as
            "mylab.data:load", a `Dataset`, or a function without arguments that returns one.
        root: Folder of the data files of a named data set; without it the one in RAFFED_DATA.
        name: What messages call the data set.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such data set.

    Example:
        >>> check_dataset("digits").ok
        True
    """
    contract = DatasetContract(_loader(dataset, root))
    findings = contract.findings(name or named(dataset))
    loaded = "loads" not in [finding.name for finding in findings.failed]
    return replace(findings, notes=contract.data.facts.notes) if loaded else findings


def _loader(dataset: str | Dataset | Callable[[], Dataset], root: str | None) -> Callable[[], Dataset]:
    from raffed.data.datasets import load_dataset

    if isinstance(dataset, Dataset):
        return lambda: dataset
    if not isinstance(dataset, str):
        return dataset
    if reference := code_of(dataset):
        load(reference)  # refused at once if there is none
        return lambda: load_dataset(dataset, root)
    first = [load_dataset(dataset, root)]
    return lambda: first.pop() if first else load_dataset(dataset, root)


# Splits


SAMPLES, CLASSES, CLIENTS = 2000, 10, 8


@dataclass(frozen=True)
class SplitContract(PureContract[NDArray[np.int64], str]):
    """A split, and the pool that it divides: lists that a seed decides, of samples that exist."""

    split: Split
    pool: LabelPool

    kind = "split"

    def examples(self) -> Sequence[NDArray[np.int64]]:
        """Return the labels of the pool."""
        return [self.pool.labels.copy()]

    def remedy(self) -> str:
        """Return where random numbers must come from."""
        return self.split.seed_rule

    def call(self, arguments: NDArray[np.int64]) -> str:
        """Return the hash of the lists for these labels."""
        return self.partition(0, replace(self.pool, labels=arguments)).sha256()

    def partition(self, seed: int, pool: LabelPool | None = None) -> Partition:
        """Divide the pool, without local test parts unless the split makes them itself."""
        share = None if self.split.brings_tests else 0.0
        return self.split.partition(pool or self.pool, seed, local_test=share)

    def check_seed_decides(self) -> str:
        """Another seed gives other lists."""
        if self.split.stores_lists:
            raise NotApplicableError("its lists exist already")
        same = self.partition(0).sha256() == self.partition(1).sha256()
        return "another seed gives the same lists" if same else ""

    def check_indices_exist(self) -> str:
        """Every client has samples, and every index exists."""
        size = len(self.pool.labels)
        for client, indices in enumerate(self.partition(0).train):
            if not len(indices):
                return f"client {client} has no training sample"
            if indices.dtype.kind not in "iu" or indices.min() < 0 or indices.max() >= size:
                return f"client {client} has an index outside 0 to {size - 1}"
        return ""

    def check_each_sample_once(self) -> str:
        """No sample belongs to two clients, except as the recipe says."""
        partition = self.partition(0)
        listed = np.concatenate(partition.train)
        again = len(listed) - len(np.unique(listed))
        stated = partition.recipe.get("reused", 0)
        return (
            "" if again == stated else f"{again} samples belong to two clients, and its recipe says {stated}"
        )

    def check_clients_as_said(self) -> str:
        """There are as many clients as the split says."""
        wanted, drawn = self.split.client_count, self.partition(0).num_clients
        return "" if wanted in (None, drawn) else f"it divides among {drawn} clients, and says {wanted}"

    def check_text_reads_back(self) -> str:
        """The text by which it is typed is read as the same split."""
        if own_reference(self.split.stored()[0]) is not None:
            raise NotApplicableError("it is typed as its reference")
        text = self.split.text
        same = type(self.split).read(text) == self.split
        return "" if same else f"{text!r} is not read as the same split"

    def check_no_global_generator(self) -> str:
        """The global random generators are left alone."""
        draws = super().check_no_global_generator()
        return f"{draws}; {self.remedy()}" if draws else ""


def check_split(
    split: str | Split | type[Split],
    pool: LabelPool | None = None,
    *,
    name: str | None = None,
    args: Mapping[str, Value] | None = None,
) -> Findings:
    """Check a split: its lists, its randomness, and the text by which it is typed.

    Args:
        split: A text such as "dirichlet:10:0.5", a reference such as "mylab.data:halves" to a function or to
            a subclass of `Split`, a `Split`, or a subclass of it whose parameters all have defaults.
        pool: What it divides. Without it: 2,000 labels of 10 classes, made by 8 natural clients.
        name: What messages call the split.
        args: Arguments of a function or class by reference.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such split.

    Example:
        >>> check_split("dirichlet:10:0.5").ok
        True
    """
    return SplitContract(split_of(split, args), pool or example_pool()).findings(name or named(split))


def example_pool() -> LabelPool:
    """Return 2,000 labels of 10 classes, 200 of each, made by 8 natural clients."""
    labels = np.arange(SAMPLES, dtype=np.int64) % CLASSES
    owners = np.arange(SAMPLES, dtype=np.int64) // (SAMPLES // CLIENTS)
    return LabelPool(labels, CLASSES, owners, labels[:500], owners[:500])


def split_of(split: str | Split | type[Split], args: Mapping[str, Value] | None = None) -> Split:
    """Return the split that a text, a reference or a class stands for."""
    if isinstance(split, str):
        return parse_split(split, args)
    if isinstance(split, Split):
        return split
    if not isinstance(split, type) or not issubclass(split, Split):
        raise UsageError(f"{named(split)} is not a subclass of raffed's Split")
    try:
        return split()
    except TypeError as error:
        raise UsageError(
            f"{named(split)} needs arguments ({error}); give its parameters defaults, or check an instance"
        ) from error
