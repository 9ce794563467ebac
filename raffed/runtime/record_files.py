"""Records as files, and the private states of clients: in memory, on disk and in a checkpoint.

A record is a file of safetensors plus a JSON outline, never a pickle. The outline names record classes and
fields. Reading an outline only builds registered record classes, from checked tensors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.config.validation import Json
from raffed.core.messages import ClientState, Private, ServerState
from raffed.core.method import Method
from raffed.core.params import REGISTRY, Params, Record, State, fields_of, stored_name
from raffed.errors import RunFolderError, check_permitted

K = TypeVar("K", bound=Record)
Arrays = dict[str, NDArray[Any]]


def outline(value: Any, path: str, arrays: Arrays) -> dict[str, Json]:
    """Return the JSON outline of a record. Its tensors are put into `arrays` under their paths."""
    if isinstance(value, Params):
        for name, tensor in value.tensors.items():
            arrays[f"{path}/{name}"] = np.array(tensor.detach().cpu().numpy(), order="C")
        return {"params": [*value.names]}
    if isinstance(value, Tensor):
        arrays[path] = np.array(value.detach().cpu().numpy(), order="C")
        return {"tensor": True}
    if isinstance(value, Record):
        inner: dict[str, Json] = {
            name: outline(field, f"{path}.{name}", arrays) for name, field in fields_of(value).items()
        }
        return {"record": stored_name(type(value)), "fields": inner}
    if isinstance(value, dict):
        return {"slots": {key: outline(slot, f"{path}[{key}]", arrays) for key, slot in value.items()}}
    if value is None or isinstance(value, int | float | str):
        return {"plain": value}
    raise TypeError(f"{path}: a {type(value).__name__} cannot be stored")


def rebuild(shape: Any, path: str, arrays: Arrays, records: Mapping[str, type[Record]]) -> Any:
    """Return the record that `outline` described.

    Args:
        shape: The outline.
        path: The path that `outline` was called with.
        arrays: The tensors, by their paths.
        records: The classes that the outline may name (`Method.records`).

    Raises:
        KeyError, TypeError, ValueError: The outline and the arrays do not fit together.
    """
    if "params" in shape:
        return Params({name: torch.from_numpy(arrays[f"{path}/{name}"]) for name in shape["params"]}).clone()
    if "tensor" in shape:
        return torch.from_numpy(arrays[path])
    if "record" in shape:
        inner = {
            name: rebuild(each, f"{path}.{name}", arrays, records) for name, each in shape["fields"].items()
        }
        return _checked(records[shape["record"]](**inner))
    if "slots" in shape:
        return {key: rebuild(each, f"{path}[{key}]", arrays, records) for key, each in shape["slots"].items()}
    return shape["plain"]


_KINDS = {"Params": Params, "State": State, "Tensor": Tensor, "int": int}


def _checked(record: Record) -> Record:
    """Return the record if its fields are of the kinds that its class declares."""
    for field in dataclasses.fields(record):  # type: ignore[arg-type]
        kind = dict if str(field.type).startswith("dict") else _KINDS.get(str(field.type), object)
        if not isinstance(getattr(record, field.name), kind):
            raise TypeError(f"{type(record).__name__}.{field.name} is not a {field.type}")
    return record


def digest(record: Record) -> str:
    """Return the SHA-256 of a client state, a server state or a message.

    It covers the outline, and the name, type, shape and bytes of every tensor.
    """
    arrays: Arrays = {}
    return _digest_of(json.dumps(outline(record, "", arrays), sort_keys=True), arrays)


def _digest_of(text: str, arrays: Arrays) -> str:
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        total.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        total.update(arrays[name].tobytes())
    return total.hexdigest()


def save_record(record: Private, path: Path) -> None:
    """Write a record atomically: into a temporary file beside the target, which is then renamed."""
    arrays: Arrays = {}
    shape = json.dumps(outline(record, "", arrays), sort_keys=True)
    # Parents are not made, because a run's folder that was removed must not come back
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        part.open("xb").close()  # only a new file, so that a link of that name is not followed
        # Not save_file, whose errors lack errno and whose files have mode 600
        part.write_bytes(save(arrays, metadata={"outline": shape}))
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def load_record(path: Path, kind: type[K], records: Mapping[str, type[Record]]) -> K:
    """Read what `save_record` wrote.

    Args:
        path: The file.
        kind: What it must hold.
        records: The classes that the file may name: `Method.records` of the run that wrote it.

    Raises:
        RunFolderError: The file is damaged or holds another kind of record.
    """
    with _reading(path, kind):
        with safe_open(path, framework="np") as stream:
            shape = json.loads(stream.metadata()["outline"])
            arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 (not a dict)
        record = rebuild(shape, "", arrays, records)
    if not isinstance(record, kind):
        raise RunFolderError(f"{path}: holds a {type(record).__name__}, but must hold a {kind.__name__}")
    return record


@contextlib.contextmanager
def _reading(path: Path, kind: type[Record]) -> Iterator[None]:
    """Turn what goes wrong while a file is read into a RunFolderError."""
    try:
        yield
    except (
        OSError,
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        check_permitted(path, error)
        raise RunFolderError(
            f"{path}: cannot be read as a {kind.__name__} ({error}); restore the file"
        ) from error


def saved_digest(path: Path, kind: type[Private]) -> str:
    """Return the digest of the record in a file that `save_record` wrote, without making the record.

    Raises:
        RunFolderError: The file is damaged or holds another kind of record.
    """
    with _reading(path, kind):
        raw = path.read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        text = header["__metadata__"]["outline"]
        recorded = json.loads(text)["record"]
        if recorded != stored_name(kind):
            raise ValueError(f"it holds a {recorded}")
        return _digest_of(text, load(raw))


def load_server(path: Path, method: Method) -> ServerState:
    return load_record(path, ServerState, method.records)


# The files of client states: in the store of a run that is being executed, and in its checkpoints.
#
# A store has a folder for every 128 clients, because a file system takes longer to make and remove a folder
# than a file. A checkpoint has all its files in one folder. A file has the same name in both.


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
        return sorted(int(name[len(start) : -len(end)]) for name in names if name.startswith(start))
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
        return sorted(name for name in names if name.startswith("client-") and name.endswith(".safetensors"))
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
    folders, begin, end = set(), os.fspath(source), os.fspath(store)
    for name in _names(source):
        if (parts := _NAME.fullmatch(name)) is None:
            continue
        folder = _folder_of(int(parts[1]))
        if folder not in folders:
            (store / folder).mkdir()
            folders.add(folder)
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


# The one place that writes client states to disk: safetensors plus a JSON outline, never a pickle.
#
# A file is written when a client ends a round, and is named by the number of rounds done. So a round can be
# repeated from the version before it. The outline names record classes and fields. Reading it only builds
# registered record classes, from checked tensors.


KEPT_VERSIONS = 3  # of a client's state on disk
HELD_BYTES = 512 * 2**20  # of client states that a worker keeps in memory in addition to their files


class ClientStateStore:
    """The states of the clients of one worker: in memory and, if a folder is given, on disk by version.

    With a folder, memory holds the states used last, and the others are read back when they are needed. A
    folder keeps every client's newest version and the two before it. While a round trains, the round before
    it is being scored. If that fails, the run goes back to the version before.

    Args:
        folder: Where states are written, or None to keep all of them in memory.
        keeps: Whether the run's method keeps anything. If so, a missing version is an error and not a fresh
            start.
        limit: Bytes of states that are held in memory if there is a folder.
    """

    def __init__(self, folder: Path | None, keeps: bool, *, limit: int = HELD_BYTES) -> None:
        self.folder, self.limit, self.keeps = folder, limit, keeps
        # Client → version, state, bytes; oldest first
        self._held: OrderedDict[int, tuple[int, ClientState, int]] = OrderedDict()
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
        file = client_state_file(self.folder, client, version)
        client_state: ClientState = load_record(file, ClientState, REGISTRY)
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
            for old in versions_in(self.folder, client)[:-KEPT_VERSIONS]:
                client_state_file(self.folder, client, old).unlink(missing_ok=True)

    def digests(self, versions: dict[int, int]) -> dict[int, str]:
        """Return the digest of each client's state of the given version.

        States that are not in memory are not made again from their files, whose contents are enough.
        """
        digests = {}
        for client, version in sorted(versions.items()):
            if self.folder is not None and self.keeps and version and not self._holds(client, version):
                digests[client] = saved_digest(client_state_file(self.folder, client, version), ClientState)
            elif (client_state := self.get(client, version)) is not None:
                digests[client] = digest(client_state)
        return digests

    def _holds(self, client: int, version: int) -> bool:
        held = self._held.get(client)
        return held is not None and held[0] == version

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
