"""From a configuration to everything that a run needs, checked before anything starts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raffed.config.run import RunConfig
from raffed.data.catalogue import DATASETS, dataset_name
from raffed.data.stages import Stages
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.references.carried import RunCode
from raffed.runtime.own_code import code_of

if TYPE_CHECKING:
    from raffed.core.method import Method
    from raffed.data.dataset import Dataset
    from raffed.data.files import InputArray
    from raffed.data.partition import Partition
    from raffed.data.preparation import Transform
    from raffed.data.splits import Split


@dataclass(frozen=True)
class Setup:
    """A checked run: the data set, the partition, the configuration, and the user's own code that it needs.

    It holds only arrays, so it can be sent without a copy. A process that receives it installs the user's
    code first, and then reads the rest.
    """

    config: RunConfig
    dataset: Dataset
    partition: Partition
    choice: Mapping[str, Any] | None = None  # the choice of `execution = auto`, for run.json
    code: RunCode = field(default_factory=RunCode)

    def __reduce__(self) -> tuple[Callable[..., Setup], tuple[RunCode, type[Setup], tuple[Any, ...]]]:
        return _received, (self.code, type(self), tuple(getattr(self, one.name) for one in fields(self)))

    @property
    def method(self) -> Method:
        return method_of(self.config)

    @property
    def transform(self) -> Transform:
        """How the inputs are prepared."""
        return self.dataset.transform_in(self.style).transform

    @property
    def style(self) -> str:
        """The style of preparation: what was asked for or, for "auto", what the partition records.

        A partition of an earlier version records none; then it is the style of the split's class.
        """
        from raffed.data.splits import parse_split, style_in

        asked, split = self.config.data.transform, self.config.data.split
        if asked != "auto":
            return asked
        return style_in(self.partition, split) or parse_split(split).style

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one prepared input: (channels, height, width) for images."""
        return self.transform.prepared_shape(self.dataset.input_shape)

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Training samples of every client, over all its stages."""
        return [len(part) for part in self.partition.train]

    def stage(self, round: int) -> int | None:
        """Return the stage in which all clients are in a round, or None without stages.

        Stages and rounds are counted from 0.
        """
        stages = self.partition.stages
        return None if stages is None else stages.at(round, self.config.federation.rounds)

    def sizes_at(self, round: int) -> list[int]:
        """Return the training samples of every client in the stage of this round."""
        stage = self.stage(round)
        if stage is None:
            return self.sizes
        return [len(self.partition.train_at(client, stage)) for client in range(self.partition.num_clients)]

    @functools.cached_property
    def scored_rows(self) -> Mapping[str, tuple[str, NDArray[np.int64]]]:
        """The samples on which a global model is scored: "test" and "val" → (pool, rows in it).

        The pool is "test" or "train".

        "test" is the benchmark's own test set or, if there is none, the union of the local test parts. "val"
        is the validation parts of all clients, in client order. It has no rows if nothing was held out.
        """
        own = len(self.dataset.y_test)
        test = ("test", np.arange(own)) if own else ("train", np.concatenate(self.partition.test))
        return {"test": test, "val": ("train", np.concatenate([np.zeros(0, np.int64), *self.partition.val]))}

    def test_set(self) -> tuple[InputArray, NDArray[np.int64]]:
        """The inputs and labels of the global test set. They are copied if they are the local test parts."""
        if len(self.dataset.y_test):
            return self.dataset.x_test, self.dataset.y_test
        _, rows = self.scored_rows["test"]
        return self.dataset.x[rows], self.dataset.y[rows]


def _received(_: RunCode, kind: type[Setup], values: tuple[Any, ...]) -> Setup:
    """Return a setup that arrived in this process. Its code comes first, since pickles are read in order."""
    return kind(*values)


def method_of(config: RunConfig) -> Method:
    """Return the run's method, with the weights of the mean that the run asks for."""
    from raffed.core.server import Mean

    made, by = build_method(config.method, config.args), config.federation.weighting
    if not by or by == made.mean.by:
        return made
    if made.mean.fixed:
        raise UsageError(
            f"federation.weighting = {by!r}: {made.name} counts on the weights {made.mean.by!r}; leave it out"
        )
    return dataclasses.replace(made, mean=Mean(by="clients" if by == "clients" else "samples"))


