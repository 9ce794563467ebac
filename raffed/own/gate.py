"""The one gate: what comes from a folder, a file or a name is data, until the user says otherwise.

- `within` is the only way to join a name that was read to a folder.
- `note_read` notes the texts of every file that is read. A reference among them is never imported as it is:
  `check` allows what the user has said too (typed, or passed in Python), entry points of installed packages,
  and code whose files this user has trusted. It looks at files and imports nothing.
- `is_said` is also asked for data that are fetched or unpickled.

So a reader that forgets to ask executes nothing: `resolve.module_of` asks for every reference.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import importlib.metadata
import logging
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from raffed.errors import RunFolderError
from raffed.own.located import CodeLocation, hashes_at, installed, located
from raffed.own.user_code import is_user_code

# Short names that installed packages give to their own code. Nothing of theirs is imported.


GROUPS = ("methods", "models", "datasets", "splits", "selections", "losses", "metrics")
# Not the current folder, which may have come from a stranger, nor what is added to the path later
_INSTALLED = [path for path in sys.path if path and os.path.realpath(path) != os.path.realpath(os.getcwd())]


class EntryPoint(NamedTuple):
    """A short name that an installed package gives to its own code.

    Attributes:
        name: The name, in small letters.
        reference: The reference behind it, such as "mylab.methods:myprox".
        package: The installed distribution and its version, such as "mylab 0.1".
    """

    name: str
    reference: str
    package: str


@functools.cache
def entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Return the short names that installed packages register in a group.

    Args:
        group: "raffed.methods", "raffed.models", "raffed.datasets" or "raffed.splits".

    Returns:
        Name → entry point, sorted by name.
    """
    points: dict[str, EntryPoint] = {}
    for package in importlib.metadata.distributions(path=_INSTALLED):
        for entry in package.entry_points.select(group=group):
            name, about = entry.name.lower(), f"{package.name} {package.version}"
            points.setdefault(name, EntryPoint(name, f"{entry.module}:{entry.attr}", about))
    return dict(sorted(points.items()))


def entry_references() -> set[str]:
    """Return the references of all short names."""
    return {entry.reference for group in GROUPS for entry in entry_points(f"raffed.{group}").values()}


Read: TypeAlias = "str | int | float | bool | Sequence[Read] | Mapping[str, Read] | None"
_PART = re.compile(r"[^\\/:\x00-\x1f\x7f]+")  # one part of a path, with nothing that a system reads otherwise
log = logging.getLogger(__name__)


LONGEST_NAME = 1000  # characters


class UnsafeNameError(RunFolderError):
    """A name that was read leads out of its folder, or has letters that systems read differently."""


class UntrustedCodeError(RunFolderError):
    """A file names code that this user has not trusted."""


class Knowledge(NamedTuple):
    """What this process knows: a process hands it to its children.

    Attributes:
        read: Texts with a colon that stood in files.
        in_toml: Those of TOML files of the user's own that were typed.
        typed: Words of the command line.
        said: References that the user has typed or passed in Python.
        trusted: Hashes that are trusted beside those in the user's file.
    """

    read: set[str]
    in_toml: set[str]
    typed: set[str]
    said: set[str]
    trusted: set[str]


HANDED = "RAFFED_TRUSTED_CODE"  # in a job: the hashes that the user who submitted it has trusted
MOST_HANDED = 1000  # hashes; 65 kB, half of what a variable may hold
_KNOWN = Knowledge(set(), set(), set(), set(), set(os.environ.get(HANDED, "").split()))
EVERYTHING = "everything"  # in place of a hash: --trust-code was typed


def within(folder: Path, name: str, above: int = 0) -> Path:
    """Return the path of a name that was read, which lies below a folder.

    Args:
        folder: The folder.
        name: A relative path of plain parts.
        above: So many parts `..` may stand before them, for files that name their neighbours.

    Raises:
        UnsafeNameError: The path lies elsewhere, also by way of a link, or has an odd name.
    """
    top, below = folder, name
    for _ in range(above if name.startswith("../") else 0):
        if below.startswith("../"):
            top, below = Path(os.path.normpath(top.absolute())).parent, below[3:]
    if not is_below(below):
        raise UnsafeNameError(f"{folder}: the name {ascii(name)[:100]} leads out of the folder")
    check_inside(top, top / below)
    return top / below


