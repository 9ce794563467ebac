"""Draw the participants of a round by a rule (raffed/config/federation.py) or by a function of the user's.

Every draw has its own generator, made from the run's seed and the round. With one seed, the participants are
therefore the same for every method, unless the rule looks at losses, which depend on the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raffed.config.federation import UNIFORM, Federation, Fixed, PowerOfChoice, RoundRobin, Rule, Size
from raffed.config.run import RunConfig
from raffed.config.sections import Clock, Privacy
from raffed.config.validation import Value, check_call
from raffed.core.method import Method
from raffed.core.server import Mean
from raffed.errors import UsageError
from raffed.own.resolve import load
from raffed.own.user_code import may_be_called

# What the functions of an installed package must be declared to return
CLIENTS = ("list[int]", "Sequence[int]")
Losses = Callable[[Sequence[int]], Sequence[float]]
OwnRule = Callable[..., Sequence[int]]
GIVEN = ("round", "sizes", "count", "generator", "losses")  # what a rule of one's own may ask for, by name


@dataclass(frozen=True)
class Draw:
    """What a rule knows when it draws the participants of a round.

    Attributes:
        round: Number of the draw, counted from 0. It is the number of the round, unless several rounds share
            one draw.
        sizes: Training samples of each client [N] in this round.
        count: Number of participants that the run asks for.
        generator: Random numbers of this draw.
        losses: Function from clients to the losses of the present model on their training samples.
    """

    round: int
    sizes: Sequence[int]
    count: int
    generator: np.random.Generator
    losses: Losses


def chosen(rule: Rule, draw: Draw) -> list[int]:
    """Return the clients that a rule draws. A client that is drawn twice stands there twice.

    Args:
        rule: The rule with its arguments.
        draw: What it knows.
    """
    clients = len(draw.sizes)
    if isinstance(rule, Size):
        return _by_size(draw, draw.count, rule.replacement)
    if isinstance(rule, PowerOfChoice):
        candidates = sorted(_by_size(draw, rule.number(draw.count, clients), replacement=False))
        losses = draw.losses(candidates)
        order = sorted(range(len(candidates)), key=lambda i: (-losses[i], candidates[i]))
        return [candidates[i] for i in order[: draw.count]]
    if isinstance(rule, RoundRobin):
        return [(draw.round * draw.count + i) % clients for i in range(draw.count)]
    if isinstance(rule, Fixed):
        listed = rule.rounds()
        return list(listed[draw.round % len(listed)])
    return [int(client) for client in draw.generator.permutation(clients)[: draw.count]]


def _by_size(draw: Draw, count: int, replacement: bool) -> list[int]:
    """Draw clients in proportion to their sizes.

    Without replacement, each next client is drawn among those left. Exponential waiting times at the rates
    n_k have this order of arrival.
    """
    sizes = np.asarray(draw.sizes, np.int64)
    if replacement:  # in whole numbers, so that no rounding can matter
        tickets = draw.generator.integers(int(sizes.sum()), size=count)
        return [int(client) for client in np.searchsorted(np.cumsum(sizes), tickets, side="right")]
    with np.errstate(divide="ignore"):  # a client without samples arrives last
        times = draw.generator.standard_exponential(len(sizes)) / sizes
    return [int(client) for client in np.argsort(times, kind="stable")[:count]]


def chosen_by_own(name: str, rule: OwnRule, args: Mapping[str, Value], draw: Draw) -> list[int]:
    """Return the clients that a function of the user's own chooses.

    Args:
        name: Its reference, for messages.
        rule: The function. It gets those of `round`, `sizes`, `count`, `generator` and `losses` that its
            signature names.
        args: Its further arguments.
        draw: What it knows.

    Raises:
        UsageError: It did not return at least one client, or a number that is not a client or stands there
            twice.
    """
    asked = inspect.signature(rule).parameters
    answer = rule(**{argument: getattr(draw, argument) for argument in GIVEN if argument in asked}, **args)
    chosen = [int(client) for client in answer]
    clients = len(draw.sizes)
    if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= client < clients for client in chosen):
        raise UsageError(
            f"selection {name} returned {chosen[:10]} in round {draw.round + 1}; it must return one or more "
            f"different clients, as numbers from 0 to {clients - 1}"
        )
    return chosen


def own_selection(selection: str) -> OwnRule:
    """Return the user's own rule of a selection that is a reference.

    Raises:
        UsageError: It cannot be found, it is not a function, or it is one of Python or of a library.
    """
    rule = load(selection)
    if not inspect.isfunction(rule):
        raise UsageError(
            f"federation.selection = {selection!r} is a {type(rule).__name__}, but must "
            "be a function of (round, sizes, count, generator) that returns the numbers of clients"
        )
    if not may_be_called(rule, *CLIENTS):
        raise UsageError(
            f"federation.selection = {selection!r} is a function of an installed package "
            "that is not declared to return list[int]; write a function of yours that calls it"
        )
    return rule


def check_own_arguments(federation: Federation) -> None:
    """Check that a rule of the user's own has the arguments that it is given, and no others.

    Raises:
        UsageError: It has no such argument, an argument has a wrong value, or one is missing.
    """
    rule = own_selection(federation.selection)
    check_call(federation.selection, rule, GIVEN, federation.selection_args, "--selection-arg")


def needs_losses(federation: Federation) -> bool:
    """Return whether the selection looks at the losses of clients, which depend on the present model."""
    rule = federation.rule()
    if rule is not None:
        return isinstance(rule, PowerOfChoice)
    return "losses" in inspect.signature(own_selection(federation.selection)).parameters


def check_selection(
    federation: Federation,
    privacy: Privacy,
    method: str,
    mean: Mean,
    trainable: Sequence[int],
    *,
    one_draw: bool,
) -> None:
    """Check the selection of a run.

    Args:
        federation: The section `federation`.
        privacy: The section `privacy`.
        method: Name of the method.
        mean: The mean that the run asks for.
        trainable: The clients that may train.
        one_draw: Whether several rounds share one draw, as with stages that are visited in turn.

    Raises:
        UsageError: It is not possible, or would have no effect.
    """
    clients = len(trainable)
    rule = federation.rule()
    what = f"federation.selection = {federation.selection!r}"
    if rule is None:
        check_own_arguments(federation)
    else:
        _check_rule(federation, method, mean, rule, trainable)
    if privacy.noise and federation.selection != "uniform":
        raise UsageError(
            f"{what}: privacy.noise computes ε for participants drawn uniformly; leave one of them out"
        )
    if needs_losses(federation) and one_draw:
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


def check_named(what: str, clients: Collection[int], trainable: Sequence[int]) -> None:
    """Raise a UsageError if a setting, `what`, names a client that never trains."""
    if others := sorted(set(clients) - set(trainable)):
        raise UsageError(
            f"{what} names client {others[-1]}, which is not one of those that train; these are "
            f"{len(trainable)} clients, from {trainable[0]} to {trainable[-1]}"
        )


def _check_rule(
    federation: Federation, method: str, mean: Mean, rule: Rule, trainable: Sequence[int]
) -> None:
    what = f"federation.selection = {federation.selection!r}"
    if isinstance(rule, Fixed):
        check_named(what, {client for listed in rule.rounds() for client in listed}, trainable)
        if federation.participation != 1.0:
            raise UsageError(
                f"federation.participation = {federation.participation:g} has no effect with {what}, which "
                "lists the participants; leave it out"
            )
    if rule.repeats() and (mean.fixed or mean.rule is not None):
        why = f"{method} requires its own weights" if mean.fixed else "of the robust mean"
        raise UsageError(
            f"{what} may draw a client twice, which is not possible here ({why}); give --selection-arg "
            "replacement=false, or use another selection"
        )


# Checks of the virtual clock of a run against its method, its data and its other options.


def check_clock(clock: Clock, federation: Federation, clients: int, trainable: Sequence[int]) -> None:
    """Check the virtual clock of a run.

    Args:
        clock: The section `clock` of the run.
        federation: The section `federation`.
        clients: Number N of all clients.
        trainable: The clients that may train.

    Raises:
        UsageError: It does not fit the rest of the run.
    """
    clock.check_together()
    if clock.speeds == "trace":
        clock.traced(clients)
    if clock.speeds and needs_losses(federation):
        raise UsageError(
            f"clock.speeds = {clock.speeds!r}: the clock must know all participants beforehand, and "
            f"federation.selection = {federation.selection!r} chooses them by their losses; leave one "
            "of the two out"
        )
    if not clock.asynchronous:
        return
    at_once = federation.participants(len(trainable))
    if clock.buffer > at_once:
        raise UsageError(
            f"clock.buffer = {clock.buffer} is more than the {at_once} clients that train at a time; lower "
            "--buffer, or raise --participation"
        )


def check_waiting(config: RunConfig, method: Method, in_stages: bool) -> None:
    """Refuse a server that does not wait for all participants, where the rest of the run needs it to.

    Args:
        config: The run's configuration.
        method: Its method, with the mean that the run asks for.
        in_stages: Whether the data come in stages.

    Raises:
        UsageError: The server must wait.
    """
    what = f"clock.server = {config.clock.server!r}"
    if method.split.personal == "all":
        raise UsageError(f"{what}: the clients of {method.name} upload no weights; leave it out")
    if method.keeps_uploads or method.mean.reweighting is not None or method.mean.fixed:
        raise UsageError(
            f"{what}: {method.name} needs the uploads of a whole round or the weights of their mean, so its "
            "server must wait; leave it out, or use another method"
        )
    refused = {
        "another selection than uniform": config.federation.selection != UNIFORM,
        "data in stages": in_stages,
        "epochs that are drawn (local.epochs_to)": bool(config.local.epochs_to),
        "a plan of faults": config.faults.any,
        "clipping, noise or masks": config.privacy.clip is not None or config.privacy.masks,
    }
    if obstacle := next((name for name, given in refused.items() if given), ""):
        raise UsageError(f"{what}: it does not go together with {obstacle}; leave one of the two out")
