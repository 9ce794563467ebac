"""Calls to the client actors of the same node, each through a socket.

Through Ray, a call and its answer take 1 to 2 ms, for which several threads on both sides take turns. A whole
round of 100 clients with 4,810 weights takes 10 ms. Ray starts the actor, pins it, watches it and reports how
it ended. One Ray call, `serve`, lasts as long as the socket and answers what arrives there. Large arrays lie
in memory that both sides map (shared_memory.py). The sockets are in folders that only this user can enter.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import threading
import traceback
from collections.abc import Callable, Collection, Mapping
from multiprocessing.connection import Client, Listener
from pathlib import Path
from queue import SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError

from raffed.errors import ActorsLostError
from raffed.runtime.ray_backend.private_folder import NoFolderError, private_folder
from raffed.runtime.ray_backend.shared_memory import Packed, SocketEnd, packed

CallOutcome = Callable[[], Any]  # returns the answer of a call, or raises its error
# (number of the call, traceback of an error), and the packed answer
Answer = tuple[tuple[Any, ...], list[Packed]]


class CallId(NamedTuple):
    """Identifies a call: the number of the actor, and the number of the call to it."""

    actor: int
    number: int


class RemoteError(Exception):
    """The place in an actor at which an error was raised, as the cause of that error.

    If an error cannot be sent, this error replaces it.
    """


class Serving:
    """An actor that answers calls of its methods at a socket."""

    _listener: Listener
    _folder: Path

    def listen(self) -> str | None:
        """Open the socket and return its address.

        Returns None if the system has no such sockets, or no folder for one.
        """
        try:
            self._folder = private_folder(len("/calls"), "RAY_TMPDIR")
        except NoFolderError:
            return None
        try:
            self._listener = Listener(str(self._folder / "calls"), family="AF_UNIX")
        except (OSError, ValueError):
            shutil.rmtree(self._folder, ignore_errors=True)
            return None
        return str(self._listener.address)

    def serve(self) -> None:
        """Answer the calls of whoever connects first, one after the other, until the caller is gone."""
        with contextlib.closing(SocketEnd(self._listener.accept())) as caller:
            self._listener.close()
            shutil.rmtree(
                self._folder, ignore_errors=True
            )  # both ends are connected, so a kill leaves nothing behind
            with contextlib.suppress(EOFError, OSError):
                while True:
                    self._serve_one(caller)

    def _serve_one(self, caller: SocketEnd) -> None:
        """Answer one call.

        This is a separate method, so that arguments and answer are not held while the actor waits for the
        next call.
        """
        (number, name), parcels = caller.receive()
        answer, told = self._answered(name, parcels)
        caller.send((number, told), [answer])

    def _answered(self, name: str, parcels: list[Packed]) -> tuple[Packed, str | None]:
        """Return the packed answer, or the packed error that was raised and its traceback."""
        try:
            return packed(getattr(self, name)(*[parcel.unpacked() for parcel in parcels])), None
        except Exception as error:  # noqa: BLE001 (raised to whoever waits for the answer)
            told = traceback.format_exc()
            try:
                parcel = packed(error)
                # An error whose __init__ takes other arguments can be packed, but not unpacked
                parcel.unpacked()
            except Exception:  # noqa: BLE001 (the error cannot be sent, but its text can)
                return packed(RemoteError(f"{type(error).__name__}: {error}")), told
            return parcel, told


class Shared:
    """An argument of several calls that is packed only once for sockets, and stored only once for Ray."""

    def __init__(self, value: Any, small: bool) -> None:
        """Take the value.

        Args:
            value: The argument.
            small: Whether Ray sends it along with the call and does not use its object store.
        """
        self._value, self._small = value, small

    @functools.cached_property
    def parcel(self) -> Packed:
        return packed(self._value)

    @functools.cached_property
    def reference(self) -> Any:
        """Return the value, or a reference to it in Ray's object store."""
        return self._value if self._small else ray.put(self._value)


class SocketCalls:
    """The caller's ends of the sockets.

    A thread reads answers as they arrive, so an actor never has to wait until its answer is taken.
    """

    def __init__(self, actors: Mapping[int, Any]) -> None:
        """Connect to these actors, by number. Actors that cannot be reached are called through Ray."""
        self._ends: dict[int, SocketEnd] = {}
        self._serving: dict[int, Any] = {}  # the call of `serve` of each, by which Ray reports how it ended
        self._inbox: SimpleQueue[tuple[int, Answer | None]] = SimpleQueue()
        self._arrived: dict[CallId, CallOutcome] = {}
        self._gone: set[int] = set()
        self._calls = 0
        for actor, handle in actors.items():
            self._connect(actor, handle)
        threading.Thread(
            target=self._read, args=(dict(self._ends),), name="raffed-channels", daemon=True
        ).start()

    def _connect(self, actor: int, handle: Any) -> None:
        try:
            address = ray.get(handle.listen.remote())
            if address is not None:
                # Asked before it serves, because it then answers no other Ray call
                self._ends[actor] = SocketEnd(Client(address, family="AF_UNIX"))
                self._serving[actor] = handle.serve.remote()
        except (RayError, OSError):
            return  # the next call through Ray reports the cause

    def reaches(self, actor: int) -> bool:
        return actor in self._ends and actor not in self._gone

    def call(self, actor: int, name: str, arguments: tuple[Any, ...]) -> CallId:
        self._calls += 1
        ticket = CallId(actor, self._calls)
        parcels = [
            argument.parcel if isinstance(argument, Shared) else packed(argument) for argument in arguments
        ]
        with contextlib.suppress(OSError):  # the actor is gone, which the reading thread reports
            self._ends[actor].send((ticket.number, name), parcels)
        return ticket

    def first(self, tickets: Collection[CallId]) -> tuple[CallId, CallOutcome]:
        """Wait until one of these calls has an outcome."""
        while True:
            for ticket in tickets:
                if ticket in self._arrived:
                    return ticket, self._arrived.pop(ticket)
                if ticket.actor in self._gone:
                    return ticket, functools.partial(self._ended, ticket.actor)
            self._take(*self._inbox.get())

    def settle(self, seconds: float = 10.0) -> None:
        """Wait for Ray's report about each actor after the actors were ended.

        The thread that reads ends with the last socket, and then frees what only it holds. If that happens to
        a Ray reference while Ray shuts down, Ray ends the process with exit code 1. So the references are
        released here.

        Args:
            seconds: Longest time to wait, for all actors together.
        """
        if self._serving:
            ray.wait(
                list(self._serving.values()),
                num_returns=len(self._serving),
                timeout=seconds,
                fetch_local=False,
            )
        self._serving.clear()

    def _take(self, actor: int, answer: Answer | None) -> None:
        if answer is None:
            self._gone.add(actor)
            self._ends[
                actor
            ].close()  # closed here and not by the reading thread, because `call` may be writing to it
            return
        (number, told), [parcel] = answer
        self._arrived[CallId(actor, number)] = functools.partial(_outcome, parcel.unpacked(), told)

    def _ended(self, actor: int) -> Any:
        """Raise the error by which Ray describes how an actor ended."""
        ray.get(self._serving[actor])
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
                        ready.unregister(
                            key.fileobj
                        )  # before the end is reported, because a closed socket cannot be unregistered
                    self._inbox.put((key.data, answer))


def _received(end: SocketEnd) -> Answer | None:
    """Return the next answer, or None at the end or if there is no memory for it."""
    try:
        return end.receive()
    except (EOFError, OSError, MemoryError):
        return None


def _outcome(value: Any, told: str | None) -> Any:
    if told is None:
        return value
    raise value from RemoteError(told)
