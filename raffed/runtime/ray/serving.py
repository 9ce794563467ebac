"""The actor's side of a socket: it answers calls of its methods there until the caller is gone."""

from __future__ import annotations

import contextlib
import shutil
import traceback
from multiprocessing.connection import Listener
from pathlib import Path

from raffed.runtime.ray.remote_error import RemoteError
from raffed.runtime.ray.shared_memory import Packed, SocketEnd, packed
from raffed.scratch import socket_folder


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
