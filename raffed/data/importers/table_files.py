"""Tables as they are read: csv and Parquet files, pandas data frames, dictionaries of columns.

What names something keeps its letters: labels, clients and categories are text, so 0012 and 12 differ. A csv
file has no types, so all of it is read as text by one parser, and a column is numbers if every value is one.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from raffed.budget import allow, allow_table, check_file
from raffed.data.importers.values import Array, Floats, Place, as_array, parsed, row_place
from raffed.errors import DataFileError, UnknownNameError, UsageError, check_permitted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    GivenTable: TypeAlias = pd.DataFrame | pa.Table | Mapping[str, npt.ArrayLike] | str | Path

MISSING = (
    *("?", "NA", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "<NA>", "NULL", "null", "None", "none", "NaT"),
    *("NaN", "nan", "-nan", "-NaN", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Words that mean a missing value in a csv file, where `na` does not name others. No text always does."""
# Bytes of a letter while a table is encoded: three copies in NumPy's texts of four bytes a letter
LETTER = 12
EXACT = 2.0**53  # below this magnitude, a float64 holds every whole number
_SAMPLE = 2**16
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
LACKING = "missing"  # the category of a missing text
_NUMBERS = ("floating", "integer", "boolean", "decimal", "mixed-integer-float")  # as pandas calls them


Texts: TypeAlias = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Column:
    """A column of features.

    Attributes:
        values: float64 numbers, text if it holds categories, or an array [N, L] of lists.
        whole: Whether the numbers were all written as whole ones.
    """

    values: Array
    whole: bool = False

    @property
    def is_text(self) -> bool:
        return self.values.dtype.kind == "U"


