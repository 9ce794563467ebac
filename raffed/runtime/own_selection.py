"""The user's own rule of a selection, and what a selection needs to know."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from raffed.config.run import RunConfig
from raffed.config.selection import PowerOfChoice
from raffed.errors import UnknownNameError, UsageError
from raffed.references.resolve import load
from raffed.references.user_code import may_be_called

if TYPE_CHECKING:
    from raffed.core.participation.selection import OwnRule

CLIENTS = (
    "list[int]",
    "Sequence[int]",
)  # what the functions of an installed package must be declared to return


def own_selection(config: RunConfig) -> OwnRule:
    """Return the user's own rule of a selection that is a reference.

    Raises:
        UsageError: It cannot be found, it is not a function, or it is one of Python or of a library.
    """
    found = load(config.federation.selection)
    if not inspect.isfunction(found):
        raise UsageError(
            f"federation.selection = {config.federation.selection!r} is a {type(found).__name__}, but must "
            "be a function of (round, sizes, count, generator) that returns the numbers of clients"
        )
    if not may_be_called(found, *CLIENTS):
        raise UsageError(
            f"federation.selection = {config.federation.selection!r} is a function of an installed package "
            "that is not declared to return list[int]; write a function of yours that calls it"
        )
    return found


def check_own_arguments(config: RunConfig) -> None:
    """Check that a rule of the user's own has the arguments that it is given, and no others.

    Raises:
        UnknownNameError: It has no such argument.
    """
    from raffed.core.participation.selection import GIVEN

    federation = config.federation
    known = inspect.signature(own_selection(config)).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
    for name in federation.selection_args:
        if name in GIVEN or (name not in known and not takes_all):
            raise UnknownNameError(
                f"argument of {federation.selection}", name, [one for one in known if one not in GIVEN]
            )


def needs_losses(config: RunConfig) -> bool:
    """Return whether the selection looks at the losses of clients, which depend on the present model."""
    rule = config.federation.rule()
    if rule is not None:
        return isinstance(rule, PowerOfChoice)
    from raffed.core.participation.selection import asks_for_losses

    return asks_for_losses(own_selection(config))


__all__ = ["check_own_arguments", "needs_losses", "own_selection"]