def is_below(name: str) -> bool:
    """Return whether a name is that of a file below a folder, on every system."""
    parts = name.split("/")
    plain = all(_PART.fullmatch(part) and part not in (".", "..") and part == part.strip() for part in parts)
    return plain and len(name) <= LONGEST_NAME


def check_inside(folder: Path, path: Path) -> None:
    """Raise a RunFolderError if `path`, with its links followed, leads out of `folder`. It need not exist."""
    try:
        outside = not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, below Python 3.13
        raise UnsafeNameError(f"{path}: a link that cannot be followed ({error}); remove it") from error
    if outside:
        raise UnsafeNameError(
            f"{path}: leads out of {folder}, to {path.resolve()}; raffed does not follow such links, so "
            "remove it"
        )


def note_read(value: Read) -> None:
    """Note the texts of a file that was read. References among them are not the user's word."""
    _KNOWN.read.update(texts_of(value))


def note_toml(path: Path, tables: Mapping[str, Read]) -> None:
    """Note the texts of a TOML file that was typed: the user's word for code of the user's own.

    It is no word for a function of an installed package, and none if another user can have written the file.
    """
    note_read(tables)
    about = path.stat()
    if about.st_uid in (os.getuid(), 0) and not about.st_mode & 0o002:
        _KNOWN.in_toml.update(texts_of(tables))


def note_typed(words: Iterable[str]) -> None:
    """Note the words of a command line, in place of those of an earlier one.

    All are the user's, but for names of files and folders that exist: whoever made those chose their names.
    """
    _KNOWN.typed.clear()
    for word in words:
        if ":" in word and not any(map(os.path.lexists, (word, word.partition("=")[2]))):
            _KNOWN.typed.add(word)


def say(reference: str) -> None:
    """Note that the user has named this reference in Python, unless a file has named it before."""
    if ":" in reference and reference not in _KNOWN.said and not _was_read(reference):
        _KNOWN.said.add(reference)


def note_in_table(references: Sequence[str]) -> None:
    """Note references that a table of runs names: not the user's word, although Python has made the table."""
    note_read(references)
    _KNOWN.said.difference_update(references)


def allow(reference: str) -> None:
    """Note that a reference is the user's, whatever has named it."""
    _KNOWN.said.add(reference)


def trust(hashes: Iterable[str]) -> None:
    """Trust code with these hashes, now and later. A home that cannot be written is no error."""
    new = [digest for digest in hashes if digest not in _KNOWN.trusted]
    _KNOWN.trusted.update(new)
    with contextlib.suppress(OSError):
        new = sorted(set(new) - _noted())
        _place().parent.mkdir(parents=True, exist_ok=True)
        with _place().open("a", encoding="utf-8") as stream:
            stream.writelines(f"{digest}\n" for digest in new)


def signature(digest: str) -> str:
    """Return this user's signature (hex) of a file's SHA-256, by a key that only this account can read.

    A pickle is read only with it, so a folder of somebody else's cannot bring one.
    """
    place = _place().with_name("own-key")
    if not place.exists():
        with contextlib.suppress(OSError):  # another process may be first
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=place.parent) as stream:
                stream.write(secrets.token_hex(32))
                stream.flush()
                os.link(stream.name, place)
    try:
        key = place.read_bytes()
    except OSError as error:
        raise UntrustedCodeError(f"{place}: the key of this account cannot be read ({error})") from error
    return hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()


def trust_typed() -> None:
    """Trust all code that a file of this command names: `--trust-code` was typed."""
    _KNOWN.trusted.add(EVERYTHING)


