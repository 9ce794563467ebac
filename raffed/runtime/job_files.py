"""Decide which files of a folder are sent with a job, and pack these into an archive.

Ray's own packaging follows links, sends hidden files, and decides by patterns alone. So the folder is walked
here, and one rule decides about every file. The result is written into a zip file, which Ray sends unchanged.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from raffed.errors import UsageError
from raffed.runtime.ignore_files import ignore_rules
from raffed.runtime.secret_files import SNIFFED, hidden_or_secret_name, is_login_folder, secret_contents

LARGE = 50_000_000  # bytes in total; more is sent only if the user asks for it
PACKAGE = "working_dir.zip"
DATA = "data or results: they lie on the shared storage"
_AT_THE_TOP = {"data", "datasets", "shared", "runs", "sweeps", "reproduce", "report", "bench", "demo"}
_CACHES = {"__pycache__", "node_modules", "build", "dist", "site-packages", "htmlcov"}
_RESULTS = {
    "checkpoints",
    "vaults",
    "wandb",
    "mlruns",
    "mlartifacts",
    "tensorboard",
    "lightning_logs",
    "ray_results",
}
_MARKS = {  # a file whose presence shows what its folder is
    "pyvenv.cfg": "a virtual environment",
    "conda-meta": "a virtual environment",
    "CACHEDIR.TAG": "a cache",
    "run.json": DATA,
    "sweep.json": DATA,
    "item.json": DATA,
    "checkpoint.json": DATA,
}
_DATA = (
    ".parquet",
    ".safetensors",
    ".npz",
    ".npy",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".hdf5",
    ".pkl",
    ".pickle",
    ".onnx",
    ".arrow",
    ".feather",
    ".lmdb",
    ".mdb",
    ".db",
    ".sqlite",
    ".sqlite3",
    ".gz",
    ".tgz",
    ".bz2",
    ".xz",
    ".zst",
    ".zip",
    ".tar",
    ".7z",
    ".rar",
    ".pyc",
    ".pyo",
    ".core",
    ".dump",
)


class Sent(NamedTuple):
    """A file that is sent.

    Attributes:
        name: Its path below the folder, with slashes.
        source: The file whose bytes are sent.
        size: Number of these bytes.
    """

    name: str
    source: Path
    size: int


class Withheld(NamedTuple):
    """What is not sent: a file, or a folder with everything in it (then its name ends in a slash)."""

    name: str
    reason: str


@dataclass(frozen=True)
class Parcel:
    """What was decided about everything in a folder."""

    sent: list[Sent] = field(default_factory=list)
    withheld: list[Withheld] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all files that are sent."""
        return sum(one.size for one in self.sent)

    def reason_against(self, name: str) -> str:
        """Return why a path below the folder is not sent, or an empty text if it is sent."""
        if any(one.name == name for one in self.sent):
            return ""
        above = [
            one
            for one in self.withheld
            if one.name == name or (one.name[-1:] == "/" and name.startswith(one.name))
        ]
        return above[0].reason if above else "no file of the folder"


def parcel_of(root: Path) -> Parcel:
    """Decide about everything below a folder.

    Links are never followed out of the folder, and only regular files are opened.
    """
    found = Parcel()
    top = Path(os.path.realpath(root))
    walk = _Walk(top, found)
    walk.enter(top, "", [])
    walk.follow_links()
    found.sent.sort()
    found.withheld.sort()
    return found


def check_root(working_dir: Path) -> Path:
    """Return the folder with all links resolved.

    Raises:
        UsageError: There is no such folder, or it lies in a folder that holds logins.
    """
    root = Path(os.path.realpath(working_dir))
    if not root.is_dir():
        raise UsageError(f"--working-dir {working_dir}: there is no such folder")
    if login := next((part for part in root.parts if part[:1] == "." and is_login_folder(part)), ""):
        raise UsageError(
            f"--working-dir {working_dir}: lies in {login}, which holds logins and histories; nothing "
            "was sent"
        )
    return root


def files_alone(files: dict[str, Path]) -> Parcel:
    """Return a parcel of the named files, whatever they are called.

    Raises:
        UsageError: A file holds a secret or cannot be read.
    """
    found = Parcel()
    for name, path in files.items():
        refused = "" if path.is_file() else "is not a regular file"
        refused = refused or _contents(path, name)
        if refused:
            raise UsageError(f"{path} {refused}; it would be sent to the cluster, so nothing was sent")
        found.sent.append(Sent(name, path, path.stat().st_size))
    return found


def packed(parcel: Parcel, folder: Path) -> Path:
    """Write an archive of the files that are sent into a folder, and return its path.

    Equal files give equal bytes, which Ray does not send twice.

    Raises:
        UsageError: A file has changed since it was listed.
    """
    target = folder / PACKAGE
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as archive:
        for one in parcel.sent:
            about = zipfile.ZipInfo(one.name)
            about.compress_type = zipfile.ZIP_DEFLATED
            data, mode = _read(one)
            about.external_attr = (stat.S_IFREG | (0o755 if mode & 0o100 else 0o644)) << 16
            archive.writestr(about, data)
    return target