@dataclass(frozen=True, eq=False)
class Table:
    """A table as it was read.

    Attributes:
        frame: Its columns. Those of a csv file hold text, or NaN for a missing value.
        where: What messages call it.
        place: How messages name its rows. In a csv file the header is line 1.
        notes: What a user may not expect of it.
        typed: Whether the source says which columns are text.
    """

    frame: pd.DataFrame
    where: str
    place: Place = row_place
    notes: tuple[str, ...] = ()
    typed: bool = True

    @property
    def names_of_columns(self) -> list[str]:
        """Names of the columns, in their order."""
        return list(map(str, self.frame))

    def at(self, wrong: npt.NDArray[np.bool_]) -> str:
        """Return how messages name the first of these rows."""
        return self.place(int(np.argmax(wrong)))

    def check_columns(self, role: str, names: Sequence[str]) -> None:
        """Refuse names that no column has."""
        for name in names:
            if name not in self.frame:
                raise UnknownNameError(f"column of {self.where} for {role}", name, self.names_of_columns)

    def check_complete(self, names: Sequence[str], missing: str = "", texts: Sequence[str] = ()) -> None:
        """Refuse columns with missing values, all of which are named, unless `missing` says what to do.

        The columns `texts` are read as text, whatever they hold.
        """
        counts = {name: int(self.frame[name].isna().sum()) for name in dict.fromkeys(names)}
        lacking = [name for name, count in counts.items() if count]
        if missing == "word":
            lacking = [name for name in lacking if name not in texts and not self.column(name).is_text]
        if lacking and missing != "mean":
            also = "".join(f", column {name!r} {counts[name]}" for name in lacking[1:])
            words = "" if self.typed else "; na=WORD,WORD says which words mean missing"
            raise UsageError(
                f"{self.where}: column {lacking[0]!r} has {counts[lacking[0]]} missing values, the first in "
                f"{self.at(self.frame[lacking[0]].isna().to_numpy())}{also}; missing=drop leaves such rows "
                f"out, missing=mean fills in the mean of the training rows and {LACKING!r} for texts, "
                f"missing=word only the latter; or leave the column out{words}"
            )

    def complete(
        self, features: Sequence[str], ends: Sequence[str], missing: str, texts: Sequence[str] = ()
    ) -> Table:
        """Return the rows that can be used, after the rule for missing values. Ends are never filled in.

        Args:
            features: Columns of features.
            ends: Columns of classes and clients, and of lists that are the samples.
            missing: The rule; see `import_table`.
            texts: Features that are read as text.
        """
        kept = self.without_gaps([*features, *ends]) if missing == "drop" else self
        kept.check_complete(ends if missing else [*features, *ends])
        kept.check_complete(features, missing, texts)
        return kept

    def without_gaps(self, names: Sequence[str]) -> Table:
        """Return the rows that have a value in each of these columns, and a note about how many have not."""
        whole = self.frame[list(names)].notna().all(axis=1).to_numpy()
        if not whole.any():
            raise UsageError(f"{self.where}: every row has a missing value; use missing=mean or drop=COLUMN")
        note = f"{self.where}: rows with a missing value are not used ({int((~whole).sum()):,})"
        return self if whole.all() else replace(self._rows(whole), notes=(*self.notes, note))

    def _rows(self, wanted: npt.NDArray[np.bool_]) -> Table:
        kept = np.flatnonzero(wanted)
        frame = self.frame.iloc[kept].reset_index(drop=True)
        return replace(self, frame=frame, place=lambda row: self.place(int(kept[row])))

    def kind(self, name: str) -> str:
        """Return the kind of a column's values as pandas calls it, such as "string" or "integer"."""
        import pandas as pd

        return str(pd.api.types.infer_dtype(self._plain(name), skipna=True))

    def _plain(self, name: str) -> pd.Series[Any]:
        import pandas as pd

        column = self.frame[name]
        is_category = isinstance(column.dtype, pd.CategoricalDtype)
        return column.astype(object) if is_category else column

    def text(self, name: str) -> Texts:
        """Return a column as text, with its letters. Whole numbers lose the .0 of floats.

        Floats hold whole numbers wherever pandas fills up a gap, so each row is text of its own.
        """
        if self.kind(name) not in (*_NUMBERS, "string", "empty"):
            raise self._refusal(name, "but may only hold integers or text")
        absent, cells = self.frame[name].isna(), self.frame[name].astype(object)
        texts = [LACKING if lacks else _text(cell) for lacks, cell in zip(absent, cells, strict=True)]
        return np.array(texts, dtype=np.str_)

    def names(self, name: str) -> Texts:
        """Return a column of classes or clients as text.

        Raises:
            UsageError: It holds numbers with a fraction, dates, or other things.
        """
        text = self.text(name)
        if self.kind(name) in ("integer", "boolean") or (numbers := parsed(text)) is None:
            return text
        broken = numbers != np.round(numbers)
        if self.typed and self.kind(name) != "string":
            broken |= np.abs(numbers) >= EXACT
        if broken.any():
            raise UsageError(
                f"{self.where}: column {name!r} holds {text[np.argmax(broken)]} in {self.at(broken)}, which "
                "is not a class; raffed classifies, so give a column of integers or text"
            )
        return text

    def column(self, name: str, text: bool | None = None) -> Column:
        """Return a column of features. Missing numbers are NaN, and missing texts are LACKING.

        Args:
            name: The column.
            text: Whether it must be text. None: as its values say.

        Raises:
            UsageError: The column holds other things, values that are infinite, whole numbers that a float
                cannot hold, or another kind of values than `text` says.
        """
        absent = self.frame[name].isna().to_numpy()
        if absent.any():
            nothing = Column(np.zeros(0, np.str_ if text else np.float64))
            there = nothing if absent.all() else self._rows(~absent).column(name, text)
            values = np.full(len(absent), LACKING if there.is_text else np.nan, dtype=object)
            values[~absent] = there.values
            return Column(values.astype(np.str_ if there.is_text else np.float64), there.whole)
        kind = self.kind(name)
        if kind in _NUMBERS:
            numbers = self._plain(name).astype("float64").to_numpy()
            whole = np.full(len(numbers), kind == "integer")
        elif kind == "string":
            numeric = None if text or self.typed else self._numbers(name)
            if numeric is None and text is False:
                words = self.text(name)
                odd = np.array([parsed(words[row : row + 1]) is None for row in range(len(words))])
                raise UsageError(
                    f"{self.where}: column {name!r} holds text, and numbers in the training part: "
                    f"{str(words[np.argmax(odd)])!r} in {self.at(odd)}"
                )
            if numeric is None:
                return Column(self.text(name))
            numbers, whole = numeric
        else:
            lists = isinstance(self.frame[name].iloc[0], list | np.ndarray)
            advice = (
                f"x={name} makes lists of ids or numbers the samples" if lists else "make it numbers or text"
            )
            raise self._refusal(name, f"{advice}, or drop={name}")
        if text:
            raise UsageError(f"{self.where}: column {name!r} holds numbers, and text in the training part")
        if (wrong := ~np.isfinite(numbers)).any():
            raise UsageError(
                f"{self.where}: column {name!r} is infinite in {self.at(wrong)}; correct it or drop={name}"
            )
        if (wrong := whole & (np.abs(numbers) >= EXACT)).any():
            raise UsageError(
                f"{self.where}: column {name!r} holds whole numbers of 2^53 or more, the first in "
                f"{self.at(wrong)}, which would lose digits; identifiers: drop={name} or categorical={name}; "
                "quantities: divide them"
            )
        return Column(numbers, bool(whole.all()))

    def _refusal(self, name: str, advice: str) -> UsageError:
        kind = type(self.frame[name].iloc[0]).__name__.replace("ndarray", "list")
        return UsageError(f"{self.where}: column {name!r} holds values of type {kind}; {advice}")

    def _numbers(self, name: str) -> tuple[Floats, npt.NDArray[np.bool_]] | None:
        """Return text as numbers, and which are written as whole ones; None if it is not all numbers.

        What Arrow reads, Python reads as the same number, but more slowly. Python reads more, such as ٣.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pa.array(self.frame[name], pa.string())
        numbers: Floats | None = None
        with contextlib.suppress(pa.ArrowInvalid):
            numbers = pc.cast(words, pa.float64()).to_numpy()
        if numbers is None or np.isnan(numbers).any():
            numbers = self._dressed_numbers(name, self.text(name))
        whole = pc.match_substring_regex(words, "^[+-]?[0-9]+$").to_numpy(zero_copy_only=False)
        return None if numbers is None else (numbers, whole)

    def _dressed_numbers(self, name: str, text: Texts) -> Floats | None:
        """Return text as numbers: all of it numbers, true and false, or numbers with decimal commas."""
        if (numbers := parsed(text)) is not None:
            return numbers
        low = np.char.lower(text)
        if np.isin(low, ["true", "false"]).all():
            return np.equal(low, "true").astype(np.float64)
        commas = np.char.find(text, ",") >= 0
        if not commas.any():
            return None
        decimals = [re.fullmatch(r"[+-]?(\d+),(\d+)", str(value)) for value in text[commas]]
        points = np.char.replace(text, ",", ".")
        if None in decimals or (~commas & (np.char.find(text, ".") >= 0)).any() or parsed(points) is None:
            return None
        if all(len(hit[2]) == 3 and len(hit[1]) <= 3 and hit[1][0] != "0" for hit in decimals if hit):
            raise UsageError(
                f"{self.where}: the commas in column {name!r} may separate decimals or thousands, as in "
                f"{self.at(commas)}; write the numbers without separators of thousands and with a decimal "
                f"point, or categorical={name}"
            )
        return parsed(points)


def _text(cell: Any) -> str:
    """Return a value of a column as text: a whole number without the .0 of a float."""
    is_number = not isinstance(cell, str | bool | np.bool_)
    return str(int(cell)) if is_number and abs(cell) < EXACT and cell == int(cell) else str(cell)


def opened(table: GivenTable, name: str, na: Sequence[str] = MISSING) -> Table:
    """Return a table whose columns have names of their own."""
    import pandas as pd
    import pyarrow as pa

    try:
        if isinstance(table, str | Path):
            opened_table = _read(Path(table).expanduser(), na)
        elif isinstance(table, Mapping):
            columns = {str(key): as_array(f"{name}: column {key!r}", values) for key, values in table.items()}
            opened_table = Table(pd.DataFrame(columns), name)
        else:
            frame = table.to_pandas() if isinstance(table, pa.Table) else table
            opened_table = Table(frame.reset_index(drop=True), name)
    except UsageError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{name} cannot be read as a table: {str(error).splitlines()[0]}") from error
    names = list(map(str, opened_table.frame))
    if twice := next((column for column in names if names.count(column) > 1), None):
        raise UsageError(f"{opened_table.where}: two columns are named {twice!r}; rename one")
    if not len(opened_table.frame):
        raise UsageError(f"{opened_table.where} has no rows")
    return replace(opened_table, frame=opened_table.frame.set_axis(names, axis=1))


def _read(path: Path, na: Sequence[str]) -> Table:
    """Read a csv file (with a header line) or a Parquet file, by the ending of its name.

    Raises:
        DataFileError: The file is missing, damaged, or of another kind. The message names the line of a csv
            file.
    """
    if not path.is_file():
        raise DataFileError(f"{path} is missing" if not path.exists() else f"{path} is not a file")
    try:
        check_file(path, DataFileError)
        if path.suffix.lower() in (".parquet", ".pq"):
            return Table(_read_parquet(path), str(path))
        return _read_csv(path, na)
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # Arrow's and pandas' errors are such
        check_permitted(path, error)
        raise DataFileError(f"{path} cannot be read as a table: {str(error).splitlines()[0]}") from error


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file. A text that stands in many rows is written out only if there is room for that."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    allow_table(parquet.read_metadata(path), str(path), DataFileError)
    schema = parquet.read_schema(path)
    strings = (pa.types.is_string, pa.types.is_large_string)
    texts = [field.name for field in schema if any(is_kind(field.type) for is_kind in strings)]
    table = parquet.read_table(path, read_dictionary=texts)
    parts = [part for name in texts for part in table[name].chunks if pa.types.is_dictionary(part.type)]
    lengths = (pc.sum(pc.take(pc.binary_length(part.dictionary), part.indices)).as_py() for part in parts)
    allow(LETTER * sum(length or 0 for length in lengths), f"the texts in {path}", DataFileError)
    frame: pd.DataFrame = table.cast(schema).to_pandas(ignore_metadata=True)
    return frame


def _read_csv(path: Path, na: Sequence[str]) -> Table:
    """Read a csv file as text. Blanks around a value do not count."""
    import pandas as pd

    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    mark = _separator(path, usual)
    try:
        frame = pd.read_csv(
            path,
            sep=mark,
            header=None,
            dtype=str,
            na_filter=False,
            skipinitialspace=True,
            encoding="utf-8-sig",
        )
    except UnicodeError as error:
        raise _not_utf8(path) from error
    except pd.errors.ParserError:
        _check_lengths(path, mark)
        raise
    frame = frame.apply(lambda column: column.str.strip())
    if frame.iloc[:, -1].eq("").any():  # a line that is too short is filled up by the parser
        _check_lengths(path, mark)
    frame = frame.iloc[1:].set_axis(frame.iloc[0].tolist(), axis=1).reset_index(drop=True)
    frame = frame.mask(frame.isin(["", *na]))
    notes = () if mark == usual else (f"{path}: its columns are separated by {_SEPARATORS[mark]}",)
    return Table(frame, str(path), lambda row: _line(path, mark, row), notes, typed=False)


def _separator(path: Path, usual: str) -> str:
    """Return what separates the columns: the usual character, unless only another one fits every line."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        sample = file.read(_SAMPLE)
    for mark in (usual, *_SEPARATORS):
        rows = [len(row) for row in csv.reader(io.StringIO(sample), delimiter=mark) if row]
        if len(sample) == _SAMPLE:
            rows.pop()  # its end may be missing
        if len(set(rows)) == 1 and rows[0] > 1:
            return mark
    return usual


