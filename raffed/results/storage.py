"""Results at a URL (s3://, gs://, abfs://, hdfs://, file://), and packed records, as local folders.

A run writes many small files in single steps and links its checkpoints, which object stores cannot do. So a
command fetches what is at the URL and works in a local copy, while a thread sends what changes. Whenever the
command is interrupted, the URL holds complete Parquet parts and complete checkpoints, from which a resumed
run gives the same result, bit for bit. There may be one writer per URL.
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from raffed.errors import RaffedError, UsageError, writing
from raffed.results.remote import CHECKPOINTS, Remote
from raffed.results.runfile import RECORDS_FILE
from raffed.scratch import scratch_folder

SCRATCH = "RAFFED_SCRATCH"  # folder for the local copies; with several nodes, a folder that all of them mount
SEND_SECONDS = 20.0  # between two transfers while a command works

log = logging.getLogger(__name__)
_copies: dict[Path, str] = {}  # local copy → its URL, while a command works on it


def is_url(place: str | Path) -> bool:
    """Return whether a place is a URL and not a path."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(place)))


def named(path: Path | str) -> str:
    """Return a path, or a text with paths, as a person knows it: with the URL in place of its local copy.

    What follows the copy's name is put before the options of the URL (s3://b/a/x?region=r). The argument of a
    command is quoted.
    """
    text = str(path)
    for local, url in list(_copies.items()):  # copied, because another thread may begin or end a copy
        mention = rf"(\braffed \w+ )?{re.escape(str(local))}((?:/[\w@=+-][\w.@=+-]*(?<!\.))*)"
        text = re.sub(mention, partial(_put, url), text)
    return text


def _put(url: str, mention: re.Match[str]) -> str:
    """Return the URL for a mention of a copy, with the path below the copy."""
    place, mark, options = url.partition("?")
    command, below = mention.groups()
    whole = f"{place.rstrip('/')}{below}{mark}{options}"
    return f"{command}{shlex.quote(whole)}" if command else whole


def _anything(name: str) -> bool:
    return True


def _is_read(name: str) -> bool:
    """Return whether a report reads a file."""
    return f"/{CHECKPOINTS}/" not in f"/{name}" and not name.endswith(".safetensors")


def _check_said(place: str | Path) -> None:
    """Refuse an empty text. It would mean this folder, but is more likely a shell variable that is
    not set.
    """
    if not str(place).strip():
        raise UsageError(f"{str(place)!r} cannot hold results; give a folder or a URL")


@contextlib.contextmanager
def mirrored(place: str | Path, every: float = SEND_SECONDS) -> Iterator[Path]:
    """Yield a local folder for a place.

    A path is its own folder. For a URL it is a copy of what is there. The copy is sent back every `every`
    seconds and at the end, however the block ends.

    Raises:
        UsageError: The place is empty, or its name is not UTF-8, which Parquet needs.
        RaffedError: The last transfer failed. The local copy is then kept, and the message names it.
    """
    _check_said(place)
    if not is_url(place):
        if re.search(r"[\ud800-\udfff]", os.path.abspath(place)):
            raise UsageError(f"{os.path.abspath(place)}: this name is not UTF-8; rename it or choose another")
        yield Path(place)
        return
    with _copied(str(place), writable=True) as copy:
        try:
            with _retold(), _sending(copy.remote, copy.local, every):
                yield copy.local
        finally:
            _copies.pop(copy.local)  # the message about a failed transfer names the copy itself
            copy.kept = True
            _send_last(copy.remote, copy.local)
            copy.kept = False


@contextlib.contextmanager
def local_folder(out: Path | str | None) -> Iterator[Path]:
    """Yield a local folder for the files of a run: that of `mirrored`, or a temporary one for None."""
    if out is not None:
        with mirrored(out) as folder:
            yield folder
        return
    with scratch_folder() as scratch:
        yield scratch / "run"


@contextlib.contextmanager
def fetched(place: str | Path, whole: bool = False) -> Iterator[Path]:
    """Yield a local folder with what a report reads of a place. Nothing is sent back.

    Checkpoints and weights are left out unless `whole` is true.
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
    """Yield a copy of what is at a URL, and remove it at the end unless it is to be kept."""
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
                log.warning("%s; the next attempt is in %g s", error, every)

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
    """Re-raise raffed's errors with URLs in place of the names of local copies."""
    try:
        yield
    except RaffedError as error:
        error.args = tuple(named(part) if isinstance(part, str) else part for part in error.args)
        raise


def _scratch() -> Path:
    where = os.environ.get(SCRATCH)
    with writing(Path(where or os.environ.get("TMPDIR", "/tmp")), SCRATCH):
        if where:
            Path(where).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="raffed-", dir=where))


# Packed records as folders of runs, for reports.
#
# What unpacks them stands beside raffed, and is found by the entry point `raffed.records`.


class DamagedRecordsError(UsageError):
    """Packed records cannot be read, or are no longer what was packed. The message is one line."""


@contextmanager
def unpacked(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield paths that hold run folders, for paths that may hold packed records.

    Packed records at or below a path are unpacked into temporary folders. `raffed.results.storage.named`
    gives the packed folder's name in place of the temporary one.

    Raises:
        DamagedRecordsError: Packed records cannot be read.
    """
    folders: list[Path] = []
    with scratch_folder() as scratch:
        try:
            for number, path in enumerate(paths):
                packed = packed_below(path)
                folders += [] if path in packed else [path]
                for folder in packed:
                    local = scratch / str(number) / folder.relative_to(path) / folder.name
                    _unpack(folder, local)
                    _copies[local] = str(folder)
                    folders.append(local)
            yield folders
        finally:
            for local in [copy for copy in folders if copy.is_relative_to(scratch)]:
                _copies.pop(local, None)


def packed_below(path: Path) -> list[Path]:
    """Return the folders with packed records at or below a path."""
    return sorted(Path(place) for place, _, names in os.walk(path) if RECORDS_FILE in names)


def _unpack(folder: Path, out: Path) -> None:
    entries = entry_points(group="raffed.records")
    if not entries:  # an environment from before the reader moved
        raise DamagedRecordsError(f"{folder}: nothing reads packed records; install raffed anew (make venv)")
    for entry in entries:
        entry.load()(folder, out)
