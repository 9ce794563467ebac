"""What the columns of a table look like and are not: an index, numbers as text, categories of other rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.data.importers.encoding import CategoryCode, Column, TableEncoder
from raffed.data.importers.parts import part_named
from raffed.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[np.generic]
MOST_PARTS = 6
_WHOLE = re.compile(r"\s*([+-]?)0*(\d+)\s*")
_NUMBER = re.compile(r"\s*[+-]?(\d[\d.,' ]*|[.,]\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)


def index_columns(table: pa.Table, named: Iterable[str]) -> list[str]:
    """Return the columns in which pandas wrote the numbers of the rows, unless the user has named them.

    In a Parquet file it is `__index_level_0__`, in a csv file a column without a name, which pandas reads
    back as `Unnamed: 0`.
    """
    from pyarrow import types

    found = []
    for name in set(table.column_names) - set(named):
        unnamed = name == "Unnamed: 0" and types.is_integer(table.column(name).type)
        if not name or unnamed or re.fullmatch(r"__index_level_\d+__", name):
            found.append(name)
    return sorted(found)


def whole_numbers(values: Array) -> Array:
    """Return text with whole numbers as Python writes them: 01 becomes 1. Other text stays."""
    if values.dtype.kind != "U":
        return values
    matches = [(one, _WHOLE.fullmatch(one)) for one in values.tolist()]
    return np.array([one if found is None else _whole(found) for one, found in matches], dtype=np.str_)


def _whole(found: re.Match[str]) -> str:
    return f"-{found[2]}" if found[1] == "-" and found[2] != "0" else found[2]


def were_numbers(categories: Sequence[str]) -> bool:
    """Return whether categories may come from a column of whole numbers or yes/no."""
    if set(categories) <= {"true", "false"}:
        return True
    return bool(np.array_equal(whole_numbers(np.array(categories)), categories)) and all(
        _WHOLE.fullmatch(one) for one in categories
    )


def hidden_numbers(columns: Iterable[Column], declared: Sequence[str], where: str) -> list[str]:
    """Return a note for each column of text most of whose rows are numbers, except declared categories."""
    notes = []
    for one in columns:
        if not one.is_text or one.name in declared:
            continue
        found = np.array([_NUMBER.fullmatch(text) is not None for text in one.values.tolist()])
        if found.mean() > 0.5:
            other = np.flatnonzero(~found)
            example = str(one.values[other[0] if len(other) else 0])
            notes.append(
                f"{where}: column {one.name!r} is read as text with {len(np.unique(one.values))} categories, "
                f"because {example!r} is not a number; correct such values, or categorical={one.name}"
            )
    return notes


def unknown_categories(encoder: TableEncoder, columns: Iterable[Column], where: str) -> list[str]:
    """Return a note for each column whose rows here have categories that no training row has."""
    notes = []
    for column, (name, code) in zip(columns, encoder.codes, strict=True):
        if not isinstance(code, CategoryCode) or not column.is_text:
            continue
        unknown = ~np.isin(column.values, code.categories)
        if unknown.any():
            notes.append(
                f"{where}: column {name!r} has a category in {int(unknown.sum()):,} test rows that no "
                f"training row has, such as {str(column.values[unknown][0])!r}; it becomes zeros"
            )
    return notes


def check_parts(values: Sequence[str], name: str, where: str) -> None:
    """Refuse a column that names the training and the test part and something else besides."""
    if len(values) > MOST_PARTS:
        return
    parts = {one: part_named(one) for one in values}
    other = next((one for one, part in parts.items() if part is None), None)
    if other is not None and {"train", "test"} <= set(parts.values()):
        raise UsageError(
            f"{where}: column {name!r} names parts, and {other!r}, which is none, so the test rows would be "
            f"trained on; rename or remove the rows of {other!r}, or drop={name}"
        )


__all__ = [
    "check_parts",
    "hidden_numbers",
    "index_columns",
    "unknown_categories",
    "were_numbers",
    "whole_numbers",
]
