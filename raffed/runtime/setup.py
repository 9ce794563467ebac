"""From a configuration to everything that a run needs, checked before anything starts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from raffed.config.run import RunConfig
from raffed.core.measures.own_metric import OwnMetric, own_metrics
from raffed.data.catalogue import DATASETS
from raffed.data.preparation import with_numbers
from raffed.errors import UsageError
from raffed.models.catalogue import is_own
from raffed.own.carried import RunCode
from raffed.runtime.bits import begin_bits
from raffed.runtime.checks import (
    check_before_reading,
    check_new_options,
    check_no_fork,
    check_numbers,
    check_options,
    check_stop_rule,
)
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.run_method import code_of, method_of
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
    from raffed.data.dataset import Dataset
    from raffed.data.partition_file import Partition
    from raffed.data.preparation import Transform
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
    def own_metrics(self) -> tuple[OwnMetric, ...]:
        """The user's own metrics that the run measures, found once in a process, like the method."""
        return own_metrics(self.config.federation.metrics)

    @property
    def transform(self) -> Transform:
        """How the inputs are prepared."""
        return with_numbers(self.dataset.transform_in(self.style), self.config.data.transform_args)

    @property
    def style(self) -> str:
        """The style of preparation: what was asked for or, for "auto", what the partition records.

        For a partition that records none it is the style of the split's class.
        """
        from raffed.data.benchmark_splits import style_in
        from raffed.data.splits import parse_split

        data = self.config.data
        if data.transform != "auto":
            return data.transform
        return style_in(self.partition, data.split) or parse_split(data.split, data.split_args).style

    @functools.cached_property
    def data(self) -> FederatedData:
        """The clients of the run and their samples, without the method."""
        config = self.config
        return FederatedData(
            self.dataset, self.partition, self.transform, config.federation, config.faults, config.seed
        )


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

    begin_bits(config)
    method = method_of(config)
    initial = read_initial(config.model)
    split = parse_split(config.data.split, config.data.split_args)
    check_before_reading(config, split)
    if checked is not None:
        checked()
    whole, found = load_data(config, data_sha256)
    if found:
        split.check_data(whole.name, whole.num_classes)
    if config.loss:
        check_loss(config.loss, config.loss_args, whole.num_classes, stacked=config.numerics.cohort > 1)
    dataset = part_of(whole, config)
    with dataset.naming(config.data.split):
        held = draw_partition(config, split, dataset, method.server.required_data().labelled)
        setup = Setup(config, dataset, held, data_sha256=found, initial=initial, code=code_of(config))
        setup = dataclasses.replace(setup, partition=setup.partition.prepared_as(setup.style))
        setup.transform.check_fits(dataset.name, dataset.input_shape)
        setup.data.stage(0)  # raises an error if the rounds do not fit the stages
        _check_clients(setup)
        check_options(config, setup.method, setup.partition, dataset, setup.data.trainable)
        if found or setup.dataset.x.shape[1:] != DATASETS[dataset.name].shape:
            check_model(setup)
        if is_own(config.model.name) and setup.data.input_dtype == "int64":
            check_ids(config, dataset)
        # Made now, while the working folder is the one in which they were named
        assert setup.method is not None
        assert setup.own_metrics is not None
        check_single_samples(
            config, setup.data.input_shape, dataset.num_classes, setup.data.input_dtype, setup.data.sizes
        )
    return setup


def check_new(setup: Setup) -> None:
    """Reject settings of a new run that would have no effect."""
    config, clients = setup.config, setup.partition.num_clients
    check_no_fork(config.federation)
    actors, each = config.runtime.actors, config.runtime.clients_per_actor
    if actors and each and actors != -(-clients // each):
        raise UsageError(
            f"runtime.actors = {actors} and runtime.clients_per_actor = {each}: {clients} clients at "
            f"{each} per actor need {-(-clients // each)} actors; set only one of these options"
        )
    check_new_options(config.federation, len(setup.data.trainable))
    if config.faults.last_begin > config.federation.rounds:
        raise UsageError(
            f"faults.at names round {config.faults.last_begin}; rounds are 1 to {config.federation.rounds}"
        )


def check_model(setup: Setup) -> None:
    """Build the network once, so that errors of its settings are reported before actors start.

    These are an unknown name or argument, and inputs that it cannot take.
    """
    dataset = setup.dataset
    setup.transform.check_fits(dataset.name, dataset.input_shape)
    check_network(setup.config, setup.data.input_shape, dataset.num_classes, setup.data.input_dtype)


def _check_clients(setup: Setup) -> None:
    config = setup.config
    per_actor = config.runtime.clients_per_actor
    check_numbers(config.federation, config.faults, per_actor, setup.partition.num_clients)
    check_stop_rule(config.federation, config.data.validation, config.method, setup.method.has_global)
    if setup.method.needs_held_out and not setup.partition.val:
        raise UsageError(
            f"{setup.method.name}: its clients judge models by samples that are held out, but "
            "data.validation is 0; set it, such as 0.2"
        )
    if setup.data.unseen and not any(len(setup.partition.test[client]) for client in setup.data.unseen):
        raise UsageError(
            f"federation.unseen_clients = {setup.config.federation.unseen_clients}: none of these clients "
            f"has a local test part; also give data.local_test (--local-test), such as 0.2"
        )
    empty = [client for client, n in enumerate(setup.data.sizes) if n == 0]
    if empty:
        raise UsageError(
            f"split {setup.config.data.split}: client {empty[0]} has no training sample ({len(empty)} "
            "such clients)"
        )
    if not len(setup.dataset.y_test) and not any(len(part) for part in setup.partition.test):
        raise UsageError(f"{setup.dataset.name} has no test set of its own: set data.local_test above 0")
