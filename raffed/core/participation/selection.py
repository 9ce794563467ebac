"""Draw the participants of a round by a rule (raffed/config/selection.py).

Every draw has its own generator, made from the run's seed and the round. With one seed, the participants are
therefore the same for every method, unless the rule looks at losses, which depend on the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raffed.config.selection import Fixed, PowerOfChoice, RoundRobin, Rule, Size
from raffed.config.validation import Value
from raffed.errors import UsageError

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


def asks_for_losses(rule: OwnRule) -> bool:
    """Return whether a function of the user's own has an argument `losses`."""
    return "losses" in inspect.signature(rule).parameters


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
    made = rule(**{one: getattr(draw, one) for one in GIVEN if one in asked}, **args)
    found = [int(client) for client in made]
    clients = len(draw.sizes)
    if not found or len(set(found)) < len(found) or not all(0 <= one < clients for one in found):
        raise UsageError(
            f"selection {name} returned {found[:10]} in round {draw.round + 1}; it must return one or more "
            f"different clients, as numbers from 0 to {clients - 1}"
        )
    return found


__all__ = ["GIVEN", "Draw", "Losses", "OwnRule", "asks_for_losses", "chosen", "chosen_by_own"]
