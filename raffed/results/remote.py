"""Addresses of results, and copies of a folder at a URL through pyarrow's file systems.

What is there is fetched, what has changed is sent, and only whole files and checkpoints count.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from urllib.parse import parse_qsl, urlsplit

from raffed.errors import UsageError
from raffed.own.gate import within
from raffed.results.files import check_tree
from raffed.results.runfile import RUN_FILE
from raffed.results.text import names_a_secret, without_secrets

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# Open a URL for results through pyarrow's file systems.


# abfs://container@account.dfs.core.windows.net/path: the text before the @ is not a secret
AZURE = ("abfs", "abfss")
NO_SECRETS = "credentials in a URL end up in logs; use the environment or a role"
# By default AWS's client puts a checksum behind every upload. Older stores, such as Ceph 16, refuse that with
# HTTP status 411. The files of a run have their own checksums.
NO_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}


def check_url(url: str) -> str:
    """Return the URL if it is possible and contains neither credentials nor an endpoint.

    Raises:
        UsageError: It does. The message does not repeat them.
    """
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
        named = parts.username is not None and scheme not in AZURE
        secret = named or parts.password is not None
    except ValueError as error:
        raise UsageError(f"{scheme}://…: not a URL ({without_secrets(str(error))})") from error
    if secret:
        raise UsageError(f"{scheme}://…@{parts.hostname}: {NO_SECRETS}")
    for field, value in parse_qsl(parts.query, keep_blank_values=True):
        if names_a_secret(field) or "@" in value:
            raise UsageError(f"{scheme}://{parts.netloc}{parts.path}?{field}=…: {NO_SECRETS}")
    return url


def opened(url: str) -> tuple[FileSystem, str]:
    """Return pyarrow's file system for a URL, and the path in it."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        with _without_checksums():
            system, root = fs.FileSystem.from_uri(url)
    except (OSError, ValueError, pa.ArrowException) as error:
        known = "s3://, gs://, abfs://, hdfs:// or file:///"
        raise UsageError(
            f"{url}: results cannot be stored there ({one_line(error)}); give {known}"
        ) from error
    return system, root.rstrip("/")


