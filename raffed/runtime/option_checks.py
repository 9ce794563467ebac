"""Checks of who takes part, of robust means and of attacks, against the method, the data and each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raffed.config.attacks import PATCH
from raffed.config.run import RunConfig
from raffed.config.selection import Fixed, PowerOfChoice, Rule
from raffed.errors import UsageError
from raffed.runtime.clock_checks import check_clock
from raffed.runtime.own_selection import check_own_arguments, needs_losses

if TYPE_CHECKING:
    from raffed.core.method import Method
    from raffed.data.dataset import Dataset
    from raffed.data.partition import Partition


def check_options(
    config: RunConfig, method: Method, partition: Partition, dataset: Dataset, trainable: Sequence[int]
) -> None:
    """Check the drawn epochs, the selection, the robust mean and the attack of a run.

    Args:
        config: The run's configuration.
        method: Its method, with the mean that the run asks for.
        partition: Who has which samples.
        dataset: The data.
        trainable: The clients that may train.

    Raises:
        UsageError: One of them is not possible, or would have no effect.
    """
    _check_epochs(config, method)
    _check_selection(config, method, partition, trainable)
    _check_mean(config, method, len(trainable))
    check_clock(config, method, partition, trainable)
    _check_attack(config, method, dataset, partition.num_clients)


def check_new_options(config: RunConfig, clients: int) -> None:
    """Reject a participation that comes to no client. Older runs have trained one client in each round.

    Raises:
        UsageError: It does.
    """
    federation = config.federation
    if not isinstance(federation.rule(), Fixed) and not round(federation.participation * clients):
        raise UsageError(
            f"federation.participation = {federation.participation:g} of {clients} clients comes to none of "
            f"them; it must be above {0.5 / clients:.4g}, such as {1 / clients:.4g} for one client a round"
        )


def _check_epochs(config: RunConfig, method: Method) -> None:
    low, high = config.local.epochs, config.local.epochs_to
    if high and (low != int(low) or not 1 <= low <= high):
        raise UsageError(
            f"local.epochs_to = {high}: epochs are drawn from local.epochs = {low:g}, which must be a whole "
            f"number from 1 to {high}"
        )
    if high and all(one.epochs is not None for one in method.passes):
        raise UsageError(
            f"local.epochs_to = {high} has no effect on {method.name}, whose arguments set the epochs of "
            "every pass; leave it out"
        )


def _check_selection(
    config: RunConfig, method: Method, partition: Partition, trainable: Sequence[int]
) -> None:
    clients = len(trainable)
    federation, rule = config.federation, config.federation.rule()
    what = f"federation.selection = {federation.selection!r}"
    if rule is None:
        check_own_arguments(config)
    else:
        _check_rule(config, method, rule, trainable)
    if config.privacy.noise and federation.selection != "uniform":
        raise UsageError(
            f"{what}: privacy.noise computes ε for participants drawn uniformly; leave one of them out"
        )
    if needs_losses(config) and partition.stages is not None and partition.stages.rounds_per_cycle > 1:
        raise UsageError(
            f"{what} looks at losses in every round, but this split has one draw for all its stages; use "
            "another selection"
        )
    if isinstance(rule, PowerOfChoice):
        count, number = federation.participants(clients), rule.candidates or clients
        if not count <= number <= clients:
            raise UsageError(
                f"{what}: candidates = {number} must lie between the {count} participants of a round and the "
                f"{clients} clients"
            )


def _check_rule(config: RunConfig, method: Method, rule: Rule, trainable: Sequence[int]) -> None:
    federation = config.federation
    what = f"federation.selection = {federation.selection!r}"
    if isinstance(rule, Fixed):
        if others := sorted({client for one in rule.rounds() for client in one} - set(trainable)):
            raise UsageError(
                f"{what} names client {others[-1]}, which is not one of those that train; these are "
                f"{len(trainable)} clients, from {trainable[0]} to {trainable[-1]}"
            )
        if federation.participation != 1.0:
            raise UsageError(
                f"federation.participation = {federation.participation:g} has no effect with {what}, which "
                "lists the participants; leave it out"
            )
    if rule.repeats() and (method.mean.fixed or method.mean.rule is not None):
        why = f"{method.name} requires its own weights" if method.mean.fixed else "of the robust mean"
        raise UsageError(
            f"{what} may draw a client twice, which is not possible here ({why}); give --selection-arg "
            "replacement=false, or use another selection"
        )


def _check_mean(config: RunConfig, method: Method, clients: int) -> None:
    rule, privacy = method.mean.rule, config.privacy
    if rule is None:
        return
    what = f"federation.mean = {config.federation.mean!r}"
    if privacy.masks or privacy.clip is not None:
        other = "privacy.masks: masks reveal" if privacy.masks else "privacy.clip: it protects"
        raise UsageError(f"{what} needs every upload, but {other} only their sum; leave one of them out")
    selection = config.federation.rule()
    rounds = selection.rounds() if isinstance(selection, Fixed) else []
    count = min(map(len, rounds)) if rounds else config.federation.participants(clients)
    if why := rule.why_not(count):
        raise UsageError(f"{what}: {why}; raise federation.participation, or change --mean-arg")


def _check_attack(config: RunConfig, method: Method, dataset: Dataset, clients: int) -> None:
    plan = config.faults
    plan.check_attack()
    if not plan.attack:
        return
    what = f"faults.attack = {plan.attack!r}"
    listed = plan.listed_attackers()
    if listed and listed[-1] >= clients:
        raise UsageError(f"faults.attacker_list names client {listed[-1]}; clients are 0 to {clients - 1}")
    if not listed and not round(plan.attackers * clients):
        raise UsageError(
            f"faults.attackers = {plan.attackers:g} of {clients} clients comes to none of them; it must be "
            f"above {0.5 / clients:.4g}, such as {1 / clients:.4g} for one"
        )
    if plan.attack not in ("label_flip", "backdoor") and method.split.personal == "all":
        raise UsageError(f"{what}: the clients of {method.name} share no weights that could be changed")
    if plan.attack == "backdoor":
        _check_backdoor(dataset, plan.backdoor_target, what)


def _check_backdoor(dataset: Dataset, target: int, what: str) -> None:
    shape, classes = dataset.input_shape, dataset.num_classes
    if len(shape) != 3 or min(shape[1:]) <= PATCH or dataset.x.dtype.kind not in "uf":
        raise UsageError(
            f"{what} puts a patch of {PATCH} by {PATCH} pixels into images, but the inputs have the shape "
            f"{shape}; use label_flip, or images"
        )
    if target >= classes:
        raise UsageError(f"faults.backdoor_target = {target}; classes are 0 to {classes - 1}")


__all__ = ["check_new_options", "check_options"]
