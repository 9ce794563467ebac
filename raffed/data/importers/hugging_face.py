"""Data sets of Hugging Face's library `datasets` (an optional extra), and partitions of flwr-datasets.

Local folders and arrow files are read without a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.data.importers.arrays import import_arrays
from raffed.data.importers.image_folder import stacked_images
from raffed.data.importers.imported import TEST_SHARE, DataFacts, Imported
from raffed.data.importers.tables import import_table
from raffed.data.importers.values import chosen_parts, renumbered
from raffed.errors import DataFileError, UnknownNameError, UsageError

if TYPE_CHECKING:
    import datasets as hf

Array = npt.NDArray[np.generic]
INSTALL = "Hugging Face's library is not installed: pip install 'raffed[hf]'"


def import_hf(
    data: hf.Dataset,
    *,
    image: str = "",
    x: str = "",
    label: str = "label",
    client: str = "",
    test_data: hf.Dataset | None = None,
    features: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    size: int = 0,
    colour: str = "auto",
    test: float = TEST_SHARE,
    seed: int = 0,
    name: str = "hf",
    source: str = "",
    notes: tuple[str, ...] = (),
) -> Imported:
    """Read a data set of Hugging Face's.

    Args:
        data: The training part.
        image: Column of images. By default the only column of images, if there is one.
        x: Column of numbers or of lists of equal lengths, such as token ids.
        label: Column of the classes. The names of a ClassLabel are kept.
        client: Column of the clients.
        test_data: The test part, if there is one.
        features, drop: Columns of a table; see `import_table`. Used without `image` and `x`.
        size, colour: See `import_folder`.
        test: Fraction of the rows that becomes the test set if there is no test part.
        seed: Decides which rows are drawn.
        name: Beginning of every message.
        source: Where the data came from, as typed.
        notes: What a user may not expect of the parts.

    Raises:
        UsageError: A column is missing or cannot be used. The message names the column and row.
    """
    image = image or ("" if x or features else _image_column(data))
    if not image and not x:
        return _table(data, test_data, label, client, features, drop, test, seed, name, source, notes)
    parts = [data] if test_data is None else [data, test_data]
    samples = [
        _images(part, image, size, colour, name) if image else _column(part, x, name) for part in parts
    ]
    labels = [_named(part, data, label, name) for part in parts]
    owners = [_named(part, data, client, name) if client else None for part in parts[:1]]
    # A test part without the column belongs to nobody
    owners += [
        _named(part, data, client, name) if client in part.column_names else None for part in parts[1:]
    ]
    return import_arrays(
        samples[0],
        labels[0],
        x_test=samples[1] if test_data is not None else None,
        y_test=labels[1] if test_data is not None else None,
        clients=owners[0],
        test_clients=owners[1] if test_data is not None else None,
        class_names=_names(data, label, labels[0]),
        test=0.0 if test_data is not None else test,
        seed=seed,
        name=name,
        source=source,
        facts=DataFacts("images" if image else "arrays", notes, resized=bool(image and size)),
    )


def import_hf_place(
    place: str,
    *,
    image: str = "",
    x: str = "",
    label: str = "label",
    client: str = "",
    features: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    size: int = 0,
    colour: str = "auto",
    split: str = "",
    test_split: str = "",
    test: float = TEST_SHARE,
    seed: int = 0,
    name: str = "",
    source: str = "",
) -> Imported:
    """Read a folder that `save_to_disk` wrote, an arrow file, a folder of data files, or a name of the hub's.

    Args:
        place: The folder, file or name.
        split: The part that is trained on; by default the one named train, training or alike.
        test_split: The part that is tested on; by default the one named test, testing or alike, and the
            validation part if there is none.
        image, x, label, client, features, drop, size, colour, test, seed, name, source: See `import_hf`.

    Raises:
        UsageError: The place cannot be read, has no such part, or cannot be used.
    """
    parts = load_parts(place)
    for one in (split, test_split):
        if one and one not in parts:
            raise UnknownNameError(f"split of {place}", one, parts)
    chosen = chosen_parts(place, {key: len(part) for key, part in parts.items()}, split, test_split)
    if chosen is None:
        raise UnknownNameError(f"split of {place}", "train", parts)
    return import_hf(
        parts[chosen.train],
        image=image,
        x=x,
        label=label,
        client=client,
        test_data=None if chosen.test in (None, chosen.train) else parts[chosen.test],
        features=features,
        drop=drop,
        size=size,
        colour=colour,
        test=test,
        seed=seed,
        name=name or place,
        source=source,
        notes=chosen.notes,
    )


def load_parts(place: str) -> Mapping[str, hf.Dataset]:
    """Return the parts of a data set by name. One without parts is called "train"."""
    try:
        import datasets as hf
    except ImportError as error:
        raise UsageError(INSTALL) from error
    path = Path(place).expanduser()
    try:
        if path.is_file() and path.suffix == ".arrow":
            found = hf.Dataset.from_file(str(path))
        elif (path / "state.json").exists() or (path / "dataset_dict.json").exists():
            found = hf.load_from_disk(str(path))
        elif path.exists():  # its description may name files elsewhere, which are not fetched
            hf.config.HF_HUB_OFFLINE = hf.config.HF_DATASETS_OFFLINE = True
            found = hf.load_dataset(str(path), download_config=hf.DownloadConfig(local_files_only=True))
        else:
            found = hf.load_dataset(place)
    except Exception as error:
        # The library raises errors of many types, its own and those of the network
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataFileError(f"{place} cannot be read by Hugging Face's library: {reason}") from error
    return dict(found) if isinstance(found, dict) else {"train": found}


def import_flwr(
    partitions: Sequence[hf.Dataset],
    *,
    image: str = "",
    x: str = "",
    label: str = "label",
    test_data: hf.Dataset | None = None,
    size: int = 0,
    colour: str = "auto",
    test: float = TEST_SHARE,
    seed: int = 0,
    name: str = "flwr",
) -> Imported:
    """Read the partitions of flwr-datasets, one for each client: `[fds.load_partition(i) for i in range(n)]`.

    Args:
        partitions: The clients' parts, in the order of their numbers.
        test_data: The test part, as `fds.load_split("test")` returns it.
        image, x, label, size, colour, test, seed, name: See `import_hf`.

    Raises:
        UsageError: There is no partition, one is empty, or their columns differ.
    """
    if not len(partitions):
        raise UsageError(f"{name}: there are no partitions")
    try:
        import datasets as hf
    except ImportError as error:
        raise UsageError(INSTALL) from error
    client = "raffed_client"
    numbered = []
    for number, part in enumerate(partitions):
        if not len(part):
            raise UsageError(f"{name}: partition {number} has no rows")
        if part.column_names != partitions[0].column_names:
            raise UsageError(f"{name}: partition {number} has other columns than partition 0")
        numbered.append(part.add_column(client, [number] * len(part)))
    joined = hf.concatenate_datasets(numbered)
    if not image and not x:
        image = _image_column(joined)
    return import_hf(
        joined,
        image=image,
        x=x,
        label=label,
        client=client,
        test_data=test_data,
        size=size,
        colour=colour,
        test=test,
        seed=seed,
        name=name,
    )


def _table(
    data: hf.Dataset,
    test_data: hf.Dataset | None,
    label: str,
    client: str,
    features: tuple[str, ...],
    drop: tuple[str, ...],
    test: float,
    seed: int,
    name: str,
    source: str,
    notes: tuple[str, ...],
) -> Imported:
    if test_data is not None:
        raise UsageError(
            f"{name} is a table with a test part of its own; save both as Parquet files and give parquet:FILE"
        )
    table = data.with_format("arrow")[:]
    return import_table(
        table,
        label=label,
        client=client,
        features=features,
        drop=drop,
        test=test,
        seed=seed,
        name=name,
        source=source,
        notes=notes,
    )


def _image_column(data: hf.Dataset) -> str:
    found = [key for key, kind in data.features.items() if type(kind).__name__ == "Image"]
    return str(found[0]) if len(found) == 1 else ""


def _column(data: hf.Dataset, column: str, name: str) -> Array:
    if column not in data.column_names:
        raise UnknownNameError(f"column of {name}", column, data.column_names)
    values = data.with_format(None)[:][column]
    missing = next((row for row, one in enumerate(values) if one is None), None)
    if missing is not None:
        raise UsageError(
            f"{name}: column {column!r} has no value in row {missing}; fill it or remove the row"
        )
    try:
        return np.asarray(values)
    except ValueError as error:
        raise UsageError(
            f"{name}: column {column!r} holds lists of unequal lengths; pad or cut them to one length"
        ) from error


def _named(part: hf.Dataset, train: hf.Dataset, column: str, name: str) -> Array:
    """Return a column of labels or clients. Where it is a ClassLabel, its numbers are those of training."""
    values = _column(part, column, name)
    names, known = (_listed(one, column) for one in (part, train))
    return renumbered(f"{name}: column {column!r} of the test part", values, names, known)


def _listed(data: hf.Dataset, column: str) -> tuple[str, ...]:
    """Return the names of a ClassLabel in the order of their numbers; empty for other columns."""
    return tuple(str(one) for one in getattr(data.features.get(column), "names", None) or ())


def _images(data: hf.Dataset, column: str, size: int, colour: str, name: str) -> npt.NDArray[np.uint8]:
    if column not in data.column_names:
        raise UnknownNameError(f"column of {name}", column, data.column_names)
    if type(data.features[column]).__name__ != "Image":
        raise UsageError(
            f"{name}: column {column!r} holds {data.features[column]}, not images; use x={column}"
        )
    images = data.with_format(None)[:][column]
    missing = next((row for row, one in enumerate(images) if one is None), None)
    if missing is not None:
        raise UsageError(f"{name}: column {column!r} has no image in row {missing}; remove the row")
    return stacked_images(images, [f"{name}: row {row}" for row in range(len(images))], size, colour)


def _names(data: hf.Dataset, label: str, y: Array) -> tuple[str, ...]:
    """Return the names of a ClassLabel if every class occurs; a part of a data set may lack some."""
    names = _listed(data, label)
    return names if len(names) and len(np.unique(y)) == len(names) else ()
