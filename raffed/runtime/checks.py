"""Checks of a configuration against the machine, the data, the method and each other.

They are asked before the data are read, or before training starts. Each rule of a federation refuses for
itself (raffed/federation).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raffed.config.faults import Faults
from raffed.config.federation import Federation
from raffed.config.privacy import Privacy
from raffed.config.sections import Data, Runtime
from raffed.config.selection import Fixed
from raffed.config.stop_rule import read_rule
from raffed.config.training import Local
from raffed.data.catalogue import DATASETS, dataset_name
from raffed.data.preparation import check_numbers_given, with_numbers
from raffed.data.stages import Stages
from raffed.errors import UsageError
from raffed.runtime.federated_data import unseen_count
from raffed.runtime.setup_model import check_network

if TYPE_CHECKING:
    from raffed.core.parts import Pass
    from raffed.core.server import Mean
    from raffed.data.split import Split
    from raffed.runtime.run_method import NetworkRequest


def check_gpu(runtime: Runtime) -> None:
    """Check that this machine has the requested GPU. For other clusters, only Ray can find out."""
    if not runtime.gpu_fraction or (runtime.execution == "ray" and runtime.address is not None):
        return
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"runtime.gpu_fraction = {runtime.gpu_fraction}: torch {torch.__version__} sees no GPU here; "
            "set it to 0 for the CPU, or run `raffed doctor`"
        )


def check_numbers(federation: Federation, faults: Faults, per_actor: int, clients: int) -> None:
    """Check the options that contain a number of clients or the number of a client.

    Args:
        federation: The section `federation`.
        faults: The section `faults`.
        per_actor: `runtime.clients_per_actor`.
        clients: Number of all clients N.
    """
    unseen_count(federation, clients)
    if per_actor > clients:
        raise UsageError(
            f"runtime.clients_per_actor = {per_actor}, but there are only {clients} clients; set it to "
            f"at most {clients}"
        )
    if faults.last_client >= clients:
        raise UsageError(f"faults.at names client {faults.last_client}; clients are 0 to {clients - 1}")


def check_no_fork(federation: Federation) -> None:
    """Refuse a new run that says that it continues another one."""
    if federation.forked_at or federation.fork_sha256:
        raise UsageError(
            "federation.forked_at and federation.fork_sha256 are set by `raffed fork` only; leave them out, "
            "or fork that run again"
        )


def check_stop_rule(federation: Federation, validation: float, method: str, has_global: bool) -> None:
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
    if federation.survey or federation.asks("spectrum"):
        what = "federation.survey" if federation.survey else "federation.measures = spectrum"
        raise UsageError(
            f"federation.stop_when with {what}: the last rounds are measured, and which these are is not "
            "known before the run ends; leave one of the two out"
        )


def check_before_reading(
    split: Split,
    network: NetworkRequest,
    data: Data,
    federation: Federation,
    faults: Faults,
    runtime: Runtime,
) -> None:
    """Check what can be checked from the configuration and the catalogue entry of the data set.

    Args:
        split: The rule that divides the data.
        network: The network that the run asks for.
        data: The section `data` of the run, as are the others.
        federation: The section `federation`.
        faults: The section `faults`.
        runtime: The section `runtime`.

    Raises:
        UsageError: Something is invalid.
    """
    from raffed.data.own_data import is_own

    Stages.check_rounds(split.stage_count, federation.rounds)
    if split.client_count is not None:
        check_numbers(federation, faults, runtime.clients_per_actor, split.client_count)
    check_gpu(runtime)
    check_numbers_given(data.transform_args)
    if not is_own(data.dataset):
        _check_published(data, split, network)


def _check_published(data: Data, split: Split, network: NetworkRequest) -> None:
    """Check what the catalogue knows about a data set."""
    from raffed.data.transforms import transform_for

    name, clients = dataset_name(data.dataset), split.client_count
    info = DATASETS[name]
    style = split.style_of_auto().style if data.transform == "auto" else data.transform
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
    if clients is not None and clients > (data.samples or pool) > 0:
        raise UsageError(
            f"{split.text}: {data.samples or pool} samples cannot give {clients} clients one each"
        )
    check_network(network, transform.prepared_shape(info.shape), info.num_classes)


def check_new_options(federation: Federation, clients: int) -> None:
    """Reject a participation that comes to no client.

    Raises:
        UsageError: It does.
    """
    if not isinstance(federation.rule(), Fixed) and not round(federation.participation * clients):
        raise UsageError(
            f"federation.participation = {federation.participation:g} of {clients} clients comes to none of "
            f"them; it must be above {0.5 / clients:.4g}, such as {1 / clients:.4g} for one client a round"
        )


def check_epochs(local: Local, method: str, passes: Sequence[Pass]) -> None:
    """Refuse epochs that cannot be drawn, or that every pass of the method replaces by its own number."""
    low, high = local.epochs, local.epochs_to
    if high and (low != int(low) or not 1 <= low <= high):
        raise UsageError(
            f"local.epochs_to = {high}: epochs are drawn from local.epochs = {low:g}, which must be a whole "
            f"number from 1 to {high}"
        )
    if high and all(one.epochs is not None for one in passes):
        raise UsageError(
            f"local.epochs_to = {high} has no effect on {method}, whose arguments set the epochs of "
            "every pass; leave it out"
        )


def check_mean(federation: Federation, privacy: Privacy, mean: Mean, clients: int) -> None:
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
