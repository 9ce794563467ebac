"""What a person types after `--dataset`, carried out: `KIND:PATH?key=value&key=value`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from raffed.data.importers.arrays import import_arrays, import_npz
from raffed.data.importers.client_folders import import_leaf, import_pfllib
from raffed.data.importers.images import ByteArray, import_folder, not_colours, stacked_images
from raffed.data.importers.imported import TEST_SHARE, DataFacts, Imported
from raffed.data.importers.tables import import_table
from raffed.data.importers.values import Array, alike, as_lists, chosen_parts, renumbered
from raffed.errors import DataFileError, UnknownNameError, UsageError
from raffed.own.gate import is_said

if TYPE_CHECKING:
    import datasets as hf
    import pyarrow as pa

# Data sets of Hugging Face's library `datasets` (an optional extra), and partitions of flwr-datasets.
#
# Local folders and arrow files are read without a network.


_FILES = {".arrow": "file", ".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}


def import_hf(
    data: hf.Dataset | Mapping[str, hf.Dataset] | str,
    *,
    image: str = "",
    x: str = "",
    pad: int | None = None,
    label: str = "label",
    client: str = "",
    test_data: hf.Dataset | None = None,
    split: str = "",
    test_split: str = "",
    features: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    size: int = 0,
    colour: str = "auto",
    test: float = TEST_SHARE,
    seed: int = 0,
    name: str = "hf",
) -> Imported:
    """Read a data set of Hugging Face's.

    Args:
        data: The training part, a DatasetDict with parts of which some are used, or a place: a folder that
            `save_to_disk` wrote, a file, a folder of data files, or a name of the hub's.
        image: Column of images. By default the only column of images, if there is one.
        x: Column of numbers or of lists, such as token ids.
        pad: The id that fills short lists up at their ends. None refuses lists of unequal lengths.
        label: Column of the classes. The names of a ClassLabel are kept.
        client: Column of the clients.
        test_data: The test part, if there is one.
        split: The part that is trained on; by default the one named train, training or alike.
        test_split: The part that is tested on; by default the one named test, testing or alike, and the
            validation part if there is none.
        features, drop: Columns of a table; see `import_table`. Used without `image` and `x`.
        size, colour: See `import_folder`.
        test: Fraction of the rows that becomes the test set if there is no test part.
        seed: Decides which rows are drawn.
        name: Beginning of every message.

    Raises:
        UsageError: The place cannot be read, or a part or column is missing or cannot be used. The message
            names the column and row.
    """
    if isinstance(data, str):
        data = load_parts(data)
    said: list[str] = []
    if isinstance(data, Mapping):
        if absent := next((part for part in (split, test_split) if part and part not in data), None):
            raise UnknownNameError(f"split of {name}", absent, data)
        chosen = chosen_parts(name, {key: len(part) for key, part in data.items()}, split, test_split)
        if chosen is None:
            raise UnknownNameError(f"split of {name}", "train", data)
        if test_data is None and chosen.test not in (None, chosen.train):
            test_data = data[chosen.test]
        said.extend(chosen.notes)
        data = data[chosen.train]
    pictures = [str(key) for key, kind in data.features.items() if type(kind).__name__ == "Image"]
    if not image and not x and not features and len(pictures) == 1:
        image = pictures[0]
    common: dict[str, Any] = {"seed": seed, "name": name}
    if not image and not x:
        roles: dict[str, Any] = {"label": label, "client": client, "features": features, "drop": drop}
        tests: dict[str, Any] = {"test": test if test_data is None else _table(test_data)}
        return import_table(_table(data), **roles, **tests, pad=pad, notes=tuple(said), **common)

    def samples(part: hf.Dataset) -> Array:
        if not image:
            rows = as_lists(name, x, _complete(part, x, name), pad)
            return rows.astype(np.uint8) if "uint8" in str(part.features[x]) else rows
        pixels, left_out = _images(part, image, size, colour, name)
        said.extend(left_out)
        return pixels

    if unused := [column for column in data.column_names if column not in (image or x, label, client)]:
        said.append(f"{name}: not used: {', '.join(unused)}; {image or x!r} holds the samples")
    y = _named(data, data, label, name)
    names = _listed(data, label)
    tests = {"test": test}
    pixels = samples(data)
    if test_data is not None:
        # A test part without the column of clients belongs to nobody
        owned = bool(client) and client in test_data.column_names
        pixels, test_pixels = alike(pad, pixels, samples(test_data))
        tests = {
            "x_test": test_pixels,
            "y_test": _named(test_data, data, label, name),
            "test_clients": _named(test_data, data, client, name) if owned else None,
        }
    return import_arrays(
        pixels,
        y,
        clients=_named(data, data, client, name) if client else None,
        # A part of a data set may lack some classes
        class_names=names if len(names) and len(np.unique(y)) == len(names) else (),
        facts=DataFacts("images" if image else "arrays", tuple(said), resized=bool(image and size)),
        **tests,
        **common,
    )


def load_parts(place: str) -> Mapping[str, hf.Dataset]:
    """Return the parts of a data set by name. One without parts is called "train".

    Only a name that cannot be a path is looked up on the hub.
    """
    try:
        import datasets as hf
    except ImportError as error:
        raise UsageError("Hugging Face's library is not installed: pip install 'raffed[hf]'") from error
    path = Path(place).expanduser()
    reader = _FILES.get(path.suffix.lower())
    if not path.exists() and (reader or not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", place)):
        raise DataFileError(f"{place} is missing")
    if path.is_file() and not reader:
        raise DataFileError(f"{place}: of files, those that end in {', '.join(_FILES)} are read")
    offline = hf.config.HF_HUB_OFFLINE
    # What is here is not counted at the hub, and files elsewhere that a folder names are not fetched
    hf.config.HF_HUB_OFFLINE = offline or path.exists()
    try:
        if path.is_file():
            loaded = getattr(hf.Dataset, f"from_{reader}")(str(path))
        elif (path / "state.json").exists() or (path / "dataset_dict.json").exists():
            loaded = hf.load_from_disk(str(path))
        elif path.exists():
            whole = str(path.absolute())  # "pandas" and others are names of readers
            loaded = hf.load_dataset(whole, download_config=hf.DownloadConfig(local_files_only=True))
        else:
            loaded = hf.load_dataset(place)
    except Exception as error:
        # The library raises errors of many types, its own and those of the network
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataFileError(f"{place} cannot be read by Hugging Face's library: {reason}") from error
    finally:
        hf.config.HF_HUB_OFFLINE = offline
    return dict(loaded) if isinstance(loaded, dict) else {"train": loaded}


def import_flwr(partitions: Sequence[hf.Dataset], *, name: str = "flwr", **options: Any) -> Imported:
    """Read the partitions of flwr-datasets, one for each client: `[fds.load_partition(i) for i in range(n)]`.

    Args:
        partitions: The clients' parts, in the order of their numbers.
        name: Beginning of every message.
        options: Arguments of `import_hf`, such as `test_data=fds.load_split("test")`.

    Raises:
        UsageError: There is no partition, one is empty, or their columns differ.
    """
    if not len(partitions):
        raise UsageError(f"{name}: there are no partitions")
    import datasets as hf  # which is there, since the partitions are data sets of it

    client = "raffed_client"
    numbered = []
    for number, part in enumerate(partitions):
        if not len(part):
            raise UsageError(f"{name}: partition {number} has no rows")
        if part.column_names != partitions[0].column_names:
            raise UsageError(f"{name}: partition {number} has other columns than partition 0")
        numbered.append(part.add_column(client, [number] * len(part)))
    return import_hf(hf.concatenate_datasets(numbered), client=client, name=name, **options)


def _table(data: hf.Dataset) -> pa.Table:
    """Return a data set as a table in which a ClassLabel is its name, or missing where it is -1."""
    import pyarrow as pa

    table: pa.Table = data.with_format("arrow")[:]
    for place, column in enumerate(table.column_names):
        if names := _listed(data, column):
            numbers = table[column].to_pylist()
            words = [names[number] if number is not None and number >= 0 else None for number in numbers]
            table = table.set_column(place, column, pa.array(words, pa.string()))
    return table


def _complete(data: hf.Dataset, column: str, name: str) -> Sequence[Any]:
    """Return the values of a column, all of which must be there."""
    if column not in data.column_names:
        raise UnknownNameError(f"column of {name}", column, data.column_names)
    values: Sequence[Any] = data.with_format(None)[:][column]
    missing = next((row for row, value in enumerate(values) if value is None), None)
    if missing is not None:
        raise UsageError(
            f"{name}: column {column!r} has no value in row {missing}; fill it or remove the row"
        )
    return values


def _named(part: hf.Dataset, train: hf.Dataset, column: str, name: str) -> Array:
    """Return a column of labels or clients. Where it is a ClassLabel, its numbers are those of training."""
    values = np.asarray(_complete(part, column, name))
    names, known = (_listed(data, column) for data in (part, train))
    return renumbered(f"{name}: column {column!r} of the test part", values, names, known)


def _listed(data: hf.Dataset, column: str) -> tuple[str, ...]:
    """Return the names of a ClassLabel in the order of their numbers; empty for other columns."""
    return tuple(map(str, getattr(data.features.get(column), "names", None) or ()))


def _images(
    data: hf.Dataset, column: str, size: int, colour: str, name: str
) -> tuple[ByteArray, tuple[str, ...]]:
    kind = data.features.get(column, "")
    if kind and type(kind).__name__ != "Image":
        raise UsageError(f"{name}: column {column!r} holds {kind}, not images; use x={column}")
    images = _complete(data, column, name)
    rows = [f"{name}: row {row}" for row in range(len(images))]
    return stacked_images(images, rows, size, colour), not_colours(images, rows)


Value = str | int | float | tuple[str, ...]
TABLE = ("label", "client", "features", "drop", "categorical", "missing", "test", "seed")


@dataclass(frozen=True)
class Kind:
    """One kind of data that may be typed after `--dataset`.

    Attributes:
        read: The importer.
        options: Keys that may be given.
        example: How it is written, for messages and listings.
        meaning: What it reads, in a few words.
        endings: Endings of files of this kind.
    """

    read: Callable[..., Imported]
    options: tuple[str, ...]
    example: str
    meaning: str
    endings: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "csv": Kind(
        import_table,
        (*TABLE, "na"),
        "csv:table.csv?label=y&client=site",
        "a table with a header line; .tsv with tabs",
        (".csv", ".tsv"),
    ),
    "parquet": Kind(
        import_table,
        (*TABLE, "x", "pad"),
        "parquet:table.parquet?label=y",
        "a Parquet table; x=ids reads a column of lists",
        (".parquet", ".pq"),
    ),
    "npz": Kind(
        import_npz,
        ("x", "y", "clients", "test", "seed"),
        "npz:arrays.npz",
        "NumPy arrays x, y, x_test, clients, …",
        (".npz",),
    ),
    "folder": Kind(
        import_folder,
        ("size", "colour", "test", "seed"),
        "folder:./images?size=32",
        "images in CLASS/file or CLIENT/CLASS/file",
    ),
    "hf": Kind(
        import_hf,
        (
            *("image", "x", "pad", "label", "client", "features", "drop", "size", "colour"),
            *("split", "test_split", "test", "seed"),
        ),
        "hf:PATH_OR_NAME?image=img&label=y&client=writer",
        "a data set of Hugging Face's library",
        (".arrow",),
    ),
    "leaf": Kind(import_leaf, ("test", "seed"), "leaf:DIR", "a folder of LEAF's: train/*.json, test/*.json"),
    "pfllib": Kind(import_pfllib, (), "pfllib:DIR", "a folder of PFLlib's: train/ID.npz and test/ID.npz"),
}

ASKED = {  # kind → why the name in a file is no word for it
    "hf": "data sets of Hugging Face's may name addresses, which are fetched",
    "pfllib": "files of PFLlib are pickles, which may run any code",
}


@dataclass(frozen=True)
class DataReference:
    """A reference, parsed.

    Attributes:
        text: The reference as typed.
        kind: A key of KINDS.
        place: The path, or a name of the hub for `hf`.
        options: The options, of the types that the importer takes.
    """

    text: str
    kind: str
    place: str
    options: Mapping[str, Value]

    def load(self) -> Imported:
        """Read the data.

        Raises:
            UsageError: They cannot be used; the message names the file and the fault.
        """
        if self.kind in ASKED and not is_said(self.text):
            raise DataFileError(
                f"{self.text} stands in a file, but {ASKED[self.kind]}, so they are read only if you name "
                f"them; give --dataset {self.text} to a new run"
            )
        data = KINDS[self.kind].read(self.place, name=self.place, **self.options)
        return replace(data, source=self.text)


def parse_reference(text: str) -> DataReference | None:
    """Return the parsed reference, or None if the text does not begin with a kind and a colon.

    Args:
        text: Such as "csv:table.csv?label=y&client=site". Keys and values may be percent-encoded (%26 for &).

    Raises:
        UsageError: The path is missing, an option is unknown, or its value has the wrong type.
    """
    kind, colon, rest = text.strip().partition(":")
    kind = kind.strip().lower()
    if not colon or kind not in KINDS:
        return None
    place, _, query = rest.partition("?")
    if not place.strip():
        raise UsageError(f"--dataset {text}: the path is missing, as in {KINDS[kind].example}")
    options: dict[str, Value] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = (unquote(piece) for piece in part.partition("="))
        if not equals or not value:
            raise UsageError(f"--dataset {text}: {part!r} is not key=value, as in {KINDS[kind].example}")
        if key not in KINDS[kind].options:
            raise UnknownNameError(f"option of {kind}:", key, KINDS[kind].options)
        if key in options:
            raise UsageError(f"--dataset {text}: {key} is given twice")
        options[key] = _typed(text, kind, key, value)
    return DataReference(text.strip(), kind, place.strip(), options)


def _typed(text: str, kind: str, key: str, value: str) -> Value:
    if key in ("features", "drop", "categorical", "na"):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    try:
        if key in ("seed", "size", "pad"):
            number = int(value)
            if number < 0:
                raise ValueError
            return number
        if key == "test":
            return float(value)
    except ValueError as error:
        # Tables may name a second file with the test rows
        if key == "test" and kind in ("csv", "parquet"):
            return value
        wanted = "a fraction such as 0.2" if key == "test" else "a whole number from 0"
        raise UsageError(f"--dataset {text}: {key} = {value!r}; it must be {wanted}") from error
    return value


def guessed(text: str) -> str | None:
    """Return the reference that a bare path probably means: `images/` is `folder:images/`."""
    path = Path(text).expanduser()
    if not text or not path.exists():
        return None
    if path.is_dir():
        kinds = {"pfllib": "train/*.npz", "leaf": "train/*.json", "leaf:": "data/*/*.json"}
        layout = next((kind for kind, files in kinds.items() if any(path.glob(files))), "folder")
        return f"{layout.rstrip(':')}:{text}"
    ending = path.suffix.lower()
    return next((f"{name}:{text}" for name, kind in KINDS.items() if ending in kind.endings), None)


def import_reference(text: str) -> Imported:
    """Read the data that a reference names.

    Raises:
        UsageError: The text is not a reference, or the data cannot be used.
    """
    reference = parse_reference(text)
    if reference is None:
        near = guessed(text)
        hint = f"did you mean {near}?" if near else "give " + ", ".join(row.example for row in KINDS.values())
        raise DataFileError(f"--dataset {text}: unknown kind of data; {hint}")
    return reference.load()
