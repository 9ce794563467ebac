"""Folders of data that are divided between clients: those of LEAF and of PFLlib.

A folder of LEAF (Caldas et al. 2018), of any of its tasks, has train/*.json and test/*.json, or both in
data/. A file has the keys users, num_samples and user_data, which gives each user lists x and y of one
length.

A folder of PFLlib (Zhang et al. 2025, JMLR) is read and written: config.json, train/ID.npz, test/ID.npz.
Each npz file has one member `data`, a pickled dictionary with the arrays x and y of one client. A pickle may
run any code when it is read, so a reference is followed only if the user has named it (reference.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raffed.budget import check_file
from raffed.data.files import reading_npz
from raffed.data.importers.imported import TEST_SHARE, Columns, DataFacts, Imported, imported
from raffed.data.importers.values import Array, IntArray
from raffed.errors import DataFileError, UnknownNameError, UsageError, writing

if TYPE_CHECKING:
    import pyarrow as pa


User = Mapping[str, list[Any]]  # x and y


def import_leaf(folder: str | Path, *, test: float = TEST_SHARE, seed: int = 0, name: str = "") -> Imported:
    """Read a folder of LEAF's; the clients are its users.

    Users test on their own test samples (`--split natural`). Samples that are texts of one length, with
    single characters as labels, such as Shakespeare's, become ids of their characters. Other texts are
    refused, because a tokenizer is not raffed's.

    Args:
        folder: The folder with train and test, or the one whose folder `data` holds them.
        test: Fraction of the samples that becomes the test part if there is no folder test.
        seed: Decides which samples these are.
        name: Beginning of every message; by default the folder's name.

    Raises:
        DataFileError: A file is missing or damaged, or holds texts.
    """
    root = Path(folder).expanduser()
    root = root / "data" if (root / "data").is_dir() else root
    train = read_users(sorted((root / "train").glob("*.json")) or sorted((root / "all_data").glob("*.json")))
    if not train:
        raise DataFileError(f"{root}: there is no train/*.json; LEAF's scripts write train and test")
    tested = read_users(sorted((root / "test").glob("*.json"))) if (root / "train").is_dir() else {}
    parts = [train, tested] if tested else [train]
    samples = [sample for part in parts for user in part.values() for sample in user["x"]]
    labels = [label for part in parts for user in part.values() for label in user["y"]]
    characters = _characters(samples, labels, root)
    facts = DataFacts(notes=(f"{root}: x are ids of {len(characters)} characters",) if characters else ())
    return imported(
        name or str(folder),
        *(_columns(part, characters, root) for part in parts),
        share=0.0 if tested else test,
        seed=seed,
        facts=facts,
    )


def read_leaf_file(path: Path) -> dict[str, User]:
    """Return user → lists x and y of one length, as one file of LEAF's has them.

    Raises:
        DataFileError: The file cannot be read, or what it says of itself does not hold.
    """
    check_file(path, DataFileError)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as cause:
        raise DataFileError(f"{path} cannot be read as json: {cause}") from cause
    if not isinstance(content, dict):
        raise DataFileError(f"{path}: it must hold an object with users, num_samples and user_data")
    users, counts, data = (content.get(key) for key in ("users", "num_samples", "user_data"))
    if not (isinstance(users, list) and isinstance(counts, list) and isinstance(data, dict)):
        raise DataFileError(f"{path}: users and num_samples must be lists, and user_data an object")
    if sorted(map(repr, users)) != sorted(map(repr, data)) or len(counts) != len(users):
        raise DataFileError(f"{path}: users must be the keys of user_data, with one of num_samples for each")
    for user, count in zip(users, counts, strict=True):
        x, y = (data[user].get("x"), data[user].get("y")) if isinstance(data[user], dict) else (None, None)
        if not (isinstance(x, list) and isinstance(y, list)):
            raise DataFileError(f"{path}: user {user!r}: x and y must be lists")
        if not len(x) == len(y) == count:
            raise DataFileError(
                f"{path}: user {user!r} has {len(x)} samples and {len(y)} labels, and num_samples says "
                f"{count}; all three must be the same"
            )
    return {user: data[user] for user in users}


def read_users(paths: Sequence[Path]) -> dict[str, User]:
    """Return the users of several files who have samples, sorted by their names."""
    users: dict[str, User] = {}
    for path in paths:
        for user, data in read_leaf_file(path).items():
            if user in users:
                raise DataFileError(f"{path}: user {user!r} was already in another file")
            users[user] = data
    return {user: users[user] for user in sorted(users) if users[user]["y"]}


def _characters(samples: list[Any], labels: list[Any], root: Path) -> str:
    """Return the characters of samples that are texts of one length, sorted; "" if samples are no texts."""
    texts = [sample for sample in samples if isinstance(sample, str)]
    inner = [row for row in samples if isinstance(row, list) and any(isinstance(value, str) for value in row)]
    if not texts and not inner:
        return ""
    next_characters = all(isinstance(label, str) and len(label) == 1 for label in labels)
    if len(texts) < len(samples) or len(set(map(len, texts))) > 1 or not next_characters:
        raise DataFileError(
            f"{root}: x are texts, such as {(texts or inner)[0]!r:.60}; turn them into numbers or ids of one "
            "length with a tokenizer of your own, and give them as npz"
        )
    return "".join(sorted(set().union(*texts)))


def _columns(users: Mapping[str, User], characters: str, root: Path) -> Columns:
    x = [sample for user in users.values() for sample in user["x"]]
    number = {character: place for place, character in enumerate(characters)}
    try:
        samples = np.array([[number[character] for character in text] for text in x] if characters else x)
    except ValueError as error:
        raise DataFileError(f"{root}: samples have different lengths ({error})") from error
    labels = [label for user in users.values() for label in user["y"]]
    clients = np.repeat(np.array(list(users)), [len(user["y"]) for user in users.values()])
    return Columns(samples, list(map(repr, labels)) if characters else labels, clients)


Samples = tuple[Array, IntArray]


def import_pfllib(folder: str | Path, *, name: str = "") -> Imported:
    """Read a folder of PFLlib's; the clients are its files.

    A file's number is the client's name. Clients test on their own test samples (`--split natural`). The
    files are pickles, which may run any code: give only folders that you trust.

    Args:
        folder: The folder with config.json, train and test.
        name: Beginning of every message; by default the folder's name.

    Raises:
        DataFileError: A file is missing or damaged, or does not fit the others or config.json.
    """
    root = Path(folder).expanduser()
    train, test = _part(root / "train"), _part(root / "test")
    if absent := sorted(set(train) ^ set(test)):
        where = "test" if absent[0] in train else "train"
        raise DataFileError(
            f"{root / where / f'{absent[0]}.npz'} is missing; each client has a file in train and test"
        )
    others = sorted({path.parent.name for path in root.glob("*/*.npz")} - {"train", "test"})
    notes = [f"{root}: not used: {', '.join(others)}"] if others else []
    classes = {int(label) for _, y in train.values() for label in np.unique(y)}
    notes += _checked_config(root / "config.json", len(train), len(classes))
    parts = _joined(train, root / "train"), _joined(test, root / "test")
    return imported(name or str(folder), *parts, facts=DataFacts(notes=tuple(notes)))


def _part(folder: Path) -> dict[int, Samples]:
    """Return client → (x, y), in the order of their numbers."""
    paths: dict[int, Path] = {}
    for path in sorted(folder.glob("*.npz")):
        if not path.stem.isdecimal():
            raise DataFileError(f"{path}: the name is not a client's number, as in 0.npz")
        other = paths.setdefault(int(path.stem), path)
        if other != path:
            raise DataFileError(f"{other} and {path} are both client {int(path.stem)}; remove one")
    if not paths:
        raise DataFileError(f"{folder} holds no ID.npz; PFLlib's folders have train/ID.npz and test/ID.npz")
    return {client: _client(paths[client]) for client in sorted(paths)}


def _client(path: Path) -> Samples:
    with reading_npz(path, DataFileError), np.load(path, allow_pickle=True) as stored:
        held = stored["data"].item()
        x, y = np.asarray(held["x"]), np.asarray(held["y"])
    if not x.ndim or not y.ndim or len(x) != len(y):
        raise DataFileError(
            f"{path}: x has shape {x.shape}, y {y.shape}, but there must be one label per sample"
        )
    return x, y


def _joined(clients: Mapping[int, Samples], folder: Path) -> Columns:
    kinds = {
        client: f"{_meaning(x)} {x.shape[1:]}, labels {y.shape[1:]}" for client, (x, y) in clients.items()
    }
    wanted = next(iter(kinds.values()))
    for client, kind in kinds.items():
        if kind != wanted:
            raise DataFileError(
                f"{folder / f'{client}.npz'}: samples are {kind}, the first client's {wanted}; give all "
                "clients one type and shape"
            )
    sizes = [len(y) for _, y in clients.values()]
    x = np.concatenate([x for x, _ in clients.values()])
    y = np.concatenate([y for _, y in clients.values()])
    return Columns(x, y, np.repeat(np.array(list(clients), dtype=np.int64), sizes))


def _meaning(x: Array) -> str:
    """Return what samples are by their type, as `as_features` takes it."""
    if x.dtype == np.uint8:
        return "pixels (uint8)"
    return "numbers" if x.dtype.kind in "fb" else "ids (integers)" if x.dtype.kind in "iu" else str(x.dtype)


def _checked_config(path: Path, clients: int, classes: int) -> list[str]:
    """Compare what config.json says with what was read. Folders that were made by hand have none."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path} cannot be read: {error}") from error
    stated = about if isinstance(about, dict) else {}
    if stated.get("num_clients", clients) != clients:
        raise DataFileError(
            f"{path} names {stated['num_clients']} clients, but {path.parent / 'train'} holds {clients} files"
        )
    if stated.get("num_classes", classes) == classes:
        return []
    return [f"{path} names {stated['num_classes']} classes, and the training samples have {classes}"]


