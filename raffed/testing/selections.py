"""The contract of a selection: clients that exist, drawn from the generator of the round alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raffed.config.federation import Federation
from raffed.config.selection import FIXED
from raffed.config.validation import Value
from raffed.federation.selection import (
    Draw,
    OwnRule,
    check_own_arguments,
    chosen,
    chosen_by_own,
    own_selection,
)
from raffed.testing.findings import Check, Findings, NotApplicableError, found_by, named, typed
from raffed.testing.generators import global_draws

SIZES = (40, 7, 100, 25, 3, 60, 18, 80, 12, 55)  # training samples of ten clients
COUNTS = (1, 3, len(SIZES))  # participants that a run asks for
ROUNDS = 5


@dataclass(frozen=True)
class SelectionSubject:
    """A selection to be checked."""

    federation: Federation
    own: OwnRule | None

    def drawn(self, round: int, count: int = 3, sizes: Sequence[int] = SIZES, seed: int = 0) -> list[int]:
        """Return the clients of a round; the generator is that of seed and round."""
        generator = np.random.default_rng([seed, round])
        draw = Draw(round, sizes, count, generator, _losses)
        rule = self.federation.rule()
        if rule is not None:
            return chosen(rule, draw)
        assert self.own is not None
        args = self.federation.selection_args
        return chosen_by_own(self.federation.selection, self.own, args, draw)


def check_selection(
    selection: str | OwnRule, args: Mapping[str, Value] | None = None, *, name: str | None = None
) -> Findings:
    """Check a selection: the clients that it chooses, and that nothing but the round's generator decides.

    Args:
        selection: A reference such as "mylab.rules:largest", a name such as "round_robin", or the function.
        args: Its arguments.
        name: What messages call the selection.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such selection, or it does not take these arguments.

    Example:
        >>> check_selection("round_robin").ok
        True
    """
    federation = Federation(selection=typed(selection), selection_args=args or {})
    own = None
    if federation.rule() is None:
        own = own_selection(federation.selection)
        check_own_arguments(federation)
    return found_by(
        SELECTION_CHECKS, SelectionSubject(federation, own), "selection", name or named(selection)
    )


def _losses(clients: Sequence[int]) -> list[float]:
    """Return losses of a model that is worse for some clients; client -1 would be the last one's."""
    return [(7 * client + 3) % 10 / 4 + 0.1 for client in clients]


def _check_any_federation(subject: SelectionSubject) -> None:
    if subject.federation.selection == FIXED:
        raise NotApplicableError("it lists the clients of one federation")


def _exist(subject: SelectionSubject) -> str:
    _check_any_federation(subject)
    for count in COUNTS:
        for round in range(ROUNDS):
            found = subject.drawn(round, count)
            if not found or not all(0 <= one < len(SIZES) for one in found):
                return f"{found} is returned in round {round + 1}; clients are 0 to {len(SIZES) - 1}"
    return ""


def _one_client(subject: SelectionSubject) -> str:
    _check_any_federation(subject)
    subject.drawn(0, 1, SIZES[:1])
    return ""


def _same_seed(subject: SelectionSubject) -> str:
    same = all(subject.drawn(round) == subject.drawn(round) for round in range(ROUNDS))
    return "" if same else "two draws with one generator differ; draw from `generator` only"


def _no_memory(subject: SelectionSubject) -> str:
    forwards = [subject.drawn(round) for round in range(ROUNDS)]
    backwards = [subject.drawn(round) for round in reversed(range(ROUNDS))][::-1]
    if forwards == backwards:
        return ""
    return (
        "the clients depend on the rounds that were drawn before; use `round` and `generator`, since a run "
        "that is resumed asks for later rounds first"
    )


def _generator(subject: SelectionSubject) -> str:
    return global_draws(lambda: [subject.drawn(round) for round in range(ROUNDS)])


def _inputs(subject: SelectionSubject) -> str:
    sizes = list(SIZES)
    subject.drawn(0, sizes=sizes)
    return "" if sizes == list(SIZES) else "it changes the list `sizes` in place; sort a copy of it"


_LOOKS: tuple[tuple[str, str, Callable[[SelectionSubject], str]], ...] = (
    ("clients-exist", "It returns one or more clients that exist, however many are asked for.", _exist),
    ("one-client", "It works with a single client.", _one_client),
    ("same-seed-same-clients", "One generator gives the same clients twice.", _same_seed),
    ("no-memory", "The clients of a round do not depend on the rounds drawn before.", _no_memory),
    ("no-global-generator", "The global random generators are left alone.", _generator),
    ("sizes-unchanged", "The sizes of the clients are not changed.", _inputs),
)
SELECTION_CHECKS: tuple[Check[SelectionSubject], ...] = tuple(Check(*one) for one in _LOOKS)