def _lines(path: Path, mark: str) -> Iterator[tuple[int, int]]:
    """Yield for each row, also the header, the line in which it begins and how many values it has."""
    csv.field_size_limit(2**31 - 1)
    before = 0
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        rows = csv.reader(file, delimiter=mark, skipinitialspace=True)
        for fields in rows:
            if fields:  # empty lines are no rows
                yield before + 1, len(fields)
            before = rows.line_num


def _line(path: Path, mark: str, row: int) -> str:
    number = next((line for place, (line, _) in enumerate(_lines(path, mark)) if place == row + 1), None)
    return f"line {number}" if number is not None else f"row {row}"


def _check_lengths(path: Path, mark: str) -> None:
    """Refuse a file whose lines do not have as many values as the header."""
    rows = _lines(path, mark)
    _, width = next(rows)
    for line, length in rows:
        if length != width:
            raise DataFileError(
                f"{path}: line {line} has {length} values, and the header names {width} columns; correct the "
                "line (a value that holds a separator needs quotation marks)"
            )


def _not_utf8(path: Path) -> DataFileError:
    """Return the error for a file in another encoding, with the first line that shows it."""
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return DataFileError(f"{path} is UTF-16; save it as UTF-8 text")
    try:
        content.decode("utf-8")
        return DataFileError(f"{path} holds bytes that are not text; save it as UTF-8")
    except UnicodeDecodeError as error:
        line, byte = content[: error.start].count(b"\n") + 1, content[error.start : error.start + 1]
        letter = byte.decode("cp1252", errors="replace")
        return DataFileError(
            f"{path} is not UTF-8: line {line} holds the byte 0x{byte[0]:02X}, which is {letter!r} in "
            f"Latin-1 and Windows-1252; save it as UTF-8: iconv -f WINDOWS-1252 -t UTF-8 {path.name}"
        )