@contextlib.contextmanager
def _without_checksums() -> Iterator[None]:
    """Have AWS's client send no such checksums, unless a variable says otherwise.

    The client reads the environment when it is made.
    """
    added = {name: value for name, value in NO_CHECKSUMS.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def one_line(error: BaseException) -> str:
    """Return the text of an error on one line, without what looks like a secret."""
    return without_secrets(" ".join(str(error).split()))


T = TypeVar("T")
V = TypeVar("V")
STATE_FILE = (
    "state.json"  # of a checkpoint; sent last and removed first, so a checkpoint with one is complete
)
CLIENT_STATES, CHECKPOINTS = "vaults", "checkpoints"
LAST = (RUN_FILE, "sweep.json", "item.json")  # these describe the other files, so they are sent after them
# Stores in which an object appears only when it is complete; on others raffed renames
WHOLE_WRITES = ("s3", "gcs", "abfs")
# Not copied: incomplete files, and pickles of Ray Tune, which could run code here
LEFT = (".part", ".pkl")
PROBE = ".writable.part"  # if it is left behind, it counts as an incomplete file
THREADS = 8

Stamp = tuple[int, int]  # bytes, mtime in ns


class Remote:
    """A folder at a URL.

    Raises:
        UsageError: The text cannot be a URL, or contains credentials, which would be logged.
    """

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        if not urlsplit(url).path.strip("/"):
            raise UsageError(
                f"{url}: names no folder; add a name, as in s3://bucket/runs/a or file:///shared/runs/a"
            )
        self._files, self._root = opened(self.url)
        self._sent: dict[str, Stamp] = {}

    @property
    def name(self) -> str:
        """The last part of the folder's path."""
        return PurePosixPath(self._root).name or "results"

    def check_writable(self) -> None:
        """Raise a UsageError if an object store accepts no files.

        To a reader, a bucket that does not exist looks empty, and the results of hours could then not be
        stored. File systems make the folders that they need. On this machine's own file system, nothing in
        the folder may lead out of it.
        """
        if self._files.type_name == "local":
            check_tree(Path(self._root))
        if self._files.type_name in WHOLE_WRITES:
            with _told(f"{self.url}: cannot be written"):
                self._write(io.BytesIO(b"x"), f"{self._root}/{PROBE}")  # a store may take empty files only
                self._files.delete_file(f"{self._root}/{PROBE}")

    def fetch(self, folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Copy what is at the URL to `folder`, with complete checkpoints only. Names that lead outside are
        refused.
        """
        names = [name for name in _whole(self.listed()) if wanted(name)]
        targets = [within(folder, name) for name in names]
        for parent in {target.parent for target in targets}:
            parent.mkdir(parents=True, exist_ok=True)
        with _told(f"{self.url}: cannot be read"):
            each_at_once(self._fetch_one, names, targets)
        self._sent = {name: _stamp(target) for name, target in zip(names, targets, strict=True)}

    def send(self, folder: Path) -> int:
        """Make the URL hold what `folder` holds, and return the number of files sent.

        Files may appear and disappear meanwhile.
        """
        here = local_stamps(folder)
        changed = [name for name, stamp in here.items() if self._sent.get(name) != stamp]
        missing: set[str] = set()
        with _told(f"{self.url}: cannot be written"):
            for step in range(3):
                names = [name for name in changed if _step(name) == step and _complete(name, missing)]
                results = each_at_once(partial(self._send_one, folder), names)
                missing |= {name for name, there in zip(names, results, strict=True) if not there}
            gone = sorted(set(self._sent) - set(here), key=lambda name: not name.endswith(STATE_FILE))
            for name in gone:
                with contextlib.suppress(FileNotFoundError):
                    self._files.delete_file(f"{self._root}/{name}")
        self._sent = {
            name: stamp for name, stamp in here.items() if name not in missing and _complete(name, missing)
        }
        return len(changed) - len(missing)

    def listed(self) -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        with _told(f"{self.url}: cannot be listed"):
            infos = self._files.get_file_info(FileSelector(self._root, recursive=True, allow_not_found=True))
        start = len(self._root.rstrip("/")) + 1
        return sorted(info.path[start:] for info in infos if info.type == FileType.File)

    def _fetch_one(self, name: str, target: Path) -> None:
        with self._files.open_input_stream(f"{self._root}/{name}") as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 2**20)

    def _send_one(self, folder: Path, name: str) -> bool:
        """Send a file. Return False if it disappeared before it was sent."""
        target = f"{self._root}/{name}"
        try:
            source = (folder / name).open("rb")
        except FileNotFoundError:
            return False
        with source:
            if self._files.type_name in WHOLE_WRITES:
                self._write(source, target)
            else:
                self._files.create_dir(str(PurePosixPath(target).parent), recursive=True)
                self._write(source, f"{target}.part")
                self._files.move(f"{target}.part", target)
        return True

    def _write(self, source: BinaryIO, target: str) -> None:
        with self._files.open_output_stream(target) as sink:
            shutil.copyfileobj(source, sink, 2**20)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn what a file system raises into a one-line UsageError."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{what} ({one_line(error)})") from error


def _whole(names: list[str]) -> list[str]:
    """Return the names without checkpoints that have no state.json, and without the remains of interrupted
    transfers.
    """
    there = set(names)
    kept = []
    for name in names:
        head, folder, tail = name.rpartition(f"{CHECKPOINTS}/")
        if folder and f"{head}{folder}{tail.partition('/')[0]}/{STATE_FILE}" not in there:
            continue
        if not name.endswith(LEFT):
            kept.append(name)
    return kept


def local_stamps(folder: Path) -> dict[str, Stamp]:
    """Return name → stamp of the files to be sent.

    Hidden files are incomplete and are left out. So are the live client states in `vaults`, which are in a
    checkpoint.
    """
    stamps: dict[str, Stamp] = {}
    for path, folders, files in os.walk(folder):
        live = {CLIENT_STATES} if RUN_FILE in files else set()
        folders[:] = [name for name in folders if not name.startswith(".") and name not in live]
        for file in files:
            if not file.startswith(".") and not file.endswith(LEFT):
                with contextlib.suppress(FileNotFoundError):
                    stamps[(Path(path) / file).relative_to(folder).as_posix()] = _stamp(Path(path) / file)
    return stamps


def _stamp(path: Path) -> Stamp:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def _step(name: str) -> int:
    """Return when a file is sent: 0 first, 2 last."""
    file = PurePosixPath(name).name
    return 2 if file in LAST else 1 if file == STATE_FILE else 0


def _complete(name: str, missing: Iterable[str]) -> bool:
    """Return whether all files that a state.json lists were sent."""
    folder = name.removesuffix(STATE_FILE)
    return not name.endswith(STATE_FILE) or not any(other.startswith(folder) for other in missing)


def each_at_once(work: Callable[..., T], *arguments: Iterable[V]) -> list[T]:
    """Return what `work` returns for all arguments, as `map` does. The first failure cancels what waits.

    An unreachable store takes seconds to fail for every single file.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, *arguments))
