"""Data of one's own, by a text that every process can resolve: `KIND:PATH?key=value`, or arrays in the cache.

The arrays go into the cache once, and a run names their hash. A later process finds them there, or reads them
again from where they came from and checks that they are the same.
"""

from __future__ import annotations

import types
from dataclasses import replace
from pathlib import Path
from typing import Final

from raffed.data.array_cache import CACHED, ArrayCache, StoredArrays
from raffed.data.catalogue import ALIASES, DATASETS, GROUP, dataset_name
from raffed.data.dataset import Dataset
from raffed.data.importers.reference import KINDS, guessed, parse_reference
from raffed.errors import DataFileError, UnknownNameError, UsageError
from raffed.own.gate import entry_points
from raffed.own.names import reference_of
from raffed.own.resolve import load
from raffed.own.user_code import may_be_called, user_errors

_KNOWN: Final = {*DATASETS, *ALIASES}


def is_own(text: str) -> bool:
    """Return whether a text names data of one's own: a file or folder, arrays in the cache, or code.

    Raises:
        UsageError: It begins as such a text and is mistyped.
    """
    return text.startswith(CACHED) or parse_reference(text) is not None or code_of(text) is not None


def code_of(text: str) -> str | None:
    """Return the reference of the code that makes a data set; None if no code of the user's does."""
    if text.startswith(CACHED) or parse_reference(text) is not None:
        return None
    return reference_of(_short(text), GROUP, _KNOWN)


def checked_name(text: str) -> str:
    """Return the canonical spelling of what was typed after `--dataset`. Nothing is read.

    Raises:
        UsageError: It is neither data of one's own nor a key of DATASETS.
    """
    if is_own(text):
        return _short(text.strip())
    try:
        return dataset_name(text)
    except UnknownNameError as error:
        if near := guessed(text):
            raise UsageError(f"unknown dataset {text!r}; did you mean {near}?") from error
        if ":" in text:
            kinds = ", ".join(f"{kind}:" for kind in KINDS)
            raise UsageError(f"unknown dataset {text!r}; data in files begin with {kinds}") from error
        if installed := entry_points(GROUP):
            raise UnknownNameError("dataset", text, {*DATASETS, *installed}) from error
        raise


def short_name(text: str) -> str:
    """Return a few words for a data set, for the name of a folder: `csv:a/wine.csv?label=y` is csv-wine."""
    if text.startswith(CACHED):
        return f"arrays-{text.removeprefix(CACHED)[:8]}"
    reference = parse_reference(text)
    if reference is not None:
        return f"{reference.kind}-{Path(reference.place).stem}"
    return text.rpartition(":")[2]


def _short(text: str) -> str:
    """Return an entry point in small letters, and any other text as it is."""
    return text.lower() if text.lower() in entry_points(GROUP) else text


def load_own(text: str, sha256: str = "", name: str = "") -> tuple[Dataset, str]:
    """Read data of one's own, and put its arrays into the cache.

    Args:
        text: `KIND:PATH?key=value`, `cache:HASH`, or a reference to a function of the user's that returns a
            `Dataset` (or to a `Dataset`).
        sha256: The hash that a run recorded; "" for a new run.
        name: The name that it recorded.

    Returns:
        The data set, and the hash under which its arrays lie in the cache.

    Raises:
        UsageError: The data cannot be used, or are not those of the run.
    """
    cache = ArrayCache.of_user()
    if text.startswith(CACHED):
        digest = text.removeprefix(CACHED)
        return Dataset.restored(_named(cache.get(digest), text, name)), digest
    if sha256 and cache.holds(sha256):
        return Dataset.restored(_named(cache.get(sha256), text, name)), sha256
    try:
        dataset = _imported(text)
    except DataFileError as error:
        if sha256:
            raise DataFileError(
                f"the data of this run ({sha256[:12]}…) are not in the cache {cache.folder}, and cannot be "
                f"read again: {error}"
            ) from error
        raise
    check_unchanged(text, dataset, sha256)
    return dataset, cache.put(dataset.stored())


def check_unchanged(text: str, dataset: Dataset, sha256: str) -> None:
    """Raise a DataFileError if data that were read do not have the hash that a run recorded, if it did."""
    if sha256 and (got := dataset.stored().sha256()) != sha256:
        raise DataFileError(
            f"{text} has changed since the run: its arrays had the hash {sha256[:12]}… and have {got[:12]}…; "
            f"put the old data back, or start a new run in another folder"
        )


def read_own(text: str) -> Dataset:
    """Read data of one's own without putting anything into the cache.

    Args:
        text: As `load_own`.

    Raises:
        UsageError: The data cannot be used.
    """
    if text.startswith(CACHED):
        return Dataset.restored(ArrayCache.of_user().get(text.removeprefix(CACHED)))
    return _imported(text)


def _named(stored: StoredArrays, text: str, name: str) -> StoredArrays:
    """Return arrays of the cache under the name that their run recorded, or that reading `text` gives them.

    An entry has the name under which it was last stored, but the same arrays may have several. The rows of a
    run that is resumed would then have two names.
    """
    reference = parse_reference(text)
    if reference is not None:
        stored = replace(stored, name=reference.place, source=reference.text)
    return replace(stored, name=name or stored.name)


def _imported(text: str) -> Dataset:
    reference = parse_reference(text)
    if reference is None:
        return _called(text)
    return Dataset.of(reference.load())


def _called(text: str) -> Dataset:
    """Return the data set that a user's function makes, or that a name of the user's holds."""
    loaded = load(reference_of(text, GROUP, _KNOWN) or text)
    function = isinstance(loaded, types.FunctionType) and may_be_called(loaded, "Dataset")
    with user_errors(text):
        dataset = loaded() if function and callable(loaded) else loaded
    if not isinstance(dataset, Dataset):
        raise UsageError(
            f"--dataset {text}: it gives a {type(dataset).__name__}; it must be a raffed.Dataset, or a "
            "function without arguments that returns one"
        )
    return dataset
