"""The files of client states: in the store of a run that is being executed, and in its checkpoints.

A store has a folder for every 128 clients, because a file system takes longer to make and remove a folder
than a file. A checkpoint has all its files in one folder. A file has the same name in both.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from raffed.errors import RunFolderError

UNREADABLE = "unreadable"
CLIENTS_IN_A_FOLDER = 128
_NAME = re.compile(r"client-(\d{6,})@(\d{6,})\.safetensors")


def client_state_name(client: int, version: int) -> str:
    """Return the name of the file of a client's state of a version."""
    return f"client-{client:06d}@{version:06d}.safetensors"


def client_state_file(store: Path, client: int, version: int) -> Path:
    """Return where a store keeps a client's state of a version."""
    return store / _folder_of(client) / client_state_name(client, version)


def _folder_of(client: int) -> str:
    return f"clients-{client - client % CLIENTS_IN_A_FOLDER:06d}"


def versions_in(store: Path, client: int) -> list[int]:
    """Return the versions of a client's state that a store has, oldest first."""
    start, end = f"client-{client:06d}@", ".safetensors"
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(store / _folder_of(client))
        return sorted(int(one[len(start) : -len(end)]) for one in names if one.startswith(start))
    return []


def save_client_states(
    store: Path, versions: Mapping[int, int], target: Path, known: Mapping[str, str]
) -> dict[str, str]:
    """Put client states into a checkpoint, as hard links if possible, and otherwise as copies.

    Args:
        store: Folder of the states.
        versions: Client → version.
        target: Folder in the checkpoint.
        known: Hashes of the checkpoint before. Files that are in it are not read again, because a version is
            written only once.

    Returns:
        File → SHA-256 of its bytes.

    Raises:
        RunFolderError: A state is missing, so the checkpoint could not be resumed.
    """
    target.mkdir(parents=True)
    hashes, begin, end = {}, os.fspath(store), os.fspath(target)
    for client, version in sorted(versions.items()):
        name = client_state_name(client, version)
        source, there = f"{begin}/{_folder_of(client)}/{name}", f"{end}/{name}"
        try:
            link(source, there)
        except FileNotFoundError as error:
            raise RunFolderError(
                f"{source}: the state of client {client} after round {version} is missing, so no "
                "checkpoint was made"
            ) from error
        hashes[name] = known.get(name) or file_sha256(there)
    return hashes


def saved_client_states(folder: Path) -> list[Path]:
    """Return the files of client states in a checkpoint."""
    return [folder / name for name in _names(folder)]


def _names(folder: Path) -> list[str]:
    """Return the names of the files of client states in a checkpoint, in order."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        names = os.listdir(folder)
        return sorted(one for one in names if one.startswith("client-") and one.endswith(".safetensors"))
    return []


def saved_hashes(folder: Path) -> dict[str, str]:
    """Return file → SHA-256 of its bytes, or UNREADABLE, for the client states in a checkpoint."""
    hashes, begin = {}, os.fspath(folder)
    for name in _names(folder):
        try:
            hashes[name] = file_sha256(f"{begin}/{name}")
        except OSError:
            hashes[name] = UNREADABLE
    return hashes


def file_sha256(path: str) -> str:
    """Return the SHA-256 (hex) of the bytes of a file."""
    with open(path, "rb", buffering=0) as file:
        return hashlib.sha256(file.read()).hexdigest()


def restore_client_states(source: Path, store: Path) -> None:
    """Make a checkpoint's client states the only ones in the store."""
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    made, begin, end = set(), os.fspath(source), os.fspath(store)
    for name in _names(source):
        if (parts := _NAME.fullmatch(name)) is None:
            continue
        folder = _folder_of(int(parts[1]))
        if folder not in made:
            (store / folder).mkdir()
            made.add(folder)
        link(f"{begin}/{name}", f"{end}/{folder}/{name}")


def link(source: str, target: str) -> None:
    """Make a hard link, or a copy if the target is on another file system or cannot have links.

    Raises:
        FileNotFoundError: There is no such file.
    """
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)
