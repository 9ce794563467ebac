"""What a setup needs: the data set, read and divided, and the network with its initial weights.

The network is checked before anything starts. What ingredients may know about both is here as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from raffed.budget import allow
from raffed.config.sections import Data
from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.context import Spec
from raffed.core.params import State
from raffed.core.round import EVAL_CHUNK
from raffed.core.server import ServerRule
from raffed.core.training.network import Network
from raffed.core.training.recorded_steps import GraphRecorder, StepRecorder
from raffed.errors import UsageError
from raffed.models.net import Net
from raffed.own.user_code import UserCodeError, user_errors
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.machine import COMPILED, check_use, graphs_enabled, kernels_enabled, uses_onednn
from raffed.runtime.run_method import NetworkRequest

if TYPE_CHECKING:
    from raffed.data.dataset import Dataset
    from raffed.data.partition_file import Partition
    from raffed.data.split import Split


# Where a run's data set comes from, the catalogue or data of one's own, and how it is divided.


T = TypeVar("T")


@dataclass
class _Kept:
    """What was made of one published data set. It goes when another data set is read."""

    datasets: dict[Hashable, Dataset] = field(default_factory=dict)
    smaller: dict[Hashable, Dataset] = field(default_factory=dict)
    partitions: dict[Hashable, Partition] = field(default_factory=dict)
    networks: dict[Hashable, Sequence[str]] = field(default_factory=dict)


_kept: ContextVar[_Kept | None] = ContextVar("_kept", default=None)


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Within the block, a published data set is read and divided once, however many setups are made of it.

    Reading, hashing and dividing take most of the time of a setup. Only for setups that are looked at and
    not executed, because they share the arrays. Of several data sets the last one is kept.
    """
    token = _kept.set(_Kept())
    try:
        yield
    finally:
        _kept.reset(token)


def _once(among: dict[Hashable, T] | None, key: Hashable, make: Callable[[], T]) -> T:
    """Return what was made of a key before, or make it. Nothing is kept outside `read_once`."""
    if among is None:
        return make()
    if key not in among:
        among[key] = make()
    return among[key]


def part_of(whole: Dataset, data: Data, seed: int) -> Dataset:
    """Return the data set with as many training samples as the run uses."""
    from raffed.data.dataset import fewer
    from raffed.data.own_data import is_own

    kept = _kept.get()
    among = None if kept is None or is_own(data.dataset) else kept.smaller
    key = data.dataset, data.root, data.pool, data.samples, seed
    return _once(among, key, lambda: fewer(whole, data.samples, seed))


def draw_partition(data: Data, seed: int, split: Split, dataset: Dataset, labelled: int) -> Partition:
    """Return who has which samples of a data set.

    Args:
        data: The section `data` of the run.
        seed: The run's seed.
        split: The rule that divides the data.
        dataset: The data set, as small as the run uses it.
        labelled: Labelled samples that the method's server needs for itself.
    """
    from raffed.data.own_data import is_own
    from raffed.data.partition import draw_server_holdout, held_out, partition_beside
    from raffed.data.split import LabelPool

    def drawn() -> Partition:
        labels, classes = dataset.y, dataset.num_classes
        holdout = draw_server_holdout(labels, classes, labelled, seed)
        pool = LabelPool(labels, classes, dataset.clients, dataset.y_test, dataset.test_clients)
        return held_out(partition_beside(holdout, split, pool, seed, data.local_test), data.validation, seed)

    kept = _kept.get()
    among = None if kept is None or is_own(data.dataset) else kept.partitions
    return _once(among, (repr(data), seed, labelled), drawn)


def load_data(data: Data, recorded: Mapping[str, Any] | None = None) -> tuple[Dataset, str]:
    """Return the run's data set and, of data of one's own, the hash of its arrays (else "").

    With `data.pool = "joined"` its test part belongs to the training pool.

    Args:
        data: The section `data` of the run.
        recorded: What run.json holds of the run that they must be the data of; None for a new run.

    Raises:
        UsageError: The data cannot be read or used.
    """
    from raffed.data.dataset import joined
    from raffed.data.own_data import is_own, load_own

    if is_own(data.dataset):
        about = recorded or {}
        name = about.get("dataset", {}).get("name", "")  # absent in a bundle, and in an older run
        dataset, sha256 = load_own(data.dataset, str(about.get("data_sha256", "")), str(name))
    else:
        dataset, sha256 = _published(data), ""
    return (joined(dataset) if data.pool == "joined" else dataset), sha256


