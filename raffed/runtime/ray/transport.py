"""How a pool calls its client actors: by socket on the driver's own node, and through Ray on other nodes.

There are two transports. `RayCalls` uses Ray's own calls and object store, and works everywhere.
`SocketCalls` uses a socket for each actor of the driver's own node, and Ray for the others. Both give
the same answers and raise the same errors, so the choice changes no bit of a result.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing.connection import Client
from queue import SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError, UnserializableException

from raffed.errors import ActorsLostError
from raffed.runtime.placement import INLINE_BYTES
from raffed.runtime.ray.serving import SHARES, Message, Packed, RemoteError, Serving, SocketEnd, packed

Handle: TypeAlias = "ActorHandle[Serving]"

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


# Calls to client actors through Ray's own calls and object store, also to those of other nodes.


IDLE_SECONDS = 10.0  # without an answer, before `idle` is called


@dataclass(frozen=True, eq=False)
class RayCallId(CallId[T]):
    """A call through Ray, with the reference to its answer."""

    reference: ObjectRef[T]


class RayCalls:
    """A `Transport` through Ray. If nothing arrives for some time, `idle` is called, again and again."""

    def __init__(self, actors: Mapping[int, Handle], idle: Callable[[], None] = lambda: None) -> None:
        """Call these actors, by number."""
        self._actors, self._idle = dict(actors), idle

    def call(self, actor: int, call: Call[T]) -> RayCallId[T]:
        given = [value.reference if isinstance(value, Shared) else value for value in call.arguments]
        return RayCallId(actor, getattr(self._actors[actor], call.name).remote(*given))

    def first(self, calls: Collection[CallId[T]]) -> tuple[CallId[T], Outcome[T]]:
        waiting = {call.reference: call for call in calls if isinstance(call, RayCallId)}
        while not (arrived := ray.wait(list(waiting), num_returns=1, timeout=IDLE_SECONDS)[0]):
            self._idle()
        return waiting[arrived[0]], partial(answer_of, arrived[0])

    def replace(self, actor: int, handle: Handle) -> None:
        self._actors[actor] = handle

    def close(self) -> None:
        """Nothing is held here."""


def answer_of(reference: ObjectRef[T]) -> T:
    """Return an answer, or raise the error of the method as it was there.

    Ray raises a mixture of that error and its own, whose text is the traceback.
    """
    try:
        return ray.get(reference)
    except UnserializableException as error:  # its class cannot be rebuilt in this process
        raise _in_words(str(error)) from RemoteError(str(error))
    except RayTaskError as error:
        there = RemoteError(str(error))
        if isinstance(error.cause, RayError):  # Ray's replacement for an error that cannot be sent
            raise _in_words(error.traceback_str) from there
        if isinstance(error.cause, Exception):
            raise error.cause from there
        raise


def _in_words(traceback: str) -> RemoteError:
    """Return an error with the last line of a traceback, which is the error that was raised there."""
    return RemoteError(traceback.strip().splitlines()[-1])


# Calls to the client actors of the same node, each through a socket.
#
# Through Ray, a call and its answer take 1 to 2 ms, for which several threads on both sides take turns. A
# whole round of 100 clients with 4,810 weights takes 10 ms. Ray starts the actor, pins it, watches it and
# reports how it ended. One Ray call, `serve`, lasts as long as the socket and answers what arrives there
# (serving.py). Large arrays lie in memory that both sides map (shared_memory.py). The sockets are in
# folders that only this user can enter.


SETTLE_SECONDS = 10.0  # longest time to wait for Ray's report about actors that were ended


@dataclass(frozen=True, eq=False)
class SocketCallId(CallId[T]):
    """A call through a socket, with the number that its answer bears."""

    number: int


class SocketCalls:
    """A `Transport` by sockets.

    Actors that have no socket are called through Ray: those of other nodes, and those that replaced another.
    A thread reads answers as they arrive, so an actor never has to wait until its answer is taken.
    """

    def __init__(self, others: RayCalls, actors: Collection[int]) -> None:
        """Connect to these actors.

        Args:
            others: Calls all actors through Ray. Calls that were made there can be waited for here.
            actors: Numbers of the actors that are asked for a socket.
        """
        self._others = others
        self._ends: dict[int, SocketEnd] = {}
        # The call of `serve` of each actor, by which Ray reports how it ended
        self._serving: dict[int, RayCallId[None]] = {}
        self._inbox: SimpleQueue[tuple[int, Message | None]] = SimpleQueue()
        self._numbers = count(1)
        self._arrived: dict[int, Message] = {}
        self._gone: set[int] = set()
        self.without: set[int] = set()  # actors that live, but could not be connected to
        for actor in actors:
            self._connect(actor)
        threading.Thread(
            target=self._read, args=(dict(self._ends),), name="raffed-channels", daemon=True
        ).start()

    def _connect(self, actor: int) -> None:
        try:
            address = answer_of(self._others.call(actor, Call[str | None]("listen")).reference)
            if address is None:
                self.without.add(actor)
                return
            # Asked before it serves, because it then answers no other Ray call
            self._ends[actor] = SocketEnd(Client(address, family="AF_UNIX"))
            self._serving[actor] = self._others.call(actor, Call[None]("serve"))
        except OSError:
            self.without.add(actor)
        except RayError:
            return  # the next call through Ray reports the cause

    def reaches(self, actor: int) -> bool:
        """Return whether calls to this actor take a socket."""
        return actor in self._ends and actor not in self._gone

    def call(self, actor: int, call: Call[T]) -> CallId[T]:
        if not self.reaches(actor):
            return self._others.call(actor, call)
        call_id: SocketCallId[T] = SocketCallId(actor, next(self._numbers))
        arguments = [value.packed if isinstance(value, Shared) else packed(value) for value in call.arguments]
        with contextlib.suppress(OSError):  # the actor is gone, which the reading thread reports
            self._ends[actor].send((call_id.number, call.name), arguments)
        return call_id

    def first(self, calls: Collection[CallId[T]]) -> tuple[CallId[T], Outcome[T]]:
        """Wait until one of these calls has an outcome.

        Calls through Ray are waited for only if no others are left.
        """
        mine = [call for call in calls if isinstance(call, SocketCallId)]
        if not mine:
            return self._others.first(calls)
        while True:
            for call in mine:
                if call.number in self._arrived:
                    return call, partial(_outcome, call, self._arrived.pop(call.number))
                if call.actor in self._gone:
                    return call, partial(self._ended, call.actor)
            self._take(*self._inbox.get())

    def replace(self, actor: int, handle: Handle) -> None:
        self._gone.add(actor)
        self._others.replace(actor, handle)

    def close(self) -> None:
        """Wait for Ray's report about each actor after the actors were ended.

        The thread that reads ends with the last socket, and then frees what only it holds. If that happens to
        a Ray reference while Ray shuts down, Ray ends the process with exit code 1. So the references are
        released here.
        """
        serving = [call.reference for call in self._serving.values()]
        if serving:
            ray.wait(serving, num_returns=len(serving), timeout=SETTLE_SECONDS, fetch_local=False)
        self._serving.clear()
        self._others.close()

    def _take(self, actor: int, answer: Message | None) -> None:
        if answer is None:
            self._gone.add(actor)
            # Closed here and not by the reading thread, because `call` may be writing to it
            self._ends[actor].close()
            return
        (number, _), _ = answer
        self._arrived[number] = answer

    def _ended(self, actor: int) -> NoReturn:
        """Raise the error by which Ray describes how an actor ended."""
        answer_of(self._serving[actor].reference)
        raise ActorsLostError(
            f"client actor {actor} is alive but has closed its socket; `raffed resume` continues the run"
        )

    def _read(self, ends: dict[int, SocketEnd]) -> None:
        with DefaultSelector() as ready:
            for actor, end in ends.items():
                ready.register(end, EVENT_READ, actor)
            while ready.get_map():
                for key, _ in ready.select():
                    answer = _received(ends[key.data])
                    if answer is None:
                        # Before the end is reported, because a closed socket cannot be unregistered
                        ready.unregister(key.fileobj)
                    self._inbox.put((key.data, answer))


def _received(end: SocketEnd) -> Message | None:
    """Return the next answer, or None at the end or if there is no memory for it."""
    try:
        return end.receive()
    except (EOFError, OSError, MemoryError):
        return None


def _outcome(call: CallId[T], answer: Message) -> T:
    """Return the value of the answer to a call, or raise the error that it holds."""
    (_, told), [packed_value] = answer
    value = packed_value.unpacked()
    if told is not None:
        raise value from RemoteError(told)
    returned: T = value
    return returned


# Choose how the actors of a run are called.


log = logging.getLogger(__name__)


def opened(through_ray: RayCalls, near: Collection[int], far: Collection[int], size: int) -> Transport:
    """Return the transport for the actors of a pool, and log which one it is.

    Each actor of the driver's node is called by a socket. Without shared memory, a large broadcast would be
    copied for every actor, so Ray then calls all of them.

    Args:
        through_ray: Calls all actors through Ray.
        near: Numbers of the actors on the driver's node.
        far: Numbers of the actors on other nodes.
        size: Bytes of a broadcast.
    """
    if not SHARES and size > INLINE_BYTES:
        log.info("client actors are called through Ray")
        return through_ray
    sockets = SocketCalls(through_ray, near)
    if sockets.without:
        log.warning(
            "no socket could be opened to client actors %s: they are called through Ray, which is slower",
            ", ".join(map(str, sorted(sockets.without))),
        )
    reached = sum(map(sockets.reaches, near))
    log.info("%d client actors are called by socket, %d through Ray", reached, len(near) + len(far) - reached)
    return sockets
