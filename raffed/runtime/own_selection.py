"""The user's own rule of a selection, and what a selection needs to know."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from raffed.config.run import RunConfig
from raffed.config.selection import PowerOfChoice
from raffed.errors import UsageError
from raffed.references.resolve import load

if TYPE_CHECKING:
    from raffed.core.participation.selection import OwnRule


def own_selection(config: RunConfig) -> OwnRule:
    """Return the user's own rule of a selection that is a reference.

    Raises:
        UsageError: It cannot be found, or it is not a function.
    """
    found = load(config.federation.selection)
    if not inspect.isfunction(found):
        raise UsageError(
            f"federation.selection = {config.federation.selection!r} is a {type(found).__name__}, but must "
            "be a function of (round, sizes, count, generator) that returns the numbers of clients"
        )
    return found


def needs_losses(config: RunConfig) -> bool:
    """Return whether the selection looks at the losses of clients, which depend on the present model."""
    rule = config.federation.rule()
    if rule is not None:
        return isinstance(rule, PowerOfChoice)
    from raffed.core.participation.selection import asks_for_losses

    return asks_for_losses(own_selection(config))


__all__ = ["needs_losses", "own_selection"]
