"""Results at a URL (s3://, gs://, abfs://, hdfs://, file://): worked on as a local copy that is sent back as
it grows.

A run writes many small files in single steps and links its checkpoints, which object stores do not do. So a
command fetches what is at the URL, works in a local folder, and a thread sends what changed: whatever is cut
off, the URL holds complete Parquet parts and complete checkpoints, from which a resumed run gives the same
bits. One writer a URL at a time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from raffed.errors import RaffedError, UsageError
from raffed.results.remote import CHECKPOINTS, Remote

SCRATCH = "RAFFED_SCRATCH"  # folder for the local copies; on several nodes one that all of them mount
NAME_BYTES, PATH_BYTES, ROOM = (
    255,
    4096,
    512,
)  # of one part of a path, of a path, of what a run's files add to it
SEND_SECONDS = 20.0  # between two sendings while a command works

log = logging.getLogger(__name__)
_sent: set[Path] = set()  # local copies that are sent back
_copies: dict[Path, str] = {}  # local copy → its URL, while a command works on it


def is_url(place: str | Path) -> bool:
    """Whether a place is a URL and not a path."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(place)))


def named(path: Path | str) -> str:
    """A path, or a text with paths, as a person knows it: with the URL in place of its local copy.

    What follows the copy's name goes before the URL's options (s3://b/a/x?region=r); the argument of a
    command is quoted.
    """
    text = str(path)
    for local, url in list(_copies.items()):  # another thread may begin or end one
        mention = rf"(\braffed \w+ )?{re.escape(str(local))}((?:/[\w@=+-][\w.@=+-]*(?<!\.))*)"
        text = re.sub(mention, partial(_put, url), text)
    return text


def sending() -> bool:
    """Whether a command works on a copy, and what is new in it may have to be sent."""
    return bool(_sent)


def _put(url: str, found: re.Match[str]) -> str:
    """For a mention of a copy (the command before it, the path below it): its URL with that path."""
    place, mark, options = url.partition("?")
    command, below = found.groups()
    whole = f"{place.rstrip('/')}{below}{mark}{options}"
    return f"{command}{shlex.quote(whole)}" if command else whole


def _anything(name: str) -> bool:
    return True


def _is_read(name: str) -> bool:
    """Whether a report reads a file."""
    return f"/{CHECKPOINTS}/" not in f"/{name}" and not name.endswith(".safetensors")


def _check_said(place: str | Path) -> None:
    """An empty text would be this folder: more likely a variable of the shell that is not set."""
    if not str(place).strip():
        raise UsageError(f"{str(place)!r} is no place for results: wanted a folder or a URL")
    check_name(place)


def check_name(place: str | Path) -> None:
    """Refuse what cannot be the name of a folder, before anything is done for it: Ray and the files of a run
    hold names in UTF-8, and a file system takes up to 255 bytes for each part of a path.
    """
    said = f"{os.fsencode(place)!r}"[1:]
    whole = str(place) if is_url(place) else os.path.abspath(place)
    try:
        encoded = whole.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{said} is not UTF-8 text, as the names of folders for results must be; choose another name"
        ) from error
    if b"\0" in encoded:
        raise UsageError(f"{said} holds a zero byte; choose another name")
    if is_url(place):
        return
    longest = max(encoded.split(b"/"), key=len)
    if len(longest) > NAME_BYTES:
        shown = f"{longest[:20].decode(errors='ignore')}…"
        raise UsageError(
            f"{shown} is a name of {len(longest)} bytes; file systems take {NAME_BYTES}; choose a shorter one"
        )
    if len(encoded) + ROOM > PATH_BYTES:
        raise UsageError(
            f"a path of {len(encoded)} bytes leaves no room for a run's files below it; choose a shorter one"
        )


@contextlib.contextmanager
def mirrored(place: str | Path, every: float = SEND_SECONDS) -> Iterator[Path]:
    """A local folder for a place: itself if it is a path; for a URL a copy of what is there, sent back every
    `every` seconds and at the end, whatever the end is.

    Raises UsageError if the place is empty, RaffedError if the last sending fails: the local copy is kept
    then and named.
    """
    _check_said(place)
    if not is_url(place):
        yield Path(place)
        return
    with _copied(str(place), writable=True) as copy:
        _sent.add(copy.local)
        try:
            with _retold(), _sending(copy.remote, copy.local, every):
                yield copy.local
        finally:
            _copies.pop(copy.local)  # a failure to send speaks of the copy itself
            copy.kept = True
            try:
                _send_last(copy.remote, copy.local)
            finally:
                _sent.discard(copy.local)
            copy.kept = False


@contextlib.contextmanager
def local_folder(out: Path | str | None) -> Iterator[Path]:
    """A local folder for the files of a run: that of `mirrored`, or for None a temporary one."""
    if out is not None:
        with mirrored(out) as folder:
            yield folder
        return
    made = Path(tempfile.mkdtemp(prefix="raffed-"))
    try:
        yield made / "run"
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def fetched(place: str | Path, whole: bool = False) -> Iterator[Path]:
    """A local folder with what a report reads of a place: everything but checkpoints and weights, those too
    if it is to be `whole`. Nothing is sent back.
    """
    _check_said(place)
    if not is_url(place):
        yield Path(place)
        return
    with _copied(str(place), wanted=_anything if whole else _is_read) as copy:
        copy.local.mkdir(exist_ok=True)
        with _retold():
            yield copy.local


@dataclass
class _Copy:
    remote: Remote
    local: Path
    kept: bool = False


@contextlib.contextmanager
def _copied(url: str, wanted: Callable[[str], bool] = _anything, writable: bool = False) -> Iterator[_Copy]:
    """A copy of what is at a URL, removed at the end unless it is to be kept."""
    remote, scratch = Remote(url), _scratch()
    copy = _Copy(remote, scratch / remote.name)
    try:
        if writable:
            remote.check_writable()
        remote.fetch(copy.local, wanted)
        _copies[copy.local] = remote.url
        yield copy
    finally:
        _copies.pop(copy.local, None)
        if not copy.kept:
            shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _sending(remote: Remote, local: Path, every: float) -> Iterator[None]:
    done = threading.Event()

    def work() -> None:
        while not done.wait(every):
            try:
                remote.send(local)
            except RaffedError as error:
                log.warning("%s; tried again in %g s", error, every)

    thread = threading.Thread(target=work, name="raffed-storage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _send_last(remote: Remote, local: Path) -> None:
    try:
        remote.send(local)
    except RaffedError as error:
        raise RaffedError(
            f"{error}; the results are complete in {local}: copy them, or repeat the command"
        ) from error


@contextlib.contextmanager
def _retold() -> Iterator[None]:
    """Errors of raffed with URLs instead of the names of local copies."""
    try:
        yield
    except RaffedError as error:
        error.args = tuple(named(one) if isinstance(one, str) else one for one in error.args)
        raise


def _scratch() -> Path:
    where = os.environ.get(SCRATCH)
    try:
        if where:
            Path(where).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="raffed-", dir=where))
    except OSError as error:
        raise UsageError(f"{SCRATCH} = {where}: cannot be written ({error.strerror})") from error