def _read(one: Sent) -> tuple[bytes, int]:
    """Return the bytes and the mode of a file, after checking that it is still the one that was listed."""
    try:
        handle = os.open(
            one.source, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
        with open(handle, "rb") as file:
            about = os.fstat(handle)
            data = file.read(one.size + 1) if stat.S_ISREG(about.st_mode) else b""
    except OSError as error:
        raise UsageError(
            f"{one.name}: cannot be read any more ({error.strerror}); nothing was sent"
        ) from error
    if len(data) != one.size or secret_contents(data, one.name.rpartition("/")[2]):
        raise UsageError(
            f"{one.name}: changed while it was packed; nothing was sent, so give the command again"
        )
    return data, about.st_mode


class _Walk:
    """One pass over a folder. Links are decided at its end, when it is known what else is sent."""

    def __init__(self, top: Path, found: Parcel) -> None:
        self.top, self.found = top, found
        self.links: list[tuple[str, Path]] = []

    def enter(self, folder: Path, name: str, ignored: list[_Ignore]) -> None:
        """Decide about everything in a folder with the path `name` (empty, or with a slash at its end)."""
        try:
            entries = sorted(os.scandir(folder), key=lambda one: one.name)
            ignored = [*ignored, *(_Ignore(name, file, rule) for file, rule in ignore_rules(folder).items())]
        except OSError as error:
            self._keep(name or "./", f"cannot be read ({error.strerror})")
            return
        for entry in entries:
            path, source, is_folder = (
                f"{name}{entry.name}",
                Path(entry.path),
                entry.is_dir(follow_symlinks=False),
            )
            reason = ("" if is_folder else _refused(entry)) or _against(path, source, is_folder, ignored)
            if reason:
                self._keep(f"{path}/" if is_folder else path, reason)
            elif is_folder:
                self.enter(source, f"{path}/", ignored)
            elif entry.is_symlink():
                self.links.append((path, Path(os.path.realpath(source))))
            else:
                self.found.sent.append(Sent(path, source, entry.stat(follow_symlinks=False).st_size))

    def follow_links(self) -> None:
        """Send the target of each link again under the link's own name, if the target itself is sent."""
        there = list(self.found.sent)
        for path, target in self.links:
            if not target.is_relative_to(self.top):
                self._keep(path, f"a link that leads out of the folder, to {target}")
                continue
            in_circle = target.is_dir() and (self.top / path).is_relative_to(target)
            meant = (
                []
                if in_circle
                else [one for one in there if one.source == target or one.source.is_relative_to(target)]
            )
            for one in meant:
                rest = one.source.relative_to(target).as_posix()
                self.found.sent.append(one._replace(name=path if rest == "." else f"{path}/{rest}"))
            if not meant:
                self._keep(
                    path,
                    "a link to a folder that it lies in" if in_circle else "a link to what does not travel",
                )

    def _keep(self, name: str, reason: str) -> None:
        self.found.withheld.append(Withheld(name, reason))


def _refused(entry: os.DirEntry[str]) -> str:
    """Return why an entry that is not a folder is not sent.

    Only files are opened, because a pipe would wait for ever.
    """
    return "" if entry.is_symlink() or entry.is_file(follow_symlinks=False) else "no regular file"


def _against(path: str, source: Path, is_folder: bool, ignored: list[_Ignore]) -> str:
    """Return why a path is not sent: because of its name, its kind, or its contents."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    name = path.rpartition("/")[2]
    found = _by_name(name, is_folder, "/" not in path) or (_by_mark(source) if is_folder else "")
    for one in ignored:
        below = path[len(one.folder) :] + ("/" if is_folder else "")
        found = found or (f"named in {one.folder}{one.file}" if one.names(below) else "")
    return found or ("" if is_folder or source.is_symlink() else _contents(source, name))


class _Ignore(NamedTuple):
    """An ignore file in the folder called `folder`, and whether it excludes a path below that."""

    folder: str
    file: str
    names: Callable[[str], bool]


def _by_name(name: str, is_folder: bool, at_the_top: bool) -> str:
    plain = name.casefold()
    secret = hidden_or_secret_name(name, is_folder)
    if is_folder:
        if (
            plain in _CACHES
            or plain.endswith((".egg-info", "_cache"))
            or plain in {".cache", ".hypothesis", ".tox", ".nox"}
        ):
            return "a cache, made again where it is needed"
        if plain in {".venv", "venv", ".virtualenv"}:
            return "a virtual environment"
        return secret or (DATA if plain in _RESULTS or (at_the_top and plain in _AT_THE_TOP) else "")
    return secret or (DATA if plain.endswith(_DATA) else "")


def _by_mark(folder: Path) -> str:
    return next((reason for mark, reason in _MARKS.items() if os.path.lexists(folder / mark)), "")


def _contents(path: Path, name: str) -> str:
    try:
        with open(path, "rb") as file:
            return secret_contents(file.read(SNIFFED), name)
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def gathered(withheld: list[Withheld], several: int = 6) -> Iterator[tuple[str, str]]:
    """Yield what is not sent, in fewer lines.

    Many data files or runs in one folder become one line. Everything else has its own line.
    """

    def place(one: Withheld) -> str:
        return one.name.rstrip("/").rpartition("/")[0] if one.reason == DATA else one.name

    counts, told = Counter(map(place, withheld)), set[str]()
    for one in withheld:
        if counts[place(one)] < several:
            yield one.name, one.reason
        elif place(one) not in told:
            told.add(place(one))
            yield f"{place(one) or '.'}/: {counts[place(one)]} files and folders", one.reason
