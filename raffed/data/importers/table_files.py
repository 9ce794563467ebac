"""Tables in files: csv (with commas, semicolons, tabs or bars) and Parquet."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from raffed.budget import allow, allow_table
from raffed.errors import DataFileError, check_permitted

if TYPE_CHECKING:
    import pyarrow as pa

MISSING = [
    *(
        "",
        "?",
        "#N/A",
        "#NA",
        "<NA>",
        "N/A",
        "NA",
        "NaT",
        "NULL",
        "NaN",
        "n/a",
        "nan",
        "null",
        "None",
        "none",
    ),
    *("#N/A N/A", "-nan", "-NaN", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
]
"""Texts that mean a missing value in a csv file."""
Place = Callable[[int], str]
"""How messages name a row, given its number from 0."""
_SAMPLE = 2**16
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def row_place(row: int) -> str:
    """Return how messages name a row of a table that is not a text file: rows are counted from 0."""
    return f"row {row}"


@dataclass(frozen=True)
class TableFile:
    """A table as it was read.

    Attributes:
        table: Its columns.
        place: How messages name its rows. In a csv file the header is line 1.
        notes: What a user may not expect of the file.
        typed: Whether the file says which columns are text.
    """

    table: pa.Table
    place: Place = row_place
    notes: tuple[str, ...] = ()
    typed: bool = True


def read_table(path: Path, texts: Sequence[str] = ()) -> TableFile:
    """Read a csv file (with a header line) or a Parquet file, by the ending of its name.

    Args:
        path: The file.
        texts: Columns of a csv file that are text, also where all their values are numbers.

    Raises:
        DataFileError: The file is missing, damaged, or of another kind. The message names the line of a csv
            file.
    """
    import pyarrow as pa

    if not path.is_file():
        raise DataFileError(f"{path} is missing" if not path.exists() else f"{path} is not a file")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return TableFile(_read_parquet(path))
        return _read_csv(path, texts)
    except DataFileError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        check_permitted(path, error)
        raise DataFileError(f"{path} cannot be read as a table: {str(error).splitlines()[0]}") from error


def _read_parquet(path: Path) -> pa.Table:
    """Read a Parquet file. A text that stands in many rows is written out only if there is room for that."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    allow_table(parquet.read_metadata(path), str(path), DataFileError)
    schema = parquet.read_schema(path)
    texts = [one.name for one in schema if pa.types.is_string(one.type) or pa.types.is_large_string(one.type)]
    table = parquet.read_table(path, read_dictionary=texts)
    parts = [part for name in texts for part in table[name].chunks if pa.types.is_dictionary(part.type)]
    lengths = (pc.sum(pc.take(pc.binary_length(part.dictionary), part.indices)).as_py() for part in parts)
    allow(sum(length or 0 for length in lengths), f"the texts in {path}", DataFileError)
    return table.cast(schema)


def _read_csv(path: Path, texts: Sequence[str]) -> TableFile:
    """Read a csv file. In one thread, which is tried second, the message names the row."""
    import pyarrow as pa

    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    delimiter = _delimiter(path, usual)
    place = _lines_of(path, delimiter)
    kinds = dict.fromkeys(texts, pa.string())
    try:
        table = _parsed(path, delimiter, use_threads=True, kinds=kinds)
        if not table.column_names or any(pa.types.is_binary(kind) for kind in table.schema.types):
            raise UnicodeError  # the names of columns in another encoding raise one as well
    except pa.ArrowInvalid:
        try:
            table = _parsed(path, delimiter, use_threads=False, kinds=kinds)
        except pa.ArrowInvalid as error:
            raise _unreadable(path, str(error).splitlines()[0], place) from error
    except UnicodeError as error:
        raise _not_utf8(path) from error
    named = _DELIMITERS[delimiter]
    notes = () if delimiter == usual else (f"{path}: its columns are separated by {named}",)
    return TableFile(_long_numbers_kept(table, path, delimiter), place, notes, typed=False)


