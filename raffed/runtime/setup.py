"""From a configuration to everything that a run needs, checked before anything starts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from raffed.config.faults import Faults
from raffed.config.federation import Federation
from raffed.config.privacy import Privacy
from raffed.config.run import RunConfig
from raffed.config.sections import Data, Runtime
from raffed.data.catalogue import DATASETS
from raffed.data.preparation import with_numbers
from raffed.errors import UsageError
from raffed.federation.faults import Images, check_attack
from raffed.federation.selection import check_clock, check_selection, check_waiting
from raffed.models.catalogue import is_own
from raffed.own.carried import RunCode
from raffed.runtime.bits import begin_bits
from raffed.runtime.checks import (
    check_before_reading,
    check_epochs,
    check_mean,
    check_new_options,
    check_no_fork,
    check_numbers,
    check_stop_rule,
)
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.run_method import NetworkRequest, code_of, method_of, network_of
from raffed.runtime.setup_model import (
    check_ids,
    check_network,
    check_single_samples,
    draw_partition,
    load_data,
    part_of,
)

if TYPE_CHECKING:
    from raffed.core.method import Method
    from raffed.core.server import Mean
    from raffed.data.dataset import Dataset
    from raffed.data.partition_file import Partition
    from raffed.runtime.initial_weights import Arrays

    SetupParts: TypeAlias = tuple[RunConfig, Dataset, Partition, str, Arrays | None, RunCode]


@dataclass(frozen=True)
class Setup:
    """A checked run: the data set, the partition, the configuration, and the user's own code that it needs.

    It holds only arrays, so it can be sent without a copy. A process that receives it installs the user's
    code first, and then reads the rest.
    """

    config: RunConfig
    dataset: Dataset
    partition: Partition
    data_sha256: str = ""  # hash of the arrays of data of one's own, by which the cache finds them
    initial: Arrays | None = None  # the weights of `model.init`
    code: RunCode = field(default_factory=RunCode)

    def __reduce__(self) -> tuple[Callable[..., Setup], tuple[RunCode, type[Setup], SetupParts]]:
        parts = (
            self.config,
            self.dataset,
            self.partition,
            self.data_sha256,
            self.initial,
            self.code,
        )
        return _received, (self.code, type(self), parts)

    @functools.cached_property
    def method(self) -> Method:
        """The run's method, made once in a process, whose working folder may change while the run goes on."""
        return method_of(self.config)

    @functools.cached_property
    def network(self) -> NetworkRequest:
        """The network that the run asks for, with what its method requires."""
        return network_of(self.config, self.method, self.initial)

    @functools.cached_property
    def data(self) -> FederatedData:
        """The clients of the run and their samples, without the method."""
        config, data = self.config, self.config.data
        style = style_of(data, self.partition)
        transform = with_numbers(self.dataset.transform_in(style), data.transform_args)
        return FederatedData(
            self.dataset, self.partition, transform, config.federation, config.faults, config.seed
        )


def style_of(data: Data, partition: Partition) -> str:
    """Return the style of preparation: what was asked for or, for "auto", what the partition records.

    For a partition that records none it is the style of the split's class.
    """
    from raffed.data.benchmark_splits import style_in
    from raffed.data.splits import parse_split

    if data.transform != "auto":
        return data.transform
    return style_in(partition, data.split) or parse_split(data.split, data.split_args).style


def _received(_: RunCode, kind: type[Setup], parts: SetupParts) -> Setup:
    """Return a setup that arrived in this process. Its code comes first, since pickles are read in order."""
    return kind(*parts)


