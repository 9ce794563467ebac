"""The one place that writes vaults and servers to disk: safetensors plus a JSON outline, never a pickle.

A vault file is written when a client ends a round and named by the rounds done, so that a round can be redone
from the version before it. The outline names record classes and fields; reading one builds only classes that
the kernel registered, from checked tensors.
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

KEPT_VERSIONS = 3  # of a client's vault on disk
UNREADABLE = "unreadable"
HELD_BYTES = 512 * 2**20  # of vaults a host keeps in memory beside their files


def vault_file(store: Path, client: int, version: int) -> Path:
    """Where a store keeps a client's vault of a version."""
    return store / f"client-{client:06d}" / f"{version:06d}.safetensors"


class VaultStore:
    """The vaults of the clients of one host: in memory, and, given a folder, on disk by version.

    With a folder, memory holds the vaults used last, up to `limit` bytes; the others are read back when they
    are wanted. A folder keeps every client's newest version and the two before it: while a round trains, the
    one before it is being scored, and if that fails the run goes back to the one before that. `keeps`:
    whether the method keeps anything; with a method that does, a version that is gone is an error, not a
    fresh start.
    """

    def __init__(self, folder: Path | None, *, keeps: bool = True, limit: int = HELD_BYTES) -> None:
        self.folder, self.keeps, self.limit = folder, keeps, limit
        self._held: OrderedDict[int, tuple[int, ClientState, int]] = (
            OrderedDict()
        )  # client → version, vault, bytes; oldest first
        self.held_bytes = 0

    def get(self, client: int, version: int) -> ClientState | None:
        """The vault a client had after its part in round version − 1; None for version 0, or if the method
        keeps nothing.

                What is in memory is used if it is that version; otherwise another host trained the client
                since, or the round is being redone, and the version is read from disk.
        """
        if version == 0 or not self.keeps:
            return None
        held = self._held.get(client)
        if held is not None and held[0] == version:
            self._held.move_to_end(client)
            return held[1]
        if self.folder is None:
            raise ValueError(
                f"client {client}: version {version} of its vault is gone, and there is no folder to read it "
                f"from"
            )
        vault: ClientState = load_record(vault_file(self.folder, client, version), ClientState)
        self._hold(client, version, vault)
        return vault

    def put(self, client: int, done: int, vault: ClientState) -> None:
        """Keep a client's vault after its part in round done − 1."""
        if vault.empty:
            return
        self._hold(client, done, vault)
        if self.folder is not None:
            save_record(vault, vault_file(self.folder, client, done))
            files = sorted(vault_file(self.folder, client, done).parent.glob("[0-9]*.safetensors"))
            for path in files[:-KEPT_VERSIONS]:
                path.unlink(missing_ok=True)

    def digests(self, versions: dict[int, int]) -> dict[int, str]:
        """Client → digest of its vault of the given version."""
        vaults = ((client, self.get(client, version)) for client, version in sorted(versions.items()))
        return {client: digest(vault) for client, vault in vaults if vault is not None}

    def _hold(self, client: int, version: int, vault: ClientState) -> None:
        old = self._held.pop(client, None)
        size = sum(
            leaf.numel() * leaf.element_size()
            for leaf in pytree.tree_leaves(vault)
            if isinstance(leaf, Tensor)
        )
        self._held[client] = version, vault, size
        self.held_bytes += size - (old[2] if old else 0)
        while self.folder is not None and self.held_bytes > self.limit and len(self._held) > 1:
            _, (_, _, gone) = self._held.popitem(last=False)
            self.held_bytes -= gone


def freeze_vaults(
    store: Path, versions: Mapping[int, int], target: Path, known: Mapping[str, str]
) -> dict[str, str]:
    """Put the vaults of these clients, client → version, into a checkpoint: hard links where the file system
    has them, else copies. File → SHA-256 of its bytes, for all of them; `known` are those of the checkpoint
    before, which are not read again: a version of a vault is written once. A RunFolderError if one is
    missing: a checkpoint without it could not be resumed.
    """
    target.mkdir(parents=True)
    hashes = {}
    for client, version in sorted(versions.items()):
        source = vault_file(store, client, version)
        if not source.exists():
            raise RunFolderError(
                f"{source}: the vault of client {client} after round {version} is missing; no checkpoint made"
            )
        frozen = target / f"{source.parent.name}@{source.name}"
        _link(source, frozen)
        hashes[frozen.name] = known.get(frozen.name) or _file_sha256(frozen)
    return hashes


def frozen_vaults(folder: Path) -> list[Path]:
    """The vaults' files in a checkpoint."""
    return sorted(folder.glob("client-*@*.safetensors"))


def frozen_hashes(folder: Path) -> dict[str, str]:
    """File → SHA-256 of its bytes, or UNREADABLE, of the vaults in a checkpoint."""
    hashes = {}
    for path in frozen_vaults(folder):
        try:
            hashes[path.name] = _file_sha256(path)
        except OSError:
            hashes[path.name] = UNREADABLE
    return hashes


def _file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def thaw_vaults(source: Path, store: Path) -> None:
    """Make a checkpoint's vaults the only ones in the store."""
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    for path in frozen_vaults(source):
        folder, _, version = path.name.partition("@")
        (store / folder).mkdir(exist_ok=True)
        _link(path, store / folder / version)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
