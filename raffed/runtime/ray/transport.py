"""How a pool calls its client actors: what every transport must do, and the calls themselves.

There are two transports. `RayCalls` uses Ray's own calls and object store, and works everywhere, also between
nodes. `SocketCalls` uses a socket for each actor of the driver's own node, and Ray for the others. Both give
the same answers and raise the same errors, so the choice changes no bit of a result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import ray

from raffed.runtime.ray.shared_memory import Packed, packed

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

    from raffed.runtime.ray.serving import Serving

    Handle = ActorHandle[Serving]

T = TypeVar("T")
Outcome = Callable[[], T]  # returns the answer of a call, or raises its error


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call of an actor's method whose answer has type T.

    Attributes:
        name: Name of the method.
        arguments: Its arguments. A `Shared` argument arrives as the value that it holds.
    """

    name: str
    arguments: tuple[Any, ...] = ()

    def then(self, last: Any) -> Call[T]:
        """Return the call with one more argument."""
        return Call(self.name, (*self.arguments, last))


@dataclass(frozen=True, eq=False)
class CallId(Generic[T]):
    """A call that was made to an actor, given by its number. Each transport has a class of its own."""

    actor: int


class Shared(Generic[T]):
    """An argument of several calls that is packed only once for sockets, and stored only once for Ray."""

    def __init__(self, value: T, small: bool) -> None:
        """Take the value.

        Args:
            value: The argument.
            small: Whether Ray sends it along with the call and does not use its object store.
        """
        self._value, self._small = value, small

    @functools.cached_property
    def packed(self) -> Packed:
        return packed(self._value)

    @functools.cached_property
    def reference(self) -> T | ObjectRef[T]:
        """Return the value, or a reference to it in Ray's object store."""
        return self._value if self._small else ray.put(self._value)


class Transport(Protocol):
    """Calls to the actors of a pool, by their numbers. One thread uses a transport.

    Laws of every transport (tests/runtime/ray/test_transports.py): an answer belongs to its call, and
    has the bits that the actor returned. An error of the called method is raised as it was there, with a
    `RemoteError` as its cause. The calls that an actor owes when it dies raise Ray's RayActorError. An actor
    that does not answer keeps nobody from the answers of the others.
    """

    def call(self, actor: int, call: Call[T]) -> CallId[T]:
        """Make a call, and return at once.

        Raises:
            BoundaryError, TypeError: An argument is private, or cannot be sent.
        """
        ...

    def first(self, calls: Collection[CallId[T]]) -> tuple[CallId[T], Outcome[T]]:
        """Wait until one of these calls has an outcome, and return both."""
        ...

    def replace(self, actor: int, handle: Handle) -> None:
        """Use another actor for calls with this number from now on."""
        ...

    def close(self) -> None:
        """Release everything that is held for calls, after the actors were ended."""
        ...
