"""Folders of LEAF (Caldas et al. 2018), of any of its tasks: train/*.json and test/*.json, or both in data/.

A file has the keys users, num_samples and user_data, which gives each user lists x and y of one length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from raffed.budget import check_file
from raffed.data.importers.imported import TEST_SHARE, Columns, DataFacts, Imported, imported
from raffed.errors import DataFileError

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
