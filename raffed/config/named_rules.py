"""Rules that a run chooses by name and that have arguments of their own, such as a robust mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from raffed.config.validation import Value, check_values, declarations
from raffed.errors import UsageError

T = TypeVar("T")


def settled_arguments(
    field: str, rules: Mapping[str, Callable[..., T]], name: str, given: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the arguments of a rule in one spelling.

    Args:
        field: The field of the section `federation` that names the rule. Its option has the same name.
        rules: Name → rule, whose parameters are its arguments.
        name: A key of `rules`, or "" for no rule.
        given: The arguments as they were given.

    Raises:
        UnknownNameError: The rule has no such argument.
        UsageError: An argument has another type or is outside its range, or there is no rule for it.
    """
    if not name:
        if given:
            raise UsageError(
                f"federation.{field}_args = {dict(given)} has no effect without federation.{field}; give "
                f"--{field} too"
            )
        return {}
    return check_values(f"{field} {name}", declarations(rules[name]), given)


__all__ = ["settled_arguments"]
