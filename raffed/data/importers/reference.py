"""What a person types after `--dataset`: `KIND:PATH?key=value&key=value`, read and carried out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from raffed.data.importers.arrays import import_npz
from raffed.data.importers.hugging_face import import_hf_place
from raffed.data.importers.images import import_folder
from raffed.data.importers.imported import Imported
from raffed.data.importers.pfllib import import_pfllib
from raffed.data.importers.tables import import_table
from raffed.errors import DataFileError, UnknownNameError, UsageError
from raffed.own.gate import check_download, is_said

Value = str | int | float | tuple[str, ...]
TABLE = ("label", "client", "features", "drop", "categorical", "test", "seed")


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
        import_table, TABLE, "parquet:table.parquet?label=y", "a Parquet table", (".parquet", ".pq")
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
        import_hf_place,
        (
            *("image", "x", "label", "client", "features", "drop", "size", "colour"),
            *("split", "test_split", "test", "seed"),
        ),
        "hf:PATH_OR_NAME?image=img&label=y&client=writer",
        "a data set of Hugging Face's library",
        (".arrow",),
    ),
    "pfllib": Kind(import_pfllib, (), "pfllib:DIR", "a folder of PFLlib's: train/ID.npz and test/ID.npz"),
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
        if self.kind == "hf" and not Path(self.place).expanduser().exists():
            check_download(self.text)
        if self.kind == "pfllib" and not is_said(self.text):
            raise DataFileError(
                f"{self.text} stands in a file, but files of PFLlib are pickles, which may run any code, "
                f"read only if you name them; give --dataset {self.text}"
            )
        return KINDS[self.kind].read(self.place, name=self.place, source=self.text, **self.options)


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
        key, equals, value = (unquote(one) for one in part.partition("="))
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
        if key in ("seed", "size"):
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
    if not re.search(r"[/\\.]", text) or not path.exists():
        return None
    if path.is_dir():
        return (
            f"pfllib:{text}"
            if (path / "train").is_dir() and any((path / "train").glob("*.npz"))
            else f"folder:{text}"
        )
    ending = path.suffix.lower()
    return next((f"{name}:{text}" for name, kind in KINDS.items() if ending in kind.endings), None)


def import_reference(text: str) -> Imported:
    """Read the data that a reference names.

    Raises:
        UsageError: The text is not a reference, or the data cannot be used.
    """
    found = parse_reference(text)
    if found is None:
        near = guessed(text)
        hint = f"did you mean {near}?" if near else "give " + ", ".join(one.example for one in KINDS.values())
        raise DataFileError(f"--dataset {text}: unknown kind of data; {hint}")
    return found.load()