def _published(data: Data) -> Dataset:
    from raffed.data.datasets import load_dataset

    kept = _kept.get()
    place = data.dataset, data.root, data.download
    if kept is not None and place not in kept.datasets:
        for cache in (kept.datasets, kept.smaller, kept.partitions):
            cache.clear()
    return _once(None if kept is None else kept.datasets, place, lambda: load_dataset(*place))


def check_network(
    network: NetworkRequest, shape: tuple[int, ...], classes: int, dtype: str = "float32"
) -> None:
    """Build the network once, so that errors of its settings are reported before actors start.

    A network of one's own is also checked for what makes runs reproducible (`raffed.models.own.laws`).

    Args:
        network: The network that the run asks for.
        shape: Shape of one prepared input.
        classes: Number of classes C.
        dtype: Type of the prepared inputs, "float32" or "int64".

    Raises:
        UsageError: The network cannot be made or trained.
        UserCodeError: The user's own code raised an error.
    """
    from raffed.models import is_own

    name = network.model.name
    if network.numerics.convolutions == COMPILED:
        check_use(network.build(shape, classes, dtype), name)
    if is_own(name):
        _check_own(network, shape, classes, dtype)
        return

    def parameters() -> Sequence[str]:
        return tuple(n for n, _ in network.build(shape, classes, dtype, quick=True).named_parameters())

    key = repr(network.model), repr(network.args), shape, classes, dtype
    kept = _kept.get()  # within `read_once` a network is built once
    _check_passes(network, _once(None if kept is None else kept.networks, key, parameters))


def _check_own(network: NetworkRequest, shape: tuple[int, ...], classes: int, dtype: str) -> None:
    from raffed.models.own.laws import Laws, check_seeded
    from raffed.models.own.wrapping import ModelInputs

    name, net = network.model.name, network.build(shape, classes, dtype)
    _check_passes(network, [parameter for parameter, _ in net.named_parameters()])
    check_seeded(net, network.build(shape, classes, dtype), name)
    Laws(net, name, ModelInputs(shape, dtype), classes).check(network.numerics.cohort)


