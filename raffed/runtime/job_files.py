"""Decide which files of a folder are sent with a job, and pack these into an archive.

Ray's own packaging follows links, sends hidden files, and decides by patterns alone. So the folder is walked
here, and one rule decides about every file. The result is written into a zip file, which Ray sends unchanged.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from raffed.errors import UsageError
from raffed.runtime.ignore_files import ignore_rules
from raffed.runtime.job_file_rules import DATA, Ignored, contents_against, no_file, reason_against
from raffed.runtime.secret_files import is_login_folder, secret_contents

LARGE = 50_000_000  # bytes in total; more is sent only if the user asks for it
PACKAGE = "working_dir.zip"


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
class PackageFiles:
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


def files_below(root: Path) -> PackageFiles:
    """Decide about everything below a folder.

    Links are never followed out of the folder, and only regular files are opened.
    """
    found = PackageFiles()
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
            f"--working-dir {working_dir}: lies in {login}, where logins and histories are; nothing was sent"
        )
    return root


def files_alone(files: dict[str, Path]) -> PackageFiles:
    """Return a parcel of the named files, whatever they are called.

    Raises:
        UsageError: A file holds a secret or cannot be read.
    """
    found = PackageFiles()
    for name, path in files.items():
        refused = "" if path.is_file() else "is not a regular file"
        refused = refused or contents_against(path, name)
        if refused:
            raise UsageError(f"{path} {refused}; it would be sent to the cluster, so nothing was sent")
        found.sent.append(Sent(name, path, path.stat().st_size))
    return found


def packed(files: PackageFiles, folder: Path) -> Path:
    """Write an archive of the files that are sent into a folder, and return its path.

    Equal files give equal bytes, which Ray does not send twice.

    Raises:
        UsageError: A file has changed since it was listed.
    """
    target = folder / PACKAGE
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as archive:
        for one in files.sent:
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
    # By the file's own name, as it was listed: a link to it may have an ending of other rules
    if len(data) != one.size or secret_contents(data, one.source.name):
        raise UsageError(
            f"{one.name}: changed while it was packed; nothing was sent, so give the command again"
        )
    return data, about.st_mode


class _Walk:
    """One pass over a folder. At its end, when all other files are known, it decides about links."""

    def __init__(self, top: Path, found: PackageFiles) -> None:
        self.top, self.found = top, found
        self.links: list[tuple[str, Path]] = []

    def enter(self, folder: Path, name: str, ignored: list[Ignored]) -> None:
        """Decide about everything in a folder with the path `name` (empty, or with a slash at its end)."""
        try:
            entries = sorted(os.scandir(folder), key=lambda one: one.name)
            ignored = [*ignored, *(Ignored(name, file, rule) for file, rule in ignore_rules(folder).items())]
        except OSError as error:
            self._keep(name or "./", f"cannot be read ({error.strerror})")
            return
        for entry in entries:
            path, source, is_folder = (
                f"{name}{entry.name}",
                Path(entry.path),
                entry.is_dir(follow_symlinks=False),
            )
            reason = ("" if is_folder else no_file(entry)) or reason_against(path, source, is_folder, ignored)
            if reason:
                self._keep(f"{path}/" if is_folder else path, reason)
            elif is_folder:
                self.enter(source, f"{path}/", ignored)
            elif entry.is_symlink():
                self.links.append((path, Path(os.path.realpath(source))))
            else:
                with contextlib.suppress(FileNotFoundError):  # removed since the folder was listed
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
