"""Records as files: safetensors plus a JSON outline, never a pickle.

The outline names record classes and fields. Reading an outline only builds registered record classes, from
checked tensors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save
from torch import Tensor

from raffed.config.validation import Json
from raffed.core.messages import Private, ServerState
from raffed.core.method import Method
from raffed.core.params import Params, Record, State, fields_of, stored_name
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
