"""The one place that writes client states to disk: safetensors plus a JSON outline, never a pickle.

A file is written when a client ends a round, and is named by the number of rounds done. So a round can be
repeated from the version before it. The outline names record classes and fields. Reading it only builds
registered record classes, from checked tensors.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.core.messages import ClientState
from raffed.errors import RunFolderError
from raffed.runtime.record_codec import digest, load_record, save_record

KEPT_VERSIONS = 3  # of a client's state on disk
UNREADABLE = "unreadable"
HELD_BYTES = 512 * 2**20  # of client states that a worker keeps in memory in addition to their files


def client_state_file(store: Path, client: int, version: int) -> Path:
    """Return where a store keeps a client's state of a version."""
    return store / f"client-{client:06d}" / f"{version:06d}.safetensors"


class ClientStateStore:
    """The states of the clients of one worker: in memory and, if a folder is given, on disk by version.

    With a folder, memory holds the states used last, and the others are read back when they are needed. A
    folder keeps every client's newest version and the two before it. While a round trains, the round before
    it is being scored. If that fails, the run goes back to the version before.

    Args:
        folder: Where states are written, or None to keep all of them in memory.
        keeps: Whether the method keeps anything. If it does, a missing version is an error and not a fresh
            start.
        limit: Bytes of states that are held in memory if there is a folder.
    """

    def __init__(self, folder: Path | None, *, keeps: bool = True, limit: int = HELD_BYTES) -> None:
        self.folder, self.keeps, self.limit = folder, keeps, limit
        self._held: OrderedDict[int, tuple[int, ClientState, int]] = (
            OrderedDict()
        )  # client → version, state, bytes; oldest first
        self.held_bytes = 0

    def get(self, client: int, version: int) -> ClientState | None:
        """Return the state that a client had after its part in round version − 1.

        It is None for version 0, or if the method keeps nothing. The state in memory is used if it has that
        version. Otherwise another worker has trained the client since, or the round is being repeated, and
        the version is read from disk.
        """
        if version == 0 or not self.keeps:
            return None
        held = self._held.get(client)
        if held is not None and held[0] == version:
            self._held.move_to_end(client)
            return held[1]
        if self.folder is None:
            raise ValueError(
                f"client {client}: version {version} of its state is gone, and there is no folder to read it "
                f"from"
            )
        client_state: ClientState = load_record(client_state_file(self.folder, client, version), ClientState)
        self._hold(client, version, client_state)
        return client_state

    def put(self, client: int, done: int, client_state: ClientState) -> None:
        """Keep a client's state after its part in round done − 1.

        If the method keeps something, a state without numbers is kept as well, since it will be asked for: a
        part of the network can be empty, as BatchNorm's is in a network without it.
        """
        if client_state.empty and not self.keeps:
            return
        self._hold(client, done, client_state)
        if self.folder is not None:
            save_record(client_state, client_state_file(self.folder, client, done))
            files = sorted(client_state_file(self.folder, client, done).parent.glob("[0-9]*.safetensors"))
            for path in files[:-KEPT_VERSIONS]:
                path.unlink(missing_ok=True)

    def digests(self, versions: dict[int, int]) -> dict[int, str]:
        """Return the digest of each client's state of the given version."""
        client_states = ((client, self.get(client, version)) for client, version in sorted(versions.items()))
        return {
            client: digest(client_state) for client, client_state in client_states if client_state is not None
        }

    def _hold(self, client: int, version: int, client_state: ClientState) -> None:
        old = self._held.pop(client, None)
        size = sum(
            leaf.numel() * leaf.element_size()
            for leaf in pytree.tree_leaves(client_state)
            if isinstance(leaf, Tensor)
        )
        self._held[client] = version, client_state, size
        self.held_bytes += size - (old[2] if old else 0)
        while self.folder is not None and self.held_bytes > self.limit and len(self._held) > 1:
            _, (_, _, gone) = self._held.popitem(last=False)
            self.held_bytes -= gone


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
    hashes = {}
    for client, version in sorted(versions.items()):
        source = client_state_file(store, client, version)
        if not source.exists():
            raise RunFolderError(
                f"{source}: the state of client {client} after round {version} is missing, so no "
                "checkpoint was made"
            )
        target_file = target / f"{source.parent.name}@{source.name}"
        _link(source, target_file)
        hashes[target_file.name] = known.get(target_file.name) or file_sha256(target_file)
    return hashes


def saved_client_states(folder: Path) -> list[Path]:
    """Return the files of client states in a checkpoint."""
    return sorted(folder.glob("client-*@*.safetensors"))


def saved_hashes(folder: Path) -> dict[str, str]:
    """Return file → SHA-256 of its bytes, or UNREADABLE, for the client states in a checkpoint."""
    hashes = {}
    for path in saved_client_states(folder):
        try:
            hashes[path.name] = file_sha256(path)
        except OSError:
            hashes[path.name] = UNREADABLE
    return hashes


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of the bytes of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def restore_client_states(source: Path, store: Path) -> None:
    """Make a checkpoint's client states the only ones in the store."""
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    for path in saved_client_states(source):
        folder, _, version = path.name.partition("@")
        (store / folder).mkdir(exist_ok=True)
        _link(path, store / folder / version)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # the target is on another file system, or hard links are not supported
        shutil.copy2(source, target)
