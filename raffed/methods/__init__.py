"""The methods. raffed's own are listed in registry.py; each is a file of this package.

`method_info` also finds users' own methods, by their reference or by an entry point (own.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from raffed.config.run import RunConfig
from raffed.config.validation import Declaration, Value, check_arguments, declarations
from raffed.errors import UnknownNameError
from raffed.methods.authors import AuthorsMethod, is_authors
from raffed.methods.own import GROUP, OwnMethod
from raffed.methods.registry import METHODS, MethodInfo
from raffed.own.gate import entry_points
from raffed.own.names import reference_of, spelled

if TYPE_CHECKING:
    from raffed.core.method import Method


def method_name(text: str) -> str:
    """Return the one spelling of a method's name: small letters, unless it is a reference.

    Raises:
        UsageError: There is no such method; the message lists the nearest of raffed's and of entry points.
    """
    if is_authors(text.strip()):
        return text.strip()
    return spelled("method", text, GROUP, METHODS)


def method_info(name: str) -> MethodInfo | OwnMethod | AuthorsMethod:
    """Return what is known of a method: one of raffed's, an installed package's or an author's.

    Args:
        name: The name as a configuration stores it.

    Raises:
        UsageError: There is no such method.
    """
    if is_authors(name):
        return AuthorsMethod(name)
    reference = reference_of(name, GROUP, METHODS)
    if reference is not None:
        registered = entry_points(GROUP).get(name)
        return OwnMethod(name, reference, registered.package if registered else "")
    if method_name(name) != name:
        raise UnknownNameError("method", name, {*METHODS, *entry_points(GROUP)})
    return METHODS[name]


def known_method(name: str, args: Mapping[str, Value]) -> Method | AuthorsMethod:
    """Return the method with these arguments, or an author's, of which no method is built."""
    info = method_info(name)
    return info if isinstance(info, AuthorsMethod) else build_method(name, args)


def checked_method(config: RunConfig) -> Method | AuthorsMethod:
    """Return the method of a run, after the checks that need no data."""
    method = known_method(config.method, config.args)
    if isinstance(method, AuthorsMethod):
        method.check(config)
    return method


def build_method(name: str, args: Mapping[str, Value] | None = None) -> Method:
    """The method `name` with keyword arguments `args`; raises UsageError for unknown names and values out
    of range.
    """
    info, given = method_info(name), args or {}
    factory = info.load()
    check_arguments(factory, given)
    return replace(info.make(given), strengths=tuple(_strengths(declarations(factory).values(), given)))


def _strengths(arguments: Iterable[Declaration], given: Mapping[str, Value]) -> Iterator[tuple[str, float]]:
    """The coefficients that would be smaller if training diverged, with their values, if these are not 0."""
    for argument in arguments:
        value = given.get(argument.name, argument.default)
        if argument.strength and isinstance(value, str | int | float) and float(value):
            yield argument.name, float(value)


__all__ = ["METHODS", "MethodInfo", "OwnMethod", "build_method", "method_info", "method_name"]
