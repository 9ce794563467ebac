"""Encode the columns of a table as numbers, with statistics of the training rows only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.data.importers.facts import EncodedColumn
from raffed.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]
MOST_CATEGORIES = 1000
MOST_COLUMNS = 100_000


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

    def described(self) -> tuple[EncodedColumn, ...]:
        """Return how each column is encoded, for people and for new rows."""
        return tuple(
            EncodedColumn(name, categories=tuple(code.categories.tolist()))
            if isinstance(code, CategoryCode)
            else EncodedColumn(name, code.mean, code.std)
            for name, code in self.codes
        )


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


def numeric(name: str, column: pa.ChunkedArray, where: str) -> Column:
    """Return a column without missing values: numbers and yes/no as float64, text as categories.

    Raises:
        UsageError: The column holds dates, lists or other things, or values that are infinite.
    """
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind):
        return categorical(name, column)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        values = np.asarray(column.cast("float64", safe=False).to_numpy())
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise UsageError(
                f"{where}: column {name!r} is infinite in row {wrong[0]}; correct it or drop={name}"
            )
        return Column(name, values)
    raise UsageError(f"{where}: column {name!r} holds {kind}; make it numbers or text, or drop={name}")


def categorical(name: str, column: pa.ChunkedArray) -> Column:
    """Return a column as text, each different text a category."""
    return Column(name, np.asarray(column.cast("string").to_pylist(), dtype=np.str_))


def label_column(name: str, column: pa.ChunkedArray, where: str) -> Array:
    """Return a column of labels or clients as int64 or text.

    Raises:
        UsageError: The column holds numbers with a fraction, dates, or other things.
    """
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind):
        return categorical(name, column).values
    if types.is_boolean(kind) or types.is_integer(kind):
        return np.asarray(column.cast("int64").to_numpy())
    if types.is_floating(kind):
        values = np.asarray(column.to_numpy())
        wrong = np.flatnonzero(values != np.round(values))
        if not len(wrong):
            return values.astype(np.int64)
        raise UsageError(
            f"{where}: column {name!r} holds {values[wrong[0]]} in row {wrong[0]}, which is not a class; "
            f"raffed classifies, so give a column of integers or text"
        )
    raise UsageError(f"{where}: column {name!r} holds {kind}, but may only hold integers or text")
