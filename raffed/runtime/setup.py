"""From a configuration to everything that a run needs, checked before anything starts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raffed.config.run import RunConfig
from raffed.data.catalogue import DATASETS, dataset_name
from raffed.data.stages import Stages
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.references.carried import RunCode
from raffed.runtime.config_checks import check_gpu, check_no_fork, check_numbers, check_stop_rule
from raffed.runtime.data_source import load_data
from raffed.runtime.own_code import code_of
from raffed.runtime.setup_model import check_network, check_single_samples, prepared_dtype

if TYPE_CHECKING:
    from raffed.core.method import Method
    from raffed.data.dataset import Dataset
    from raffed.data.files import InputArray
    from raffed.data.partition import Partition
    from raffed.data.preparation import Transform
    from raffed.data.splits import Split
    from raffed.runtime.initial_weights import Arrays
    from raffed.runtime.json_values import Json

    SetupParts: TypeAlias = tuple[
        RunConfig, Dataset, Partition, Mapping[str, Json] | None, str, Arrays | None, RunCode
    ]


@dataclass(frozen=True)
class Setup:
    """A checked run: the data set, the partition, the configuration, and the user's own code that it needs.

    It holds only arrays, so it can be sent without a copy. A process that receives it installs the user's
    code first, and then reads the rest.
    """

    config: RunConfig
    dataset: Dataset
    partition: Partition
    choice: Mapping[str, Json] | None = None  # the choice of `execution = auto`, for run.json
    data_sha256: str = ""  # hash of the arrays of data of one's own, by which the cache finds them
    initial: Arrays | None = None  # the weights of `model.init`
    code: RunCode = field(default_factory=RunCode)

    def __reduce__(self) -> tuple[Callable[..., Setup], tuple[RunCode, type[Setup], SetupParts]]:
        parts = (
            self.config,
            self.dataset,
            self.partition,
            self.choice,
            self.data_sha256,
            self.initial,
            self.code,
        )
        return _received, (self.code, type(self), parts)

    @functools.cached_property
    def method(self) -> Method:
        """The run's method, made once in a process, whose working folder may change while the run goes on."""
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

    @property
    def input_dtype(self) -> str:
        """Type of the prepared inputs: "int64" for ids, otherwise "float32"."""
        return prepared_dtype(self.dataset.x.dtype, self.transform)

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


def _received(_: RunCode, kind: type[Setup], parts: SetupParts) -> Setup:
    """Return a setup that arrived in this process. Its code comes first, since pickles are read in order."""
    return kind(*parts)


def method_of(config: RunConfig) -> Method:
    """Return the run's method, with the weights of the mean that the run asks for."""
    from raffed.core.server import Mean

    made, by = build_method(config.method, config.args), config.federation.weighting
    if not by or by == made.mean.by:
        return made
    if made.mean.fixed:
        raise UsageError(
            f"federation.weighting = {by!r}: {made.name} requires the weights {made.mean.by!r}; leave it out"
        )
    return dataclasses.replace(made, mean=Mean(by="clients" if by == "clients" else "samples"))


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
    from raffed.data.dataset import fewer
    from raffed.data.partition import held_out
    from raffed.data.server_holdout import draw_server_holdout, partition_beside
    from raffed.data.splits import parse_split
    from raffed.runtime.initial_weights import read_initial

    method = method_of(config)
    initial = read_initial(config.model)
    split = parse_split(config.data.split)
    check_before_reading(config, split)
    if checked is not None:
        checked()
    whole, found = load_data(config, data_sha256)
    if found:
        split.check_data(whole.name, whole.num_classes)
    dataset = fewer(whole, config.data.samples, config.seed)
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
    held = held_out(partition, config.data.validation, config.seed)
    setup = Setup(config, dataset, held, data_sha256=found, initial=initial, code=code_of(config))
    setup = dataclasses.replace(setup, partition=setup.partition.prepared_as(setup.style))
    setup.transform.check_fits(dataset.name, dataset.input_shape)
    setup.stage(0)  # raises an error if the rounds do not fit the stages
    _check_clients(setup)
    if found or setup.dataset.x.shape[1:] != DATASETS[dataset.name].shape:
        check_model(setup)
    assert setup.method is not None  # made now, while the working folder is the one in which it was named
    check_single_samples(config, setup.input_shape, dataset.num_classes, setup.input_dtype, setup.sizes)
    return setup


def check_before_reading(config: RunConfig, split: Split) -> None:
    """Check what can be checked from the configuration and the catalogue entry of the data set.

    Raises:
        UsageError: Something is invalid.
    """
    from raffed.data.own_data import is_own

    Stages.check_rounds(split.stage_count, config.federation.rounds)
    if split.client_count is not None:
        check_numbers(config, split.client_count)
    check_gpu(config)
    if not is_own(config.data.dataset):
        _check_published(config, split)


def _check_published(config: RunConfig, split: Split) -> None:
    """Check what the catalogue knows about a data set."""
    from raffed.data.transforms import transform_for

    name = dataset_name(config.data.dataset)
    info, data, clients = DATASETS[name], config.data, split.client_count
    style = split.style_of_auto().style if data.transform == "auto" else data.transform
    transform = transform_for(name, style)
    transform.check_fits(name, info.shape)
    if data.samples % info.num_classes:
        raise UsageError(
            f"data.samples = {data.samples} for {name}: it must be a multiple of its {info.num_classes} "
            "classes"
        )
    if data.samples > info.num_train > 0:
        raise UsageError(
            f"data.samples = {data.samples} for {name}, which has only {info.num_train} training samples"
        )
    split.check_data(name, info.num_classes)
    if clients is not None and clients > (data.samples or info.num_train) > 0:
        raise UsageError(
            f"{split.text}: {data.samples or info.num_train} samples cannot give {clients} clients one each"
        )
    check_network(config, transform.prepared_shape(info.shape), info.num_classes)


def check_new(setup: Setup) -> None:
    """Reject settings that would have no effect.

    It is applied to new runs only, so that older runs can still be resumed.
    """
    config, clients = setup.config, setup.partition.num_clients
    check_no_fork(config)
    actors, each = config.runtime.actors, config.runtime.clients_per_actor
    if actors and each and actors != -(-clients // each):
        raise UsageError(
            f"runtime.actors = {actors} and runtime.clients_per_actor = {each}: {clients} clients at "
            f"{each} per actor need {-(-clients // each)} actors; set only one of these options"
        )
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
    check_network(setup.config, setup.input_shape, dataset.num_classes, setup.input_dtype)


def _check_clients(setup: Setup) -> None:
    check_numbers(setup.config, setup.partition.num_clients)
    check_stop_rule(setup.config, setup.method.has_global)
    empty = [client for client, n in enumerate(setup.sizes) if n == 0]
    if empty:
        raise UsageError(
            f"split {setup.config.data.split}: client {empty[0]} has no training sample ({len(empty)} "
            "such clients)"
        )
    if not len(setup.dataset.y_test) and not any(len(part) for part in setup.partition.test):
        raise UsageError(f"{setup.dataset.name} has no test set of its own: set data.local_test above 0")