def check_ids(network: NetworkRequest, dataset: Dataset) -> None:
    """Refuse ids that a network of one's own cannot take, in the training part and in the test part.

    The sample that holds the largest id of each part is scored once.

    Args:
        network: The network that the run asks for.
        dataset: Data whose inputs are ids.

    Raises:
        UsageError: The network raised an error for them.
    """

    from raffed.models.own.laws import NetworkTrial

    name, net = network.model.name, network.build(dataset.input_shape, dataset.num_classes, "int64")
    for part, inputs in (("training", dataset.x), ("test", dataset.x_test)):
        if not len(inputs):
            continue
        largest = inputs[int(inputs.argmax()) // inputs[0].size]
        try:
            NetworkTrial(net, name).scores(torch.as_tensor(largest[None].astype("int64")), training=False)
        except UserCodeError as error:
            raise UsageError(
                f"{name} cannot take id {largest.max()}, the largest of the {part} part of {dataset.name} "
                f"({error}); its nn.Embedding needs {largest.max() + 1} rows"
            ) from error


def _check_passes(network: NetworkRequest, names: Sequence[str]) -> None:
    """Refuse a network without any weight in a part that the method trains apart, such as a linear one."""
    from raffed.core.parts import in_part

    for part in dict.fromkeys(network.parts):
        if part in ("body", "base") and not any(in_part(name, part) for name in names):
            raise UsageError(
                f"{network.method} trains the body of the network apart, and {network.model.name} has no "
                f"weights below its head; use another network (--model)"
            )


def check_single_samples(network: NetworkRequest, local: Local, data: FederatedData) -> None:
    """Refuse a network of one's own that cannot train on the batch of one sample that some client would have.

    BatchNorm cannot normalise one sample on a map of 1x1.

    Args:
        network: The network that the run asks for.
        local: How clients train.
        data: The clients and their samples.
    """
    from raffed.models import is_own

    size, name = local.batch_size, network.model.name
    shape, classes, dtype = data.input_shape, data.dataset.num_classes, data.input_dtype
    rounds = {
        data.stage(round): round for round in range(data.federation.rounds)
    }.values()  # one of each stage
    sizes = [(client, n) for round in rounds for client, n in enumerate(data.sizes_at(round))]
    alone = [(client, n) for client, n in sizes if n and 1 in (n, size, n % size)]
    if local.drop_last and size > 1:  # which a client with less than a batch does not follow
        alone = [(client, n) for client, n in alone if n < size]
    if not alone or not is_own(name):
        return
    from raffed.models.own.laws import Laws
    from raffed.models.own.wrapping import ModelInputs

    net = network.build(shape, classes, dtype)
    if not Laws(net, name, ModelInputs(shape, dtype), classes).trains_on_one():
        client, n = alone[0]
        raise UsageError(
            f"{name} cannot train on a batch of one sample (BatchNorm), and client {client} has "
            f"{n} sample{'' if n == 1 else 's'} with batches of {size}; {_advice(size, n)}"
        )


def _advice(size: int, samples: int) -> str:
    """Return what helps a client whose last batch has one sample."""
    if samples == 1:
        return "use a split that gives every client more samples, or a network with GroupNorm in its place"
    return "use a larger --batch-size" if size == 1 else "use another --batch-size, or --drop-last"


PURE = {"raffed", "torch", "torchvision"}  # packages whose layers keep nothing but tensors
_NORMALISING = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def make_spec(data: FederatedData, feature_dim: int, norms: tuple[str, ...] = ()) -> Spec:
    """Return what ingredients may know.

    The expected visits Q·T are computed with integers, because 0.29 · 100 in floats would lose one.
    """
    clients, federation, stages = len(data.trainable), data.federation, data.partition.stages
    visits = max(federation.participants(clients) * federation.rounds // clients, 1)
    rounds_per_cycle = 1 if stages is None else stages.rounds_per_cycle
    samples = sum(data.sizes[client] for client in data.trainable)
    return Spec(
        data.dataset.num_classes,
        feature_dim,
        clients,
        visits,
        federation.rounds,
        samples,
        rounds_per_cycle,
        data.unseen,
        norms,
        data.seed,
    )


def check_table(method: str, rule: ServerRule, network: NetworkRequest, data: FederatedData) -> None:
    """Refuse a run whose server would answer its clients from a table that does not fit into the memory.

    Args:
        method: Name of the run's method.
        rule: The server's rule.
        network: The network that the run asks for.
        data: The clients and their samples.

    Raises:
        UsageError: It does not, or the server's rule cannot answer so many clients.
    """
    if type(rule).table_size is ServerRule.table_size:
        return
    net = make_network(network, data)
    spec = make_spec(data, net.feature_dim, net.norm_names)
    with user_errors():
        numbers = rule.table_size(net.initial.w, spec)
    clients = f"the table from which {method} answers {spec.everyone:,} clients"
    allow(4.0 * numbers, f"{clients}, of {numbers:,} numbers,")


def make_network(network: NetworkRequest, data: FederatedData, device: torch.device | str = "cpu") -> Network:
    """Return the run's network with its initial weights, which are the same in every process.

    Args:
        network: The network that the run asks for.
        data: The clients and their samples.
        device: Where it computes.
    """
    module, numerics = _built(network, data), network.numerics
    return Network(
        module,
        device,
        numerics.precision,
        onednn=uses_onednn(),
        kernels=kernels_enabled() and module.rewritable,
        convolutions=numerics.convolutions == "compiled",
        constants=module.constants,
        recorder=recorder_for(module, torch.device(device)),
    )


def recorder_for(module: Net, device: torch.device) -> StepRecorder | None:
    """Return what records the steps of training on a GPU, or None.

    Layers of other packages may do something else in every step, so they are not recorded.
    """
    known = {type(layer).__module__.partition(".")[0] for layer in module.modules()} <= PURE
    return GraphRecorder(device) if known and device.type == "cuda" and graphs_enabled() else None


def has_normalisation(network: NetworkRequest, data: FederatedData) -> bool:
    """Return whether the run's network has a layer that normalises what it gets."""
    return any(isinstance(layer, _NORMALISING) for layer in _built(network, data).modules())


def _built(network: NetworkRequest, data: FederatedData) -> Net:
    value, classes = seeds.seed(network.seed, "weights"), data.dataset.num_classes
    return network.build(data.input_shape, classes, data.input_dtype, seed=value)


def features_of(net: Network, state: State, x: Tensor, y: Tensor) -> Tensor:
    """Return features z [n, D] of samples x [n, ...] in evaluation mode, on the CPU."""
    return torch.cat([z.cpu() for _, z, _ in net.chunks(state, x, y, EVAL_CHUNK)])