# Write a divided data set for another tool: PFLlib's folders, or Parquet for flwr-datasets.


EXPORTS = {"pfllib": "pfllib:DIR", "flwr": "flwr:DIR"}
_FLWR = """Written by raffed for flwr-datasets. One client is one partition:

from flwr_datasets import FederatedDataset
from flwr_datasets.partitioner import NaturalIdPartitioner

clients = NaturalIdPartitioner(partition_by="client")
data = FederatedDataset(dataset={place!r}, partitioners={{"train": clients}})
"""


@dataclass(frozen=True, eq=False)
class DividedData:
    """The samples of every client.

    Attributes:
        train, test: For each client, its samples [n, ...] and labels [n]. Test parts may have 0 rows.
        num_classes: Number of classes.
        split: How the data were divided, in words.
        max_value: The value in uint8 that means 1.0.
    """

    train: Sequence[tuple[Array, IntArray]]
    test: Sequence[tuple[Array, IntArray]]
    num_classes: int
    split: str
    max_value: int = 255


def export(data: DividedData, target: str) -> Path:
    """Write divided data.

    Args:
        data: The samples of every client.
        target: "pfllib:DIR" or "flwr:DIR". The folder must not exist, or be empty.

    Returns:
        The folder.

    Raises:
        UsageError: The target is of another kind, exists already, or cannot hold these data.
    """
    kind, colon, place = target.partition(":")
    if kind not in EXPORTS:
        raise UnknownNameError("kind of export", kind, EXPORTS)
    if not colon or not place.strip():
        raise UsageError(f"--export {target}: give {EXPORTS[kind]}")
    path = Path(place).expanduser()
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UsageError(f"--export {target}: {path} exists already; choose another place")
    with writing(path, "--export"):
        path.mkdir(parents=True, exist_ok=True)
        if kind == "flwr":
            _write_flwr(data, path)
        else:
            write_pfllib(path, data)
    return path


