"""From a configuration to everything that a run needs, checked before anything starts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from raffed.config.faults import Faults
from raffed.config.federation import Federation, Fixed, read_rule
from raffed.config.run import RunConfig
from raffed.config.sections import Data, Privacy, Runtime
from raffed.config.training import Local
from raffed.data.catalogue import DATASETS, dataset_name
from raffed.data.preparation import check_numbers_given, with_numbers
from raffed.data.stages import Stages
from raffed.errors import UsageError
from raffed.federation.faults import check_attack
from raffed.federation.selection import check_clock, check_named, check_selection, check_waiting
from raffed.models import is_own
from raffed.own.carried import RunCode
from raffed.runtime import setup_model
from raffed.runtime.federated_data import FederatedData, unseen_count
from raffed.runtime.machine import begin_bits
from raffed.runtime.run_method import NetworkRequest, code_of, method_of, network_of

if TYPE_CHECKING:
    from raffed.core.method import Method
    from raffed.core.parts import Pass
    from raffed.core.server import Mean
    from raffed.data.dataset import Dataset
    from raffed.data.partition_file import Partition
    from raffed.data.split import Split
    from raffed.runtime.initial_weights import Arrays


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

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for a pickle, which is read in order: the code comes first."""
        names = ("code", *(f.name for f in dataclasses.fields(self)))
        return {name: getattr(self, name) for name in names}

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


def prepare_run(
    config: RunConfig, checked: Callable[[], None] | None = None, recorded: Mapping[str, Any] | None = None
) -> Setup:
    """Load the data, draw the split, and check every name, range and combination.

    Args:
        config: The run's configuration.
        checked: Called when everything is checked that can be checked before the data are read. Reading may
            take minutes.
        recorded: What run.json holds of the run to be continued, which says what data of one's own must be.

    Raises:
        UsageError: Something in the configuration is invalid.
    """
    from raffed.core.own_functions import check_loss
    from raffed.data.splits import parse_split
    from raffed.runtime.initial_weights import read_initial

    begin_bits(config.numerics)
    method, data, federation = method_of(config), config.data, config.federation
    network = network_of(config, method, read_initial(config.model))
    split = parse_split(data.split, data.split_args)
    _check_before_reading(split, network, config)
    if checked is not None:
        checked()
    whole, own_sha256 = setup_model.load_data(data, recorded)
    if own_sha256:
        split.check_data(whole.name, whole.num_classes)
    if config.loss:
        check_loss(config.loss, config.loss_args, whole.num_classes, stacked=config.numerics.cohort > 1)
    dataset = setup_model.part_of(whole, data, config.seed)
    with dataset.naming(data.split):
        held = setup_model.draw_partition(
            data, config.seed, split, dataset, method.server.required_data().labelled
        )
        held = dataclasses.replace(held, recipe={**held.recipe, "transform": style_of(data, held)})
        setup = Setup(config, dataset, held, own_sha256, network.initial, code_of(config))
        clients = setup.data
        clients.transform.check_fits(dataset.name, dataset.input_shape)
        clients.stage(0)  # raises an error if the rounds do not fit the stages
        _check_numbers(config, held.num_clients)
        _check_stop_rule(federation, data.validation, config.method, method.has_global)
        _check_clients(clients, method.name, data.split, method.needs_held_out)
        _check_epochs(config.local, method.name, method.passes)
        stages, privacy = held.stages, config.privacy
        one_draw = stages is not None and stages.rounds_per_cycle > 1
        check_selection(federation, privacy, method.name, method.mean, clients.trainable, one_draw=one_draw)
        _check_mean(federation, privacy, method.mean, len(clients.trainable))
        check_clock(config.clock, federation, held.num_clients, clients.trainable)
        if config.clock.asynchronous:
            check_waiting(config, method, in_stages=stages is not None)
        shares, trainable = method.split.personal != "all", clients.trainable
        check_attack(config.faults, method.name, shares, trainable, dataset.x, dataset.num_classes)
        if own_sha256 or dataset.x.shape[1:] != DATASETS[dataset.name].shape:
            check_model(network, clients)
        if is_own(config.model.name) and clients.input_dtype == "int64":
            setup_model.check_ids(network, dataset)
        # Made now, while the working folder is the one in which they were named
        assert setup.method is not None
        assert clients.own_metrics is not None
        setup_model.check_single_samples(network, config.local, clients)
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
    if federation.forked_at or federation.fork_sha256:
        raise UsageError(
            "federation.forked_at and federation.fork_sha256 are set by `raffed fork` only; leave them out, "
            "or fork that run again"
        )
    if actors and each and actors != -(-clients // each):
        raise UsageError(
            f"runtime.actors = {actors} and runtime.clients_per_actor = {each}: {clients} clients at "
            f"{each} per actor need {-(-clients // each)} actors; set only one of these options"
        )
    trainable, share = len(data.trainable), federation.participation
    if not isinstance(federation.rule(), Fixed) and not round(share * trainable):
        raise UsageError(
            f"federation.participation = {share:g} of {trainable} clients comes to none of them; it must "
            f"be above {0.5 / trainable:.4g}, such as {1 / trainable:.4g} for one client a round"
        )
    check_named("faults.at", faults.clients_at, data.trainable)
    if faults.last_begin > federation.rounds:
        raise UsageError(f"faults.at names round {faults.last_begin}; rounds are 1 to {federation.rounds}")


def check_model(network: NetworkRequest, data: FederatedData) -> None:
    """Build the network once, so that errors of its settings are reported before actors start.

    These are an unknown name or argument, and inputs that it cannot take.
    """
    data.transform.check_fits(data.dataset.name, data.dataset.input_shape)
    setup_model.check_network(network, data.input_shape, data.dataset.num_classes, data.input_dtype)


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


# Checks of a configuration against the machine, the data, the method and each other. Each rule of a
# federation refuses for itself (raffed/federation).


def _check_gpu(runtime: Runtime) -> None:
    """Check that this machine has the requested GPU. For other clusters, only Ray can find out."""
    if not runtime.gpu_fraction or (runtime.execution == "ray" and runtime.address is not None):
        return
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"runtime.gpu_fraction = {runtime.gpu_fraction}: torch {torch.__version__} sees no GPU here; "
            "set it to 0 for the CPU, or run `raffed doctor`"
        )