def _parsed(
    path: Path, delimiter: str, use_threads: bool, kinds: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    from pyarrow import csv as arrow_csv

    return arrow_csv.read_csv(
        path,
        arrow_csv.ReadOptions(use_threads=use_threads),
        arrow_csv.ParseOptions(delimiter=delimiter),
        arrow_csv.ConvertOptions(null_values=MISSING, strings_can_be_null=True, column_types=kinds or {}),
    )


def _long_numbers_kept(table: pa.Table, path: Path, delimiter: str) -> pa.Table:
    """Return the table with whole numbers of 19 digits and more as text, which floats would round."""
    import pyarrow as pa

    if len(set(table.column_names)) < len(table.column_names):
        return table  # refused by the caller
    columns = dict(zip(table.column_names, table.columns, strict=True))
    floats = {name: one.to_numpy() for name, one in columns.items() if pa.types.is_float64(one.type)}
    long = [name for name, values in floats.items() if np.nanmax(np.abs(values), initial=0.0) >= 2.0**63]
    if not long:
        return table
    again = _parsed(path, delimiter, use_threads=True, kinds=dict.fromkeys(long, pa.string()))
    for name in long:
        if all(re.fullmatch(r"[+-]?\d+", one) for one in again.column(name).to_pylist() if one is not None):
            table = table.set_column(table.column_names.index(name), name, again.column(name))
    return table


def _delimiter(path: Path, usual: str) -> str:
    """Return what separates the columns: the usual character, unless only another one fits every line."""
    with path.open("rb") as file:
        sample = file.read(_SAMPLE)
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataFileError(f"{path} is UTF-16; save it as UTF-8 text")
    # Line ends of any kind become "\n"
    text = io.StringIO(sample.decode("utf-8", errors="replace"), newline=None).read()
    if len(sample) == _SAMPLE:
        text = text[: text.rfind("\n") + 1]
    for one in (usual, *_DELIMITERS):
        fields = {len(row) for row in csv.reader(io.StringIO(text), delimiter=one) if row}
        if len(fields) == 1 and fields != {1}:
            return one
    return usual


def _lines_of(path: Path, delimiter: str) -> Place:
    """Return how messages name the rows of a csv file: by the line, found by reading the file again.

    Where a value is longer than Python's reader takes, the row is told in place of the line.
    """

    def place(row: int) -> str:
        with path.open(encoding="utf-8", errors="replace") as file, contextlib.suppress(csv.Error):
            for number, line in enumerate(_starts(file, delimiter)):
                if number == row + 1:
                    return f"line {line}"
        return f"row {row + 1} below the header"

    return place


def _starts(file: io.TextIOBase, delimiter: str) -> Iterator[int]:
    """Yield the line in which each row begins, the header's too. Empty lines are no rows."""
    rows = csv.reader(file, delimiter=delimiter)
    before = 0
    for fields in rows:
        if fields:
            yield before + 1
        before = rows.line_num


def _unreadable(path: Path, said: str, place: Place) -> DataFileError:
    """Return the error for what the parser refused. It counts the header as row 1."""
    if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", said):
        row, wanted, got = (int(one) for one in found.groups())
        return DataFileError(
            f"{path}: {place(row - 2)} has {got} values, and the header names {wanted} columns; correct the "
            "line (a value that holds a separator needs quotation marks)"
        )
    plain = re.sub(r"Row #(\d+)", lambda one: place(int(one[1]) - 2), said)
    return DataFileError(f"{path} cannot be read as a table: {plain}")


def _not_utf8(path: Path) -> DataFileError:
    """Return the error for a file in another encoding, with the first line that shows it."""
    content = path.read_bytes()
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line, byte = content[: error.start].count(b"\n") + 1, content[error.start : error.start + 1]
        letter = byte.decode("cp1252", errors="replace")
        return DataFileError(
            f"{path} is not UTF-8: line {line} holds the byte 0x{byte[0]:02X}, which is {letter!r} in "
            f"Latin-1 and Windows-1252; save it as UTF-8: iconv -f WINDOWS-1252 -t UTF-8 {path.name}"
        )
    return DataFileError(f"{path} holds bytes that are not text; save it as UTF-8")


__all__ = ["MISSING", "Place", "TableFile", "read_table", "row_place"]
