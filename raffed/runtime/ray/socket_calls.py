"""Calls to the client actors of the same node, each through a socket.

Through Ray, a call and its answer take 1 to 2 ms, for which several threads on both sides take turns. A
whole round of 100 clients with 4,810 weights takes 10 ms. Ray starts the actor, pins it, watches it and
reports how it ended. One Ray call, `serve`, lasts as long as the socket and answers what arrives there
(serving.py). Large arrays lie in memory that both sides map (shared_memory.py). The sockets are in folders
that only this user can enter.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing.connection import Client
from queue import SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, NoReturn, TypeVar

import ray
from ray.exceptions import RayError

from raffed.errors import ActorsLostError
from raffed.runtime.ray.ray_calls import RayCallId, RayCalls, answer_of
from raffed.runtime.ray.remote_error import RemoteError
from raffed.runtime.ray.shared_memory import Message, SocketEnd, packed
from raffed.runtime.ray.transport import Call, CallId, Outcome, Shared

if TYPE_CHECKING:
    from raffed.runtime.ray.transport import Handle

T = TypeVar("T")
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
        made: SocketCallId[T] = SocketCallId(actor, next(self._numbers))
        arguments = [one.packed if isinstance(one, Shared) else packed(one) for one in call.arguments]
        with contextlib.suppress(OSError):  # the actor is gone, which the reading thread reports
            self._ends[actor].send((made.number, call.name), arguments)
        return made

    def first(self, calls: Collection[CallId[T]]) -> tuple[CallId[T], Outcome[T]]:
        """Wait until one of these calls has an outcome.

        Calls through Ray are waited for only if no others are left.
        """
        mine = [one for one in calls if isinstance(one, SocketCallId)]
        if not mine:
            return self._others.first(calls)
        while True:
            for one in mine:
                if one.number in self._arrived:
                    return one, partial(_outcome, one, self._arrived.pop(one.number))
                if one.actor in self._gone:
                    return one, partial(self._ended, one.actor)
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
        serving = [one.reference for one in self._serving.values()]
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
    found: T = value
    return found