def write_pfllib(folder: Path, data: DividedData) -> None:
    """Write the samples of every client as PFLlib's own scripts do.

    Args:
        folder: An empty folder.
        data: The samples.

    Raises:
        UsageError: A client has no test samples.
    """
    without = [client for client, (_, y) in enumerate(data.test) if not len(y)]
    if without:
        raise UsageError(
            f"PFLlib tests every client on samples of its own, and client {without[0]} has none; give "
            f"--local-test 0.2"
        )
    counts = []
    for client, parts in enumerate(zip(data.train, data.test, strict=True)):
        labels, sizes = np.unique(np.concatenate([y for _, y in parts]), return_counts=True)
        counts.append([[int(label), int(size)] for label, size in zip(labels, sizes, strict=True)])
        for part, (x, y) in zip(("train", "test"), parts, strict=True):
            (folder / part).mkdir(exist_ok=True)
            # PFLlib reads a pickled dictionary with this name
            held = np.array({"x": plain(x, data.max_value), "y": y}, dtype=object)
            np.savez_compressed(folder / part / f"{client}.npz", data=held)
    about = {
        "num_clients": len(data.train),
        "num_classes": data.num_classes,
        "non_iid": not data.split.startswith("iid"),
        "balance": len({len(y) for _, y in data.train}) == 1,
        "partition": data.split,
        "Size of samples for labels in clients": counts,
        "alpha": None,
        "batch_size": 10,
    }
    (folder / "config.json").write_text(json.dumps(about), encoding="utf-8")


def _write_flwr(data: DividedData, folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    for name, parts in (("train", data.train), ("test", data.test)):
        x = np.concatenate([plain(x, data.max_value) for x, _ in parts])
        y = np.concatenate([y for _, y in parts])
        if len(y):
            clients = np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts])
            columns = {"x": _lists(x), "y": pa.array(y), "client": pa.array(clients)}
            parquet.write_table(pa.table(columns), folder / f"{name}.parquet")
    (folder / "README.txt").write_text(_FLWR.format(place=str(folder)), encoding="utf-8")


def plain(x: Array, max_value: int) -> Array:
    """Return pixels as float32 in [0, 1], as other tools want them, and other samples as they are."""
    return x.astype(np.float32) / np.float32(max_value) if x.dtype == np.uint8 else x


def _lists(x: Array) -> pa.Array:
    """Return samples [N, ...] as nested lists of fixed lengths."""
    import pyarrow as pa

    lists = pa.array(x.reshape(-1))
    for side in reversed(x.shape[1:]):
        lists = pa.FixedSizeListArray.from_arrays(lists, side)
    return lists
