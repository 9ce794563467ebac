"""Answer calls of an actor's methods through a socket, with large arrays in shared memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import socket
import traceback
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from pickle import PickleBuffer
from typing import Any, NamedTuple

from ray import cloudpickle

from raffed.scratch import socket_folder

# The error that names the place in an actor at which an error was raised.


class RemoteError(Exception):
    """The place in an actor at which an error was raised, as the cause of that error.

    If an error cannot be sent, this error replaces it.
    """


# Values that are sent between processes of one node: a pickle, and shared memory for large arrays.
#
# The memory has no name (memfd_create(2)) and is freed with its last descriptor and map, so a killed
# process leaves nothing behind. What is received is read in place and cannot be written to, as with Ray's
# object store.


ASIDE = 1 << 16  # arrays with at least this many bytes are sent beside the pickle
SHARES = hasattr(os, "memfd_create") and hasattr(socket, "send_fds")  # Linux
_ALIGN = 64
MAX_MAPS = 64  # maps that are read in place; each holds a descriptor, and a process may have about 1,000
# All pages at once, because a page fault takes longer than copying the page
_MAPPED = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
held_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class MappedMemory:
    """Shared memory with its descriptor, which is closed with this object."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @staticmethod
    def holding(parts: Sequence[memoryview], places: Sequence[tuple[int, int]]) -> MappedMemory:
        """Return new memory with these parts at these places, each given as (offset, length).

        Raises:
            OSError: No memory is left.
        """
        memory = MappedMemory(os.memfd_create("raffed", os.MFD_CLOEXEC))
        os.ftruncate(memory.descriptor, sum(places[-1]))
        for part, (at, length) in zip(parts, places, strict=True):
            done = 0
            while done < length:
                done += os.pwrite(memory.descriptor, part[done:], at + done)
        return memory

    def parts(self, places: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return what lies at these places, read-only.

        It is read in place, or copied if many received values are still held.
        """
        room = self._mapped(sum(places[-1])) if len(held_maps) < MAX_MAPS else self._copied(sum(places[-1]))
        return [room[at : at + length] for at, length in places]

    def _mapped(self, size: int) -> memoryview:
        room = mmap.mmap(self.descriptor, size, flags=_MAPPED, prot=mmap.PROT_READ)
        held_maps.add(room)
        return memoryview(room)

    def _copied(self, size: int) -> memoryview:
        room, done = bytearray(size), 0
        while done < size:
            done += os.preadv(self.descriptor, [memoryview(room)[done:]], done)
        return memoryview(room).toreadonly()


class Packed(NamedTuple):
    """A packed value: its pickle, the memory for large arrays, and their places in it."""

    body: bytes
    places: tuple[tuple[int, int], ...] = ()
    memory: MappedMemory | None = None

    def unpacked(self) -> Any:
        return cloudpickle.loads(
            self.body, buffers=() if self.memory is None else self.memory.parts(self.places)
        )


# (number of the call, name of the method or the traceback of an error), and the packed values
Message = tuple[tuple[int, str | None], list[Packed]]


def packed(value: Any) -> Packed:
    """Pack a value as Ray does, with classes of the user's own script by value.

    Arrays of at least ASIDE bytes are put into shared memory.
    """
    aside: list[memoryview] = []

    def stays(buffer: PickleBuffer) -> bool:
        raw = buffer.raw()
        if SHARES and raw.nbytes >= ASIDE:
            aside.append(raw)
            return False
        return True

    body: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=stays)  # type: ignore[no-untyped-call]
    if not aside:
        return Packed(body)
    places, at = [], 0
    for part in aside:
        places.append((at, part.nbytes))
        at += -(-part.nbytes // _ALIGN) * _ALIGN
    return Packed(body, tuple(places), MappedMemory.holding(aside, places))


class SocketEnd:
    """One end of a socket, for messages that consist of a head and packed values."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # Descriptors are sent by a call that connections do not have
        self._beside = socket.socket(fileno=os.dup(connection.fileno()))

    def send(self, head: tuple[int, str | None], values: Sequence[Packed]) -> None:
        """Send a message.

        Raises:
            OSError: The other end is gone, or the system has no descriptor left. Then the connection ends for
                both.
        """
        memories = [value.memory.descriptor for value in values if value.memory is not None]
        message = head, [value[:2] for value in values]
        try:
            self.connection.send_bytes(cloudpickle.dumps(message))  # type: ignore[no-untyped-call]
            if memories:
                socket.send_fds(self._beside, [b"."], memories)
        except OSError:
            # Otherwise the other end waits for the rest of the message for ever
            with contextlib.suppress(OSError):
                self._beside.shutdown(socket.SHUT_RDWR)
            raise

    def receive(self) -> Message:
        """Return the next message.

        Raises:
            EOFError, OSError: The other end is gone, or no memory or descriptor is left.
        """
        head, told = cloudpickle.loads(self.connection.recv_bytes())
        wanted = sum(bool(places) for _, places in told)
        memories = iter(self._memories(wanted) if wanted else ())
        return head, [Packed(body, places, next(memories) if places else None) for body, places in told]

    def _memories(self, wanted: int) -> list[MappedMemory]:
        mark, descriptors, _, _ = socket.recv_fds(self._beside, 1, wanted)
        memories = [MappedMemory(descriptor) for descriptor in descriptors]
        if not mark or len(memories) < wanted:
            raise OSError(
                f"{len(memories)} of {wanted} descriptors arrived: this process may have too many files open"
            )
        return memories

    def fileno(self) -> int:
        return self.connection.fileno()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._beside.close()
        self.connection.close()


class Serving:
    """An actor that answers calls of its methods at a socket."""

    _listener: Listener
    _folder: Path

    def listen(self) -> str | None:
        """Open the socket and return its address.

        Returns None if the system has no such sockets, or no folder for one.
        """
        try:
            self._folder = socket_folder()
        except OSError:
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
            # Both ends are connected, so a kill leaves nothing behind
            shutil.rmtree(self._folder, ignore_errors=True)
            with contextlib.suppress(EOFError, OSError):
                while True:
                    self._serve_one(caller)

    def _serve_one(self, caller: SocketEnd) -> None:
        """Answer one call.

        This is a separate method, so that arguments and answer are not held while the actor waits for the
        next call.
        """
        (number, name), arguments = caller.receive()
        answer, told = self._answered(str(name), arguments)
        caller.send((number, told), [answer])

    def _answered(self, name: str, arguments: list[Packed]) -> tuple[Packed, str | None]:
        """Return the packed answer, or the packed error that was raised and its traceback."""
        try:
            return packed(getattr(self, name)(*[value.unpacked() for value in arguments])), None
        except Exception as error:  # noqa: BLE001 (raised to whoever waits for the answer)
            told = traceback.format_exc()
            try:
                value = packed(error)
                # An error whose __init__ takes other arguments can be packed, but not unpacked
                value.unpacked()
            except Exception:  # noqa: BLE001 (the error cannot be sent, but its text can)
                return packed(RemoteError(f"{type(error).__name__}: {error}")), told
            return value, told
