"""Results at a URL (s3://, gs://, abfs://, hdfs://, file://): worked on as a local copy that is sent back as it grows.

A run writes many small files in single steps and links its checkpoints, which object stores do not do. So a command fetches
what is at the URL, works in a local folder, and a thread sends what changed: whatever is cut off, the URL holds complete
Parquet parts and complete checkpoints, from which a resumed run gives the same bits. One writer a URL at a time.
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
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from raffed.core.errors import RaffedError, UsageError
from raffed.results.remote import CHECKPOINTS, Remote

SCRATCH = "RAFFED_SCRATCH"  # folder for the local copies; on several nodes one that all of them mount
SEND_SECONDS = 20.0  # between two sendings while a command works

log = logging.getLogger(__name__)
_copies: dict[Path, str] = {}  # local copy → its URL, while a command works on it


def is_url(place: str | Path) -> bool:
    """Whether a place is a URL and not a path."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(place)))


def named(path: Path | str) -> str:
    """A path, or a text with paths, as a person knows it: with the URL in place of its local copy.

    What follows the copy's name goes before the URL's options (s3://b/a/x?region=r); the argument of a command is quoted.
    """
    text = str(path)
    for local, url in _copies.items():
        mention = rf"(\braffed \w+ )?{re.escape(str(local))}((?:/[\w@=+-][\w.@=+-]*(?<!\.))*)"
        text = re.sub(mention, partial(_put, url), text)
    return text


def _put(url: str, found: re.Match[str]) -> str:
    """For a mention of a copy (the command before it, the path below it): its URL with that path."""
    place, mark, options = url.partition("?")
    command, below = found.groups()
    whole = f"{place.rstrip('/')}{below}{mark}{options}"
    return f"{command}{shlex.quote(whole)}" if command else whole


@contextlib.contextmanager
def mirrored(place: str | Path, every: float = SEND_SECONDS) -> Iterator[Path]:
    """A local folder for a place: itself if it is a path; for a URL a copy of what is there, sent back every `every` seconds
    and at the end, whatever the end is.

    Raises RaffedError if the last sending fails: the local copy is kept then and named.
    """
    if not is_url(place):
        yield Path(place)
        return
    remote, scratch = Remote(str(place)), _scratch()
    local = scratch / remote.name
    try:
        remote.check_writable()
        remote.fetch(local)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    _copies[local] = remote.url
    try:
        with _retold(), _sending(remote, local, every):
            yield local
    finally:
        del _copies[local]
        _send_last(remote, local)
    shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def fetched(place: str | Path) -> Iterator[Path]:
    """A local folder with what a report reads of a place: everything but checkpoints and weights. Nothing is sent back."""
    if not is_url(place):
        yield Path(place)
        return
    remote, scratch = Remote(str(place)), _scratch()
    local = scratch / remote.name
    try:
        remote.fetch(local, lambda name: f"/{CHECKPOINTS}/" not in f"/{name}" and not name.endswith(".safetensors"))
        local.mkdir(exist_ok=True)
        _copies[local] = remote.url
        with _retold():
            yield local
    finally:
        _copies.pop(local, None)
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
        raise RaffedError(f"{error}; the results are complete in {local}: copy them, or repeat the command") from error


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