def _check_numbers(config: RunConfig, clients: int) -> None:
    """Check the options that contain a number of clients, of `clients` in all."""
    per_actor = config.runtime.clients_per_actor
    unseen_count(config.federation, clients)
    if per_actor > clients:
        raise UsageError(
            f"runtime.clients_per_actor = {per_actor}, but there are only {clients} clients; set it to "
            f"at most {clients}"
        )


def _check_stop_rule(federation: Federation, validation: float, method: str, has_global: bool) -> None:
    """Refuse a rule that could never end the run, or whose last round is measured in a way that must be known
    beforehand.

    Args:
        federation: The section `federation`.
        validation: `data.validation`, the share of validation parts.
        method: Name of the method.
        has_global: Whether the method has a global model.

    Raises:
        UsageError: The rule does not fit the run.
    """
    rule = read_rule(federation.stop_when)
    if rule is None:
        return
    if not validation:
        raise UsageError(
            "federation.stop_when needs a validation part, because test data may not decide when a run ends; "
            "also give --validation 0.1"
        )
    if rule.measure != "val.personal" and not has_global:
        raise UsageError(
            f"federation.stop_when names {rule.measure}, and {method} has no global model; use val.personal"
        )
    measured = {
        "federation.survey": federation.survey > 0,
        "federation.measures = spectrum": federation.asks("spectrum"),
        f"federation.strength_every = {federation.strength_every}": federation.strength_every > 1,
    }
    if what := next((name for name, given in measured.items() if given), ""):
        raise UsageError(
            f"federation.stop_when with {what}: the last rounds are measured, and which these are is not "
            "known before the run ends; leave one of the two out"
        )


def _check_before_reading(split: Split, network: NetworkRequest, config: RunConfig) -> None:
    """Check what can be checked from the configuration and the catalogue entry of the data set."""
    from raffed.data.own_data import is_own

    data = config.data
    Stages.check_rounds(split.stage_count, config.federation.rounds)
    if split.client_count is not None:
        _check_numbers(config, split.client_count)
    _check_gpu(config.runtime)
    check_numbers_given(data.transform_args)
    if not is_own(data.dataset):
        _check_published(data, split, network)


def _check_published(data: Data, split: Split, network: NetworkRequest) -> None:
    """Check what the catalogue knows about a data set."""
    from raffed.data.transforms import transform_for

    name, clients = dataset_name(data.dataset), split.client_count
    info = DATASETS[name]
    style = split.style_of_auto()[0] if data.transform == "auto" else data.transform
    transform = with_numbers(transform_for(name, style), data.transform_args)
    pool = info.num_train + (info.num_test if data.pool == "joined" else 0)
    transform.check_fits(name, info.shape)
    if data.samples % info.num_classes:
        raise UsageError(
            f"data.samples = {data.samples} for {name}: it must be a multiple of its {info.num_classes} "
            "classes"
        )
    if data.samples > pool > 0:
        raise UsageError(f"data.samples = {data.samples} for {name}, which has only {pool} training samples")
    split.check_data(name, info.num_classes)
    if clients is not None and clients > (data.samples or pool) > 0 and not split.overlapping:
        raise UsageError(
            f"{split.text}: {data.samples or pool} samples cannot give {clients} clients one each"
        )
    setup_model.check_network(network, transform.prepared_shape(info.shape), info.num_classes)


def _check_epochs(local: Local, method: str, passes: Sequence[Pass]) -> None:
    """Refuse epochs that cannot be drawn, or that every pass of the method replaces by its own number."""
    low, high = local.epochs, local.epochs_to
    if high and (low != int(low) or not 1 <= low <= high):
        raise UsageError(
            f"local.epochs_to = {high}: epochs are drawn from local.epochs = {low:g}, which must be a whole "
            f"number from 1 to {high}"
        )
    if high and all(pass_.epochs is not None for pass_ in passes):
        raise UsageError(
            f"local.epochs_to = {high} has no effect on {method}, whose arguments set the epochs of "
            "every pass; leave it out"
        )


def _check_mean(federation: Federation, privacy: Privacy, mean: Mean, clients: int) -> None:
    """Refuse a robust mean of uploads that nobody sees one by one, or of too few of them."""
    rule = mean.rule
    if rule is None:
        return
    what = f"federation.mean = {federation.mean!r}"
    if privacy.masks or privacy.clip is not None:
        other = "privacy.masks: masks reveal" if privacy.masks else "privacy.clip: it protects"
        raise UsageError(f"{what} needs every upload, but {other} only their sum; leave one of them out")
    selection = federation.rule()
    rounds = selection.rounds() if isinstance(selection, Fixed) else []
    count = min(map(len, rounds)) if rounds else federation.participants(clients)
    if why := rule.why_not(count):
        raise UsageError(f"{what}: {why}; raise federation.participation, or change --mean-arg")
