"""Encode the columns of a table as numbers, with statistics of the training rows only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.data.importers.facts import EncodedColumn
from raffed.data.importers.table_files import Place, row_place
from raffed.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]
MOST_CATEGORIES = 1000
MOST_COLUMNS = 100_000
EXACT = 2.0**53
"""Below this magnitude, a float64 holds every whole number."""


@dataclass(frozen=True, eq=False)
class Column:
    """A column of features: float64 numbers, or text if it holds categories."""

    name: str
    values: Array

    @property
    def is_text(self) -> bool:
        return self.values.dtype.kind == "U"

    def rows(self, chosen: npt.NDArray[np.int64]) -> Column:
        return Column(self.name, self.values[chosen])


@dataclass(frozen=True, eq=False)
class NumberCode:
    """Standardises: (value - mean) / std. A constant column becomes 0."""

    mean: float
    std: float

    def encode(self, values: Array) -> Floats:
        numbers: Floats = values.astype(np.float64)
        numbers = (numbers - self.mean) / self.std
        column: Floats = numbers[:, None]
        return column


@dataclass(frozen=True, eq=False)
class CategoryCode:
    """One column of 0 and 1 for each category. A category that is not listed becomes zeros."""

    categories: Array

    def encode(self, values: Array) -> Floats:
        return np.equal(values[:, None], self.categories[None, :]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """How each column is encoded."""

    codes: tuple[tuple[str, NumberCode | CategoryCode], ...]

    @staticmethod
    def fitted(columns: Sequence[Column], where: str) -> TableEncoder:
        """Take the statistics of these columns, which hold training rows only."""
        codes = [
            (one.name, _category_code(one, where) if one.is_text else _number_code(one)) for one in columns
        ]
        width = sum(len(code.categories) if isinstance(code, CategoryCode) else 1 for _, code in codes)
        if width > MOST_COLUMNS:
            raise UsageError(f"{where}: the features become {width} columns; at most {MOST_COLUMNS} are made")
        return TableEncoder(tuple(codes))

    def encode(self, columns: Sequence[Column], where: str) -> npt.NDArray[np.float32]:
        """Return float32 [N, encoded columns].

        Raises:
            UsageError: A column holds text here and numbers in the training part, or the reverse.
        """
        made = []
        for column, (name, code) in zip(columns, self.codes, strict=True):
            if column.is_text != isinstance(code, CategoryCode):
                kinds = ("text", "numbers") if column.is_text else ("numbers", "text")
                raise UsageError(
                    f"{where}: column {name!r} holds {kinds[0]}, and {kinds[1]} in the training part"
                )
            made.append(code.encode(column.values))
        return np.concatenate(made, axis=1).astype(np.float32)

    @staticmethod
    def restored(columns: Sequence[EncodedColumn]) -> TableEncoder:
        """Return the encoder that `described` described."""
        return TableEncoder(
            tuple(
                (one.name, CategoryCode(np.array(one.categories)) if one.categories else _number(one))
                for one in columns
            )
        )

    def described(self) -> tuple[EncodedColumn, ...]:
        """Return how each column is encoded, for people and for new rows."""
        return tuple(
            EncodedColumn(name, categories=tuple(code.categories.tolist()))
            if isinstance(code, CategoryCode)
            else EncodedColumn(name, code.mean, code.std)
            for name, code in self.codes
        )


def _number(column: EncodedColumn) -> NumberCode:
    return NumberCode(column.mean, column.std)


def _number_code(column: Column) -> NumberCode:
    values = column.values.astype(np.float64)
    # Divided by the largest value first, so that no square overflows
    scale = float(np.abs(values).max()) or 1.0
    mean, std = float((values / scale).mean()), float((values / scale).std())
    constant = std <= 1e-12 * abs(mean) or std == 0.0
    return NumberCode(mean * scale, (1.0 if constant else std * scale))


def _category_code(column: Column, where: str) -> CategoryCode:
    found = np.unique(column.values)
    if len(found) > MOST_CATEGORIES or (len(found) > 20 and len(found) > len(column.values) // 2):
        raise UsageError(
            f"{where}: column {column.name!r} holds {len(found)} different texts in {len(column.values)} "
            f"rows; leave it out (drop={column.name}) or make it numbers"
        )
    return CategoryCode(found)


def numeric(
    name: str, column: pa.ChunkedArray, where: str, place: Place = row_place, typed: bool = True
) -> Column:
    """Return a column without missing values: numbers and yes/no as float64, text as categories.

    Args:
        name: Name of the column.
        column: Its values.
        where: Beginning of the message.
        place: How the message names a row.
        typed: Whether the source has types, so that text is meant as text. Otherwise text that is numbers
            with decimal commas in every row becomes these numbers.

    Raises:
        UsageError: The column holds dates, lists or other things, values that are infinite, or whole numbers
            that a float cannot hold.
    """
    from pyarrow import types

    kind = column.type
    if is_text(kind):
        text = categorical(name, column)
        return text if typed else _from_commas(text, where, place) or text
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        values = np.asarray(column.cast("float64", safe=False).to_numpy())
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise UsageError(
                f"{where}: column {name!r} is infinite in {place(int(wrong[0]))}; correct it or drop={name}"
            )
        if types.is_integer(kind) and np.abs(values).max(initial=0.0) >= EXACT:
            raise _too_long(name, where, place(int(np.argmax(np.abs(values) >= EXACT))))
        return Column(name, values)
    raise UsageError(f"{where}: column {name!r} holds {kind}; make it numbers or text, or drop={name}")


def _too_long(name: str, where: str, place: str) -> UsageError:
    return UsageError(
        f"{where}: column {name!r} holds whole numbers of 2^53 or more, the first in {place}, which would "
        f"lose digits; identifiers: drop={name} or categorical={name}; quantities: divide them"
    )


def _from_commas(column: Column, where: str, place: Place) -> Column | None:
    """Return text such as "1,5" as numbers; None if not every row is a number with or without a comma.

    Raises:
        UsageError: The numbers are longer than a float can hold, or the commas may separate thousands.
    """
    found = [re.fullmatch(r"\s*([+-]?)(\d+)(?:,(\d+))?\s*", one) for one in column.values.tolist()]
    matches = [one for one in found if one is not None]
    if len(matches) < len(found) or not matches:
        return None
    decimals = [one for one in matches if one[3] is not None]
    if not decimals:
        long = [row for row, one in enumerate(matches) if len(one[2].lstrip("0")) > 15]
        if long:
            raise _too_long(column.name, where, place(long[0]))
        return None
    if all(len(one[3]) == 3 and len(one[2]) <= 3 and not one[2].startswith("0") for one in decimals):
        first = next(row for row, one in enumerate(matches) if one[3] is not None)
        raise UsageError(
            f"{where}: the commas in column {column.name!r} may separate decimals or thousands, as in "
            f"{place(first)}; write the numbers without separators of thousands and with a decimal point, or "
            f"categorical={column.name}"
        )
    values = [float(f"{one[1]}{one[2]}.{one[3] or 0}") for one in matches]
    return Column(column.name, np.array(values, dtype=np.float64))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds text, or categories that can be written as text."""
    from pyarrow import types

    if types.is_dictionary(kind):
        inner = kind.value_type
        return is_text(inner) or types.is_primitive(inner)
    return bool(types.is_string(kind) or types.is_large_string(kind))


