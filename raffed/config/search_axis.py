"""The values that a search tries for one argument. This module imports neither torch nor Ray."""

from __future__ import annotations

from collections.abc import Mapping

from raffed.config.number_range import number_range
from raffed.config.validation import Value
from raffed.errors import UsageError

# Methods whose learning rate is an argument of their own → that argument, and a factor
RATE_ARGUMENTS: Mapping[str, tuple[str, float]] = {
    "perfedavg": ("outer_lr", 1.0),
    "pfedme": ("outer_lr", 1 / 15),  # its step is outer_lr times λ, which is 15 by default
}


def named_axes(space: object, what: str) -> Mapping[str, Value]:
    """Return a search space if it is one: a dict whose keys are names.

    Args:
        space: What was given as a search space.
        what: What the message calls it.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(space, Mapping) and all(isinstance(name, str) for name in space):
        return space
    raise UsageError(
        f"{what} = {space!r}: it must map the names of arguments to values, such as {{'mu': [0.01, 0.1]}}"
    )


def axis_values(keyword: str, axis: Value) -> list[Value]:
    """Return the values of one axis of a grid.

    Args:
        keyword: The argument, or the field of the configuration, for messages.
        axis: A list, a range such as "1e-4..1:log", or what `ray.tune.grid_search` makes of a list.

    Raises:
        UsageError: It is something else, or a list without values.
    """
    if (found := number_range(axis)) is not None:
        return list(found.values())
    if isinstance(axis, Mapping) and set(axis) == {"grid_search"}:
        axis = axis["grid_search"]
    if not isinstance(axis, list | tuple):
        raise UsageError(f"{keyword} = {axis!r}: it must be a list of values, such as [0.01, 0.1]")
    if not axis:
        raise UsageError(f"{keyword} = []: without a value nothing can be tried; name one, or leave it out")
    return list(axis)


__all__ = ["axis_values", "named_axes"]