def handed_on() -> dict[str, str]:
    """Return the variable that tells a job which code this user has trusted; the latest hashes if many."""
    hashes = dict.fromkeys([*_lines(), *sorted(_KNOWN.trusted - {EVERYTHING})])
    return {HANDED: " ".join([*hashes][-MOST_HANDED:])} if hashes else {}


def state() -> Knowledge:
    """Return what a child of this process has to know."""
    return _KNOWN


def inherit(handed: Knowledge) -> None:
    """Take over what the parent of this process knows."""
    for mine, theirs in zip(_KNOWN, handed, strict=True):
        mine.update(theirs)


def check(reference: str) -> dict[str, str] | None:
    """Return which files of a reference may be imported: None for the user's own word, which knows no limit.

    Nothing is imported.

    Args:
        reference: What is to be imported.

    Returns:
        The path of each file below the place's root → SHA-256; none for an installed package.

    Raises:
        UntrustedCodeError: A file names it, and the user has neither named nor trusted it.
    """
    place = located(home := reference.rpartition(":")[0])
    if is_said(reference) or (installed(home) is None and reference in entry_references()):
        return None
    by_user = place is not None and is_user_code(place.file)
    if by_user and _stands_in(reference, _KNOWN.in_toml):
        return None
    files = hashes_at(place) if place is not None and by_user else {}  # of a library one file counts
    check_trusted(reference, place, files)
    return files


def check_trusted(
    reference: str, place: CodeLocation | None, files: Mapping[str, str], accepted: bool = False
) -> None:
    """Raise an UntrustedCodeError unless the user has trusted these files, which a reference needs.

    If the user says now that they may run (`accepted`, or --trust-code), they are listed and trusted.
    """
    needed = set(hashes_of(reference, place, files))
    where = f"{place.file} would be executed; " if place is not None else ""
    by_user = place is not None and is_user_code(place.file)
    listed = ", ".join(f"{name} ({digest[:12]})" for name, digest in files.items()) if by_user else "its code"
    if needed and needed <= _KNOWN.trusted | _noted():
        return
    if needed and (accepted or EVERYTHING in _KNOWN.trusted):
        trust(needed)
        log.warning("%s: %strusted from now on: %s", reference, where, listed)
    else:
        raise UntrustedCodeError(
            f"{reference}: {where}a file names it and not you, and this account has not begun a run with it; "
            f"read {listed or 'its code'}, and give --trust-code if it may run"
        )


def hashes_of(reference: str, place: CodeLocation | None, files: Mapping[str, str]) -> list[str]:
    """Return what is noted when the user trusts code: the hash of each file.

    For a function of an installed package it is one hash of its file and its name, so that no other function
    of that file is trusted with it.
    """
    if place is None or is_user_code(place.file):
        return list(files.values())
    defining = hashlib.sha256(Path(place.file).read_bytes()).hexdigest()
    return [hashlib.sha256(f"{reference} {defining}".encode()).hexdigest()]


def is_said(reference: str) -> bool:
    """Return whether the user has named a reference. What no file has named is the user's, too."""
    say(reference)
    return reference in _KNOWN.said or _stands_in(reference, _KNOWN.typed)


def _stands_in(reference: str, words: Iterable[str]) -> bool:
    """Return whether a whole reference stands in one of these texts, beside others or with an argument."""
    pattern = re.compile(rf"(?:^|[\s,;=\[('\"]){re.escape(reference)}(?!\w)")
    return any(pattern.search(word) for word in words)


def _was_read(reference: str) -> bool:
    return any(reference in text for text in _KNOWN.read)


def _noted() -> set[str]:
    return set(_lines())


def _lines() -> list[str]:
    try:
        return _place().read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []


def _place() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "raffed" / "own-code"


def texts_of(value: Read) -> set[str]:
    """Return the texts with a colon in plain data, which may be nested."""
    texts: set[str] = set()
    left: list[Read] = [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            texts.update([part] if ":" in part else [])
        elif isinstance(part, Mapping):
            left += [*part.keys(), *part.values()]
        elif isinstance(part, Sequence):
            left += part
    return texts