def prepare_run(config: RunConfig, checked: Callable[[], None] | None = None, data_sha256: str = "") -> Setup:
    """Load the data, draw the split, and check every name, range and combination.

    Args:
        config: The run's configuration.
        checked: Called when everything is checked that can be checked before the data are read. Reading may
            take minutes.
        data_sha256: Hash of the arrays that the run to be continued has recorded, if its data are one's own.

    Raises:
        UsageError: Something in the configuration is invalid.
    """
    from raffed.core.training.own_loss import check_loss
    from raffed.data.splits import parse_split
    from raffed.runtime.initial_weights import read_initial

    begin_bits(config.numerics)
    method, data, federation = method_of(config), config.data, config.federation
    network = network_of(config, method, read_initial(config.model))
    split = parse_split(data.split, data.split_args)
    check_before_reading(split, network, data, federation, config.faults, config.runtime)
    if checked is not None:
        checked()
    whole, found = load_data(data, data_sha256)
    if found:
        split.check_data(whole.name, whole.num_classes)
    if config.loss:
        check_loss(config.loss, config.loss_args, whole.num_classes, stacked=config.numerics.cohort > 1)
    dataset = part_of(whole, data, config.seed)
    with dataset.naming(data.split):
        held = draw_partition(data, config.seed, split, dataset, method.server.required_data().labelled)
        held = dataclasses.replace(held, recipe={**held.recipe, "transform": style_of(data, held)})
        setup = Setup(config, dataset, held, found, network.initial, code_of(config))
        clients = setup.data
        clients.transform.check_fits(dataset.name, dataset.input_shape)
        clients.stage(0)  # raises an error if the rounds do not fit the stages
        check_numbers(federation, config.faults, config.runtime.clients_per_actor, held.num_clients)
        check_stop_rule(federation, data.validation, config.method, method.has_global)
        _check_clients(clients, method.name, data.split, method.needs_held_out)
        check_epochs(config.local, method.name, method.passes)
        _check_rounds(clients, method.name, method.mean, config.privacy)
        check_clock(config.clock, federation, held.num_clients, clients.trainable)
        if config.clock.asynchronous:
            check_waiting(config, method, in_stages=held.stages is not None)
        images = Images(dataset.input_shape, dataset.x.dtype.kind, dataset.num_classes)
        shares = method.split.personal != "all"
        check_attack(config.faults, method.name, shares, held.num_clients, images)
        if found or dataset.x.shape[1:] != DATASETS[dataset.name].shape:
            check_model(network, clients)
        if is_own(config.model.name) and clients.input_dtype == "int64":
            check_ids(network, dataset)
        # Made now, while the working folder is the one in which they were named
        assert setup.method is not None
        assert clients.own_metrics is not None
        check_single_samples(network, config.local, clients)
    return setup


def check_new(federation: Federation, faults: Faults, runtime: Runtime, data: FederatedData) -> None:
    """Reject settings of a new run that would have no effect.

    Args:
        federation: The section `federation` of the run.
        faults: The section `faults`.
        runtime: The section `runtime`.
        data: The clients and their samples.
    """
    clients, actors, each = data.partition.num_clients, runtime.actors, runtime.clients_per_actor
    check_no_fork(federation)
    if actors and each and actors != -(-clients // each):
        raise UsageError(
            f"runtime.actors = {actors} and runtime.clients_per_actor = {each}: {clients} clients at "
            f"{each} per actor need {-(-clients // each)} actors; set only one of these options"
        )
    check_new_options(federation, len(data.trainable))
    if faults.last_begin > federation.rounds:
        raise UsageError(f"faults.at names round {faults.last_begin}; rounds are 1 to {federation.rounds}")


def check_model(network: NetworkRequest, data: FederatedData) -> None:
    """Build the network once, so that errors of its settings are reported before actors start.

    These are an unknown name or argument, and inputs that it cannot take.
    """
    data.transform.check_fits(data.dataset.name, data.dataset.input_shape)
    check_network(network, data.input_shape, data.dataset.num_classes, data.input_dtype)


def _check_rounds(data: FederatedData, method: str, mean: Mean, privacy: Privacy) -> None:
    """Check who takes part in rounds, and what their mean needs."""
    stages = data.partition.stages
    one_draw = stages is not None and stages.rounds_per_cycle > 1
    check_selection(data.federation, privacy, method, mean, data.trainable, one_draw=one_draw)
    check_mean(data.federation, privacy, mean, len(data.trainable))


def _check_clients(data: FederatedData, method: str, split: str, needs_held_out: bool) -> None:
    """Check that the clients have the samples that the run needs."""
    partition = data.partition
    if needs_held_out and not partition.val:
        raise UsageError(
            f"{method}: its clients judge models by samples that are held out, but "
            "data.validation is 0; set it, such as 0.2"
        )
    if data.unseen and not any(len(partition.test[client]) for client in data.unseen):
        raise UsageError(
            f"federation.unseen_clients = {data.federation.unseen_clients}: none of these clients "
            f"has a local test part; also give data.local_test (--local-test), such as 0.2"
        )
    empty = [client for client, n in enumerate(data.sizes) if n == 0]
    if empty:
        raise UsageError(
            f"split {split}: client {empty[0]} has no training sample ({len(empty)} such clients)"
        )
    if not len(data.dataset.y_test) and not any(len(part) for part in partition.test):
        raise UsageError(f"{data.dataset.name} has no test set of its own: set data.local_test above 0")
