"""Standard output and error that are closed, broken or on a full disk: what is shown gets lost, the work goes
on.

The results of a run are its files. A reader that has seen enough (`| head -1`) or a full disk under a log
ends no run.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD = (0, 1, 2)
WANTED = "what standard output was to show is lost"


class Forgiving(io.FileIO):
    """A file whose writing may fail: the first error is kept in `lost`, and all that follows goes nowhere."""

    lost: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        if self.lost is None:
            try:
                return super().write(data)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    raise
                self.lost = error
        return memoryview(data).nbytes


class Streams:
    """The standard streams of this process, made to forgive. Streams that something else has put in their
    place stay.
    """

    def __init__(self) -> None:
        reopened = _reopen()
        self.output = _forgiving("stdout", 1, 1 in reopened)
        self.error = _forgiving("stderr", 2, 2 in reopened)

    def wrong(self) -> str | None:
        """What became of standard output if something has to be said about it: nothing where its reader
        went away.
        """
        lost = None if self.output is None else self.output.lost
        if lost is None or lost.errno in (errno.EPIPE, errno.ESHUTDOWN):
            return None
        return f"{WANTED}: {os.strerror(lost.errno) if lost.errno else lost}"


def _reopen() -> set[int]:
    """Put the null device in the place of standard streams that are closed: else the next file that is opened
    takes their number, and is written in by whatever prints.
    """
    closed = set()
    for number in STANDARD:
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, so this one
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
    return closed


def _forgiving(name: str, number: int, reopened: bool) -> Forgiving | None:
    """Replace a standard stream by one that forgives; None where it is not the process's own."""
    stream = getattr(sys, name)
    if stream is None and reopened:
        encoding, errors, lines = "utf-8", "backslashreplace", True
    elif (
        isinstance(stream, io.TextIOWrapper)
        and stream is getattr(sys, f"__{name}__")
        and _number(stream) == number
    ):
        encoding, errors, lines = stream.encoding, stream.errors or "strict", stream.line_buffering
        with contextlib.suppress(OSError):
            stream.flush()
    else:
        return None
    raw = Forgiving(number, "wb", closefd=False)
    made = io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=lines)
    setattr(sys, name, made)
    return raw


def _number(stream: io.TextIOWrapper) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return -1
