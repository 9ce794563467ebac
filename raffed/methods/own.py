"""Methods of users' own: the decorator that marks a factory, and what is known of a method by reference.

A factory is a function that returns a `Method`. It may stand in any file or package; docs/design.md §9 says
what a method consists of. This module imports neither torch nor Ray.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, overload

from raffed.config.search_axis import axis_values, named_axes
from raffed.config.source import Described
from raffed.config.validation import Value, check_arguments, check_defaults, checked, declarations
from raffed.errors import UsageError
from raffed.own.resolve import load
from raffed.own.user_code import may_be_called, place_of, user_errors

if TYPE_CHECKING:
    from raffed.core.method import Factory, Method

P = ParamSpec("P")
M = TypeVar("M")
GROUP: Final = "raffed.methods"  # of entry points
_MARK: Final = "__raffed_method__"
Space = Mapping[str, Sequence[Value]]


@dataclass(frozen=True)
class Mark:
    """What `@raffed.method` says about a factory.

    Attributes:
        title: Name in tables.
        source: Who described the method.
        space: Argument → values that `raffed tune` tries, or None.
    """

    title: str = ""
    source: str = ""
    space: Space | None = None


@overload
def method(factory: Callable[P, M], /) -> Callable[P, M]: ...
@overload
def method(
    *, title: str = "", source: str = "", space: Space | None = None
) -> Callable[[Callable[P, M]], Callable[P, M]]: ...
def method(
    factory: Callable[P, M] | None = None, /, *, title: str = "", source: str = "", space: Space | None = None
) -> Callable[P, M] | Callable[[Callable[P, M]], Callable[P, M]]:
    """Mark a function as the factory of a method, and check its arguments in every call.

    The decorator is optional: `raffed run --method ./file.py:NAME` takes any function that returns a
    `Method`.

    Args:
        factory: The function, where the decorator is written without brackets.
        title: Name of the method in tables; without it the name of the function.
        source: Who described the method, such as "my thesis".
        space: Argument, or field of the configuration such as local.lr → values that `raffed tune` tries.

    Returns:
        The function, which refuses values that its signature does not declare.

    Raises:
        UsageError: `space` names an argument that the function does not have, or a value outside its range,
            or a default is outside the range or the choices of its own argument.

    Example:
        @raffed.method(title="MyProx", source="my thesis", space={"mu": [0.001, 0.01, 0.1]})
        def myprox(mu: float = 0.01) -> Method: ...
    """

    def marked(function: Callable[P, M]) -> Callable[P, M]:
        call = checked(function)
        _check_defaults(function)
        for name, axis in named_axes(space or {}, "space").items():
            for value in axis_values(name, axis):
                if "." not in name:
                    check_arguments(function, {name: value})
        setattr(call, _MARK, Mark(title, source, space))
        return call

    return marked if factory is None else marked(factory)


@dataclass(frozen=True)
class OwnMethod:
    """A method outside raffed, as the configuration names it.

    Attributes:
        name: The name in the configuration: an entry point or a reference.
        reference: Where the factory is.
        package: The installed distribution that registers the name, and its version; "" for a reference.
    """

    name: str
    reference: str
    package: str = ""
    _kept: list[Factory] = field(default_factory=list, compare=False, repr=False)

    def load(self) -> Factory:
        """Return the factory.

        Raises:
            UsageError: There is none, or it is not a function that makes a method. Nothing else is ever
                called, since the name may come from a file that a stranger wrote.
        """
        if not self._kept:
            factory = load(self.reference)
            if not isinstance(factory, types.FunctionType) or not _makes_methods(factory):
                kind = "function" if inspect.isroutine(factory) else type(factory).__name__
                raise UsageError(
                    f"method {self.name!r} is a {kind} that is not known to make a method; it must "
                    f"be a function marked with @raffed.method, or one annotated with `-> Method`"
                )
            self._kept.append(factory)
        return self._kept[0]

    def check_found(self) -> None:
        """Import the factory, so that one that does not exist is refused before anything starts."""
        self.load()

    @property
    def mark(self) -> Mark:
        """What the decorator says; empty without one."""
        mark: Mark = getattr(self.load(), _MARK, Mark())
        return mark

    @property
    def title(self) -> str:
        """Name in tables."""
        return self.mark.title or self.reference.rpartition(":")[2]

    @property
    def source(self) -> str:
        """Who described the method."""
        return self.mark.source or self.package or "your own"

    @property
    def idea(self) -> str:
        """One line about it: the first of the docstring."""
        return (inspect.getdoc(self.load()) or "").partition("\n")[0].rstrip(".")

    @property
    def space(self) -> Space | None:
        """What `raffed tune` tries, or None if the factory does not say so."""
        return self.mark.space

    def described(self) -> Described:
        """Return the declared arguments, the docstring of the factory, and that of its file."""
        factory = self.load()
        known = list(declarations(factory).values())
        file = inspect.getmodule(factory)
        return Described(known, inspect.getdoc(factory) or "", inspect.getdoc(file) or "" if file else "")

    def make(self, given: Mapping[str, Value]) -> Method:
        """Return the method with these arguments, which have been checked.

        Raises:
            UsageError: An argument is missing, or what is returned is no `Method`.
            UserCodeError: The factory raised an error.
        """
        from raffed.core.method import Method

        factory = self.load()
        _check_complete(self.name, factory, given)
        with user_errors(self.reference):
            built = factory(**given)
        if not isinstance(built, Method):
            raise UsageError(
                f"method {self.name!r} returned a {type(built).__name__}; it must return a raffed.Method, "
                f"as in `return Method({self.title!r}, terms=(MyTerm(),))`"
            )
        return built


def _check_defaults(function: Callable[P, M]) -> None:
    """Refuse a default outside its own declaration, by the function's file and line.

    A signature that cannot be read yet, because it names what the file defines later, is read when the
    function is used.
    """
    try:
        check_defaults(function)
    except UsageError as error:
        if not isinstance(error.__cause__, NameError):
            raise UsageError(f"{place_of(function)}: {error}") from None


def _makes_methods(factory: types.FunctionType) -> bool:
    """Return whether a function may be called as a factory: it is marked, annotated, or the user's own."""
    return hasattr(factory, _MARK) or may_be_called(factory, "Method")


def _check_complete(name: str, factory: Factory, given: Mapping[str, Value]) -> None:
    by_position = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for arg in inspect.signature(factory).parameters.values():
        if arg.default is inspect.Parameter.empty and arg.name not in given and arg.kind not in by_position:
            raise UsageError(f"method {name!r} needs its argument {arg.name}: give --set {arg.name}=VALUE")
