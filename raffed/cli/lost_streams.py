"""Standard output and error that are closed, broken or on a full disk: output is lost, but the work goes on.

The results of a run are its files. Neither a reader that has seen enough (`| head -1`) nor a full disk under
a log ends a run.
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
    """A file whose writing may fail. The first error is kept in `lost`, and all later output is dropped."""

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
    """The standard streams of this process, replaced by forgiving ones.

    Streams that something else has replaced already are left alone.
    """

    def __init__(self) -> None:
        reopened = _reopen()
        self.output = _forgiving("stdout", 1, 1 in reopened)
        self.error = _forgiving("stderr", 2, 2 in reopened)

    def wrong(self) -> str | None:
        """Return what went wrong with standard output, if it must be reported. A reader that went away need
        not be.
        """
        lost = None if self.output is None else self.output.lost
        if lost is None or lost.errno in (errno.EPIPE, errno.ESHUTDOWN):
            return None
        return f"{WANTED}: {os.strerror(lost.errno) if lost.errno else lost}"


def _reopen() -> set[int]:
    """Open the null device in place of standard streams that are closed.

    Otherwise the next file to be opened would get their number, and every print would write into it.
    """
    closed = set()
    for number in STANDARD:
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
    return closed


def _forgiving(name: str, number: int, reopened: bool) -> Forgiving | None:
    """Replace a standard stream by a forgiving one; None if the stream is not the process's own."""
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