def prepare_run(config: RunConfig, checked: Callable[[], None] | None = None) -> Setup:
    """Load the data, draw the split, and check every name, range and combination.

    Args:
        config: The run's configuration.
        checked: Called when everything is checked that can be checked before the data are read. Reading may
            take minutes.

    Raises:
        UsageError: Something in the configuration is invalid.
    """
    from raffed.data.dataset import fewer
    from raffed.data.datasets import load_dataset
    from raffed.data.partition import held_out
    from raffed.data.server_holdout import draw_server_holdout, partition_beside
    from raffed.data.splits import parse_split

    method = method_of(config)
    split = parse_split(config.data.split)
    check_before_reading(config, split)
    if checked is not None:
        checked()
    dataset = fewer(
        load_dataset(config.data.dataset, config.data.root, config.data.download),
        config.data.samples,
        config.seed,
    )
    labels, classes = dataset.y, dataset.num_classes
    own = draw_server_holdout(labels, classes, method.server.required_data().labelled, config.seed)
    request = (
        split,
        labels,
        classes,
        dataset.clients,
        config.seed,
        config.data.local_test,
        dataset.y_test,
        dataset.test_clients,
    )
    partition = partition_beside(own, *request)
    setup = Setup(
        config,
        dataset,
        held_out(partition, config.data.validation, config.seed),
        code=code_of(config),
    )
    setup = dataclasses.replace(setup, partition=setup.partition.prepared_as(setup.style))
    setup.transform.check_fits(dataset.name, dataset.input_shape)
    setup.stage(0)  # raises an error if the rounds do not fit the stages
    _check_clients(setup)
    if setup.dataset.x.shape[1:] != DATASETS[dataset.name].shape:
        check_model(setup)
    return setup


def check_before_reading(config: RunConfig, split: Split) -> None:
    """Check what can be checked from the configuration and the catalogue entry of the data set.

    Raises:
        UsageError: Something is invalid.
    """
    from raffed.data.transforms import transform_for

    name = dataset_name(config.data.dataset)
    info, data, clients = DATASETS[name], config.data, split.client_count
    style = split.style_of_auto().style if data.transform == "auto" else data.transform
    transform = transform_for(name, style)
    transform.check_fits(name, info.shape)
    if data.samples % info.num_classes:
        raise UsageError(
            f"data.samples = {data.samples} for {name}: wanted a multiple of its {info.num_classes} classes"
        )
    if data.samples > info.num_train > 0:
        raise UsageError(
            f"data.samples = {data.samples} for {name}, which has {info.num_train} training samples"
        )
    split.check_data(name, info.num_classes)
    Stages.check_rounds(split.stage_count, config.federation.rounds)
    if clients is not None:
        _check_numbers(config, clients)
        if clients > (data.samples or info.num_train) > 0:
            raise UsageError(
                f"{split.text}: {data.samples or info.num_train} samples cannot give {clients} clients one "
                f"each"
            )
    _check_gpu(config)
    _check_network(config, transform.prepared_shape(info.shape), info.num_classes)


def check_new(setup: Setup) -> None:
    """Reject settings that would have no effect.

    It is applied to new runs only, so that older runs can still be resumed.
    """
    config, clients = setup.config, setup.partition.num_clients
    actors, each = config.runtime.actors, config.runtime.clients_per_actor
    if actors and each and actors != -(-clients // each):
        raise UsageError(
            f"runtime.actors = {actors} and runtime.clients_per_actor = {each}: {clients} clients by {each} "
            f"are "
            f"{-(-clients // each)} actors; give one of the two"
        )
    if config.faults.last_begin > config.federation.rounds:
        raise UsageError(
            f"faults.at names round {config.faults.last_begin}; rounds are 1 to {config.federation.rounds}"
        )


def check_model(setup: Setup) -> None:
    """Build the network once, so that errors of its settings are reported before actors start.

    These are an unknown name or argument, and inputs that it cannot take.
    """
    _check_network(setup.config, setup.input_shape, setup.dataset.num_classes)


def _check_network(config: RunConfig, shape: tuple[int, ...], classes: int) -> None:
    from raffed.models import build, check_args

    check_args(config.model.name, config.model.args)
    build(config.model.name, shape, classes, 0, **config.model.args)


def _check_gpu(config: RunConfig) -> None:
    """Check that this machine has the requested GPU. For other clusters, only Ray can find out."""
    runtime = config.runtime
    if not runtime.gpu_fraction or (runtime.execution == "ray" and runtime.address is not None):
        return
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"runtime.gpu_fraction = {runtime.gpu_fraction}: torch {torch.__version__} sees no GPU here; "
            "set it to 0 for the CPU, or run `raffed doctor`"
        )


def _check_clients(setup: Setup) -> None:
    _check_numbers(setup.config, setup.partition.num_clients)
    empty = [client for client, n in enumerate(setup.sizes) if n == 0]
    if empty:
        raise UsageError(
            f"split {setup.config.data.split}: client {empty[0]} has no training sample ({len(empty)} such)"
        )
    if not len(setup.dataset.y_test) and not any(len(part) for part in setup.partition.test):
        raise UsageError(f"{setup.dataset.name} has no test set of its own: set data.local_test above 0")


def _check_numbers(config: RunConfig, clients: int) -> None:
    """Check the options that contain a number of clients or the number of a client."""
    per_actor = config.runtime.clients_per_actor
    if per_actor > clients:
        raise UsageError(
            f"runtime.clients_per_actor = {per_actor} with {clients} clients; wanted at most {clients}"
        )
    if config.faults.last_client >= clients:
        raise UsageError(
            f"faults.at names client {config.faults.last_client}; clients are 0 to {clients - 1}"
        )
