"""The contract of a method: what must hold so that a run of it has the same bits everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from raffed.config.validation import Value, check_arguments
from raffed.core.method import Factory, Method
from raffed.testing.factories import named, resolved
from raffed.testing.findings import Findings, found_by
from raffed.testing.method_laws import METHOD_CHECKS
from raffed.testing.method_subject import MethodSubject


def check_method(
    method: str | Factory | Method, args: Mapping[str, Value] | None = None, *, name: str | None = None
) -> Findings:
    """Check a method against the contract that every method of raffed keeps.

    It takes a few seconds: federations of 4 clients are trained in memory.

    Args:
        method: A reference such as "mylab.methods:myprox", a name such as "fedprox", a factory, or a
            finished `Method`.
        args: Arguments of the factory; the others have their defaults.
        name: What messages call the method.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such method, or it does not take these arguments.

    Example:
        >>> check_method("fedprox", {"mu": 0.1}).ok
        True
    """
    found = method_of(method)
    if isinstance(found, Method):
        subject = MethodSubject(None, {}, found)
    else:
        check_arguments(found, args or {})
        subject = MethodSubject(found, dict(args or {}))
    return found_by(METHOD_CHECKS, subject, "method", name or named(method))


def method_of(method: str | Factory | Method) -> Factory | Method:
    """Return the factory or the recipe behind a name or a reference."""
    from raffed.methods import METHODS

    if isinstance(method, str) and method.strip().lower() in METHODS:
        return METHODS[method.strip().lower()].load()
    return resolved(method) if isinstance(method, str) else method


__all__ = ["check_method", "method_of"]
