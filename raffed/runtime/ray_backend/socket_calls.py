"""Calls to the client actors of one's own node by a socket each.

Through Ray it takes 1 to 2 ms from a call to its answer, and several threads of either side take turns for
it; a round of 100 clients with 4,810 weights takes 10 ms in all. Ray starts the actor, pins it, watches it
and says how it ended; one call of its, `serve`, lasts as long as the socket and answers what comes there.
Large arrays lie in memory that both sides map (ray_parcels.py). Sockets stand in folders of this user alone.
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

CallOutcome = Callable[[], Any]  # what came of a call: the answer, or the error that it raises
Answer = tuple[
    tuple[Any, ...], list[Packed]
]  # (number of the call, where an error was raised), and what came of it


class CallId(NamedTuple):
    """A call that was made: to which actor, the how manyth."""

    actor: int
    number: int


class RemoteError(Exception):
    """The cause of an error that was raised in an actor: where it was raised there. Or that error, if it
    cannot travel.
    """


class Serving:
    """An actor that answers its methods' calls at a socket."""

    _listener: Listener
    _folder: Path

    def listen(self) -> str | None:
        """Open the socket; its address, None where there are no such sockets or no room for a name."""
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
        """Answer the calls of whoever connects first, one after the other, until it is gone."""
        with contextlib.closing(SocketEnd(self._listener.accept())) as caller:
            self._listener.close()
            shutil.rmtree(
                self._folder, ignore_errors=True
            )  # both ends have the socket; nothing is left behind by a kill
            with contextlib.suppress(EOFError, OSError):
                while True:
                    self._serve_one(caller)

    def _serve_one(self, caller: SocketEnd) -> None:
        """In a method of its own: what a call brought and what it gave is not held while the actor waits
        for the next.
        """
        (number, name), parcels = caller.receive()
        answer, told = self._answered(name, parcels)
        caller.send((number, told), [answer])

    def _answered(self, name: str, parcels: list[Packed]) -> tuple[Packed, str | None]:
        """The answer as it travels, or the error that the method or the packing raised, and where."""
        try:
            return packed(getattr(self, name)(*[parcel.unpacked() for parcel in parcels])), None
        except Exception as error:  # noqa: BLE001 (raised where the answer is waited for)
            told = traceback.format_exc()
            try:
                parcel = packed(error)
                # An error whose __init__ takes other arguments is packed and never unpacked
                parcel.unpacked()
            except Exception:  # noqa: BLE001 (an error that cannot travel; its text can)
                return packed(RemoteError(f"{type(error).__name__}: {error}")), told
            return parcel, told


class Shared:
    """An argument of several calls, packed once for those by socket, and put into the object store once
    for those through Ray.
    """

    def __init__(self, value: Any, small: bool) -> None:
        """small: whether it goes along with a call of Ray's."""
        self._value, self._small = value, small

    @functools.cached_property
    def parcel(self) -> Packed:
        return packed(self._value)

    @functools.cached_property
    def reference(self) -> Any:
        """The value, or a reference to it."""
        return self._value if self._small else ray.put(self._value)


class SocketCalls:
    """The caller's ends. Answers are read by a thread of their own as they come: an actor never waits to
    be rid of one.
    """

    def __init__(self, actors: Mapping[int, Any]) -> None:
        """Connect to these actors, by number; those that cannot be reached are left to Ray."""
        self._ends: dict[int, SocketEnd] = {}
        self._serving: dict[int, Any] = {}  # `serve` of each: Ray's word on how it ended
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
                self._ends[actor] = SocketEnd(
                    Client(address, family="AF_UNIX")
                )  # before it serves: then it hears nothing else
                self._serving[actor] = handle.serve.remote()
        except (RayError, OSError):
            return  # whatever it is, the next call through Ray tells

    def reaches(self, actor: int) -> bool:
        return actor in self._ends and actor not in self._gone

    def call(self, actor: int, name: str, arguments: tuple[Any, ...]) -> CallId:
        self._calls += 1
        ticket = CallId(actor, self._calls)
        parcels = [
            argument.parcel if isinstance(argument, Shared) else packed(argument) for argument in arguments
        ]
        with contextlib.suppress(OSError):  # it is gone, and the thread that reads its answers says so
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
        """Once the actors have been ended: wait for Ray's word on each, no longer than this in all, and let
        go of it.

                The thread that reads ends when the last socket does, and frees what is only its own by then.
                Ray ends a process, with exit code 1, in which that happens to one of its references while it
                shuts down.
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
            self._ends[actor].close()  # here, not by the thread that reads: `call` may be writing to it
            return
        (number, told), [parcel] = answer
        self._arrived[CallId(actor, number)] = functools.partial(_outcome, parcel.unpacked(), told)

    def _ended(self, actor: int) -> Any:
        """Raise what Ray knows of an actor that is gone."""
        ray.get(self._serving[actor])
        raise ActorsLostError(
            f"client actor {actor} lives on but closed its socket; `raffed resume` continues the run"
        )

    def _read(self, ends: dict[int, SocketEnd]) -> None:
        with DefaultSelector() as ready:
            for actor, end in ends.items():
                ready.register(end, EVENT_READ, actor)
            while ready.get_map():
                for key, _ in ready.select():
                    answer = _received(ends[key.data])
                    if answer is None:
                        ready.unregister(key.fileobj)  # before it is told: a closed one cannot be
                    self._inbox.put((key.data, answer))


def _received(end: SocketEnd) -> Answer | None:
    """The next answer; None at the end, and where there is no memory for it."""
    try:
        return end.receive()
    except (EOFError, OSError, MemoryError):
        return None


def _outcome(value: Any, told: str | None) -> Any:
    if told is None:
        return value
    raise value from RemoteError(told)