def categorical(name: str, column: pa.ChunkedArray) -> Column:
    """Return a column as text, each different text a category."""
    return Column(name, np.asarray(column.cast("string").to_pylist(), dtype=np.str_))


def label_column(name: str, column: pa.ChunkedArray, where: str, place: Place = row_place) -> Array:
    """Return a column of labels or clients as int64 or text.

    Raises:
        UsageError: The column holds numbers with a fraction, dates, or other things.
    """
    from pyarrow import types

    kind = column.type
    if is_text(kind):
        return categorical(name, column).values
    if types.is_boolean(kind) or types.is_integer(kind):
        if types.is_uint64(kind):  # beyond int64 as text, each number a name
            return categorical(name, column).values
        return np.asarray(column.cast("int64").to_numpy())
    if types.is_floating(kind):
        values = np.asarray(column.to_numpy())
        wrong = np.flatnonzero((values != np.round(values)) | (np.abs(values) >= EXACT))
        if not len(wrong):
            return values.astype(np.int64)
        raise UsageError(
            f"{where}: column {name!r} holds {values[wrong[0]]} in {place(int(wrong[0]))}, which is not a "
            f"class; raffed classifies, so give a column of integers or text"
        )
    raise UsageError(f"{where}: column {name!r} holds {kind}, but may only hold integers or text")
