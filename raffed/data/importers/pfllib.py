"""Data divided by PFLlib (Zhang et al. 2025, JMLR): a folder with config.json, train/ID.npz and test/ID.npz.

Each npz file has one member `data`, a pickled dictionary with the arrays x and y of one client.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from raffed.budget import allow, check_file
from raffed.data.importers.imported import Columns, DataFacts, Imported, imported
from raffed.data.importers.safe_pickle import load_plain
from raffed.errors import DataFileError, check_permitted

Array = npt.NDArray[np.generic]


def import_pfllib(folder: str | Path, *, name: str = "", source: str = "") -> Imported:
    """Read a folder of PFLlib's; the clients are its files.

    A file's number is the client's name. Clients test on their own test samples (`--split natural`).

    Args:
        folder: The folder with config.json, train and test.
        name: Beginning of every message; by default the folder's name.
        source: Where the data came from, as typed.

    Raises:
        DataFileError: A file is missing or damaged, holds more than arrays, or does not fit config.json.
    """
    root = Path(folder).expanduser()
    name = name or str(folder)
    train = _part(root, "train")
    test = _part(root, "test")
    _check_config(root, sorted(train))
    if absent := sorted(set(train) ^ set(test)):
        where = "test" if absent[0] in train else "train"
        raise DataFileError(
            f"{root / where / f'{absent[0]}.npz'} is missing; each client has a file in train and test"
        )
    others = [path.parent.name for path in sorted(root.glob("*/*.npz"))]
    spare = [one for one in dict.fromkeys(others) if one not in ("train", "test")]
    notes = (f"{root}: not used: {', '.join(spare)}",) if spare else ()
    parts = _joined(train, root / "train"), _joined(test, root / "test")
    return imported(name, *parts, source=source, facts=DataFacts(notes=notes))


def _part(root: Path, part: str) -> dict[int, tuple[Array, Array]]:
    """Return client → (x, y), in the order of their numbers."""
    folder = root / part
    if not folder.is_dir():
        raise DataFileError(
            f"{folder} is missing; PFLlib's folders have config.json, train/ID.npz and test/ID.npz"
        )
    paths: dict[int, Path] = {}
    for path in sorted(folder.glob("*.npz")):
        if not path.stem.isdecimal():
            raise DataFileError(f"{path}: the name is not a client's number, as in 0.npz")
        other = paths.setdefault(int(path.stem), path)
        if other != path:
            raise DataFileError(f"{other} and {path} are both client {int(path.stem)}; remove one")
    if not paths:
        raise DataFileError(f"{folder} holds no npz files")
    return {client: _client(paths[client]) for client in sorted(paths)}


def _client(path: Path) -> tuple[Array, Array]:
    try:
        check_file(path, DataFileError)
        with zipfile.ZipFile(path) as archive:
            if archive.namelist() != ["data.npy"]:
                raise DataFileError(
                    f"{path} holds {', '.join(archive.namelist()[:5])}, but must hold only data.npy"
                )
            allow(archive.getinfo("data.npy").file_size, f"{path}, unpacked,", DataFileError)
            with archive.open("data.npy") as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0
                shape, _, kind = (
                    read(file) if version == (1, 0) else np.lib.format.read_array_header_2_0(file)
                )
                if kind.kind != "O" or shape != ():
                    raise DataFileError(
                        f"{path}: data.npy is {kind} {shape}, but must be one pickled dictionary"
                    )
                found = load_plain(file, str(path))  # type: ignore[arg-type]
    except DataFileError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        check_permitted(path, error)
        raise DataFileError(f"{path} cannot be read as an npz file: {error}") from error
    if not {"x", "y"} <= found.keys():
        raise DataFileError(f"{path} holds {', '.join(found) or 'nothing'}, but must hold x and y")
    x, y = found["x"], found["y"]
    if not x.ndim or not y.ndim or len(x) != len(y):
        raise DataFileError(
            f"{path}: x has shape {np.shape(x)}, y {np.shape(y)}, but there must be one label per sample"
        )
    return x, y


def _joined(clients: dict[int, tuple[Array, Array]], folder: Path) -> Columns:
    first, labels = next(iter(clients.values()))
    for client, (x, y) in clients.items():
        if y.ndim != labels.ndim:
            raise DataFileError(
                f"{folder / f'{client}.npz'}: y has shape {y.shape}, the first client's {labels.shape}"
            )
        if _meaning(x) != _meaning(first):
            raise DataFileError(
                f"{folder / f'{client}.npz'}: samples are {x.dtype}, the first client's {first.dtype}; uint8 "
                "holds pixels, floats are used as they are, and other integers are ids, so give one type"
            )
        if x.shape[1:] != first.shape[1:]:
            raise DataFileError(
                f"{folder / f'{client}.npz'}: samples have shape {x.shape[1:]}, the first client's "
                f"{first.shape[1:]}"
            )
    sizes = [len(y) for _, y in clients.values()]
    x = np.concatenate([x for x, _ in clients.values()])
    y = np.concatenate([y for _, y in clients.values()])
    return Columns(x, y, np.repeat(np.array(list(clients), dtype=np.int64), sizes))


def _meaning(x: Array) -> str:
    """Return what samples are by their type, as `as_features` takes it."""
    if x.dtype == np.uint8:
        return "pixels"
    return "numbers" if x.dtype.kind in "fb" else "ids" if x.dtype.kind in "iu" else str(x.dtype)


def _check_config(root: Path, clients: list[int]) -> None:
    """Check that config.json, which says how the folder was made, names as many clients."""
    path = root / "config.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        # Folders that were made by hand have none
        return
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path} cannot be read: {error}") from error
    count = found.get("num_clients") if isinstance(found, dict) else None
    if count is not None and count != len(clients):
        raise DataFileError(f"{path} names {count} clients, but {root / 'train'} holds {len(clients)} files")
