"""Tables: csv and Parquet files, pandas data frames, dictionaries of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.data.importers.clients import as_clients
from raffed.data.importers.encoding import Column, TableEncoder, categorical, label_column, numeric
from raffed.data.importers.facts import DataFacts, EncodedColumn
from raffed.data.importers.features import as_array
from raffed.data.importers.imported import TEST_SHARE, Columns, Imported, imported
from raffed.data.importers.labels import as_labels
from raffed.data.importers.parts import are_parts, chosen_parts
from raffed.data.importers.table_checks import (
    check_parts,
    hidden_numbers,
    index_columns,
    unknown_categories,
    were_numbers,
    whole_numbers,
)
from raffed.data.importers.table_files import Place, TableFile, read_table
from raffed.data.importers.test_part import drawn_test_part
from raffed.errors import UnknownNameError, UsageError, check_range

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class TableRoles:
    """Which column of a table is what.

    Attributes:
        label: Column of the classes.
        client: Column of the clients; "" without clients.
        features: Columns that are features; all others by default.
        drop: Columns that are not used.
        categorical: Columns of integers that are categories, such as postcodes.
    """

    label: str
    client: str = ""
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    def feature_names(self, where: str, columns: Sequence[str]) -> list[str]:
        """Return the feature columns of a table with these columns."""
        asked: dict[str, tuple[str, ...]] = {
            "label": (self.label,),
            "client": (self.client,) if self.client else (),
            "features": self.features,
            "drop": self.drop,
            "categorical": self.categorical,
        }
        for role, names in asked.items():
            for name in names:
                if name not in columns:
                    raise UnknownNameError(f"column of {where} for {role}", name, columns)
        taken = {self.label, self.client, *self.drop}
        if clash := sorted(taken & set(self.features)):
            raise UsageError(
                f"{where}: column {clash[0]!r} is a feature and also a label, client or dropped column"
            )
        found = list(self.features) or [name for name in columns if name not in taken]
        if not found:
            raise UsageError(f"{where}: no column is left for the features; it has {', '.join(columns)}")
        return found

    def of_tests(self, features: Sequence[Column], columns: Sequence[str]) -> TableRoles:
        """Return the roles in a table of tests: its features are those of the training table, in that order.

        Args:
            features: The features of the training table.
            columns: The columns of the table of tests. Without the column of the clients, its rows belong to
                nobody.
        """
        names = tuple(one.name for one in features)
        client = self.client if self.client in columns else ""
        return TableRoles(
            self.label, client, names, categorical=tuple(one for one in self.categorical if one in names)
        )


def import_table(
    table: pd.DataFrame | pa.Table | Mapping[str, npt.ArrayLike] | str | Path,
    *,
    label: str = "",
    client: str = "",
    features: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    categorical: tuple[str, ...] = (),
    test: str | float = TEST_SHARE,
    seed: int = 0,
    name: str = "table",
    source: str = "",
    notes: tuple[str, ...] = (),
) -> Imported:
    """Read a table with a column of classes and perhaps a column of clients.

    Numeric columns are standardised with mean and standard deviation of the training rows. Columns of text
    become one column of 0 and 1 for each category of the training rows; a category that occurs in the test
    rows only becomes zeros. A column of text that says train, test or alike in every row divides the table,
    unless it is dropped or `features` are named. A second table has its features by their names, in any
    order.

    Args:
        table: Path of a csv or Parquet file, a data frame, or columns by name.
        label, client, features, drop, categorical: See `TableRoles`.
        test: Fraction of the rows that becomes the test set, or path of a second table with the test rows.
        seed: Decides which rows are drawn for the test set.
        name: Beginning of every message.
        source: Where the table came from, as typed.
        notes: What a user may not expect of the table.

    Returns:
        The data set; samples are float32 [N, columns].

    Raises:
        UsageError: The table cannot be used. The message names the column and the row.
    """
    train, where = _opened(table, name)
    notes = (*notes, *train.notes)
    if not label:
        columns = ", ".join(train.table.column_names[:20])
        raise UsageError(f"{where}: give the column of the classes (label=...); the columns are {columns}")
    named = filter(None, (label, client, *drop, *categorical))
    if index := [] if features else index_columns(train.table, named):
        drop = (*drop, *index)
        notes = (
            *notes,
            f"{where}: not used, because it numbers the rows: column {', '.join(map(repr, index))}",
        )
    roles = TableRoles(label, client, features, drop, categorical)
    share = _share(test)
    if share is None:
        whole = _Part.read(train, where, roles)
        tests, there = _opened(str(test), str(test), _texts(train.table, whole, roles))
        notes = (*notes, *tests.notes)
        other = _Part.read(tests, there, roles.of_tests(whole.features, tests.table.column_names))
        other = other if tests.typed else other.as_trained(train.table, roles)
        if spare := [one for one in tests.table.column_names if one not in train.table.column_names]:
            notes = (*notes, f"{there}: not used, because {where} does not have it: {', '.join(spare)}")
    elif (column := _column_of_parts(train.table, where, roles)) is not None:
        roles = replace(roles, drop=(*drop, column))
        whole, other, notes = _by_column(_Part.read(train, where, roles), train.table, column, notes)
    else:
        whole, other = _Part.read(train, where, roles).divided(share, seed)
    encoder = TableEncoder.fitted(whole.features, where)
    rest = other.encoded(encoder) if len(other.y) else None
    if not train.typed:
        notes = (*notes, *hidden_numbers(whole.features, categorical, where))
    if share is None:
        notes = (*notes, *unknown_categories(encoder, other.features, other.where))
    facts = DataFacts("table", notes, label=label, client=client, columns=encoder.described())
    return imported(name, whole.encoded(encoder), rest, source=source, facts=facts)


def encoded_rows(
    table: pd.DataFrame | pa.Table | Mapping[str, npt.ArrayLike] | str | Path,
    columns: Sequence[EncodedColumn],
    name: str = "table",
) -> npt.NDArray[np.float32]:
    """Return new rows of a table, encoded as the rows of a data set were.

    Args:
        table: As for `import_table`.
        columns: How each feature is encoded.
        name: Beginning of every message.

    Raises:
        UsageError: A column is missing, or holds text where it held numbers or the reverse.
    """
    texts = [one.name for one in columns if one.categories and not were_numbers(one.categories)]
    file, where = _opened(table, name, texts)
    found = []
    for one in columns:
        if one.name not in file.table.column_names:
            raise UnknownNameError(f"column of {where} for the model", one.name, file.table.column_names)
        _check_complete(file, one.name, where)
        column = file.table.column(one.name)
        if one.categories:
            text = categorical(one.name, column)
            plain = not file.typed and were_numbers(one.categories)
            found.append(Column(one.name, whole_numbers(text.values)) if plain else text)
        else:
            found.append(numeric(one.name, column, where, file.place, file.typed))
    return TableEncoder.restored(columns).encode(found, where)


def _column_of_parts(table: pa.Table, where: str, roles: TableRoles) -> str | None:
    """Return the column of text that names the part of every row, if there is one."""
    from pyarrow import compute, types

    if roles.features:
        return None
    for name in roles.feature_names(where, table.column_names):
        column = table.column(name)
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if not (types.is_string(kind) or types.is_large_string(kind)) or column.null_count:
            continue
        column = column.cast(kind)
        if are_parts(found := compute.unique(column).to_pylist()):
            return name
        check_parts(found, name, where)
    return None


def _by_column(
    whole: _Part, table: pa.Table, column: str, notes: tuple[str, ...]
) -> tuple[_Part, _Part, tuple[str, ...]]:
    """Return the training rows, the test rows and what a user is told about them."""
    values = np.asarray(table.column(column).cast("string").to_pylist(), dtype=np.str_)
    sizes = {str(one): int(count) for one, count in zip(*np.unique(values, return_counts=True), strict=True)}
    where = f"{whole.where}: column {column!r}"
    chosen = chosen_parts(where, sizes)
    assert chosen is not None
    said = (
        f"{where} names the parts, so {chosen.train!r} is trained on and {chosen.test!r} is the test set; "
        f"drop={column} draws a test set from all rows"
    )
    train, test = (whole.rows(np.flatnonzero(values == one)) for one in (chosen.train, chosen.test))
    return train, test, (*notes, said, *chosen.notes)


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of one part of a table, not encoded yet."""

    where: str
    features: Sequence[Column]
    y: Array
    clients: Array | None
    place: Place

    @staticmethod
    def read(file: TableFile, where: str, roles: TableRoles) -> _Part:
        table, features = file.table, []
        for name in roles.feature_names(where, table.column_names):
            _check_complete(file, name, where)
            column = table.column(name)
            text = name in roles.categorical
            features.append(
                categorical(name, column) if text else numeric(name, column, where, file.place, file.typed)
            )
        ends = [_ends(file, name, where) if name else None for name in (roles.label, roles.client)]
        assert ends[0] is not None
        return _Part(where, features, ends[0], ends[1], file.place)

    def divided(self, share: float, seed: int) -> tuple[_Part, _Part]:
        """Draw the test rows. This comes before the statistics, which only training rows may enter."""
        check_range(f"{self.where}: test", share, 0.0, 0.9)
        numbers, _ = as_labels(f"{self.where}: label", self.y, len(self.y), place=self.place)
        owners, _ = as_clients(f"{self.where}: client", self.clients, len(self.y))
        drawn = drawn_test_part(numbers, owners, share, seed)
        return self.rows(np.setdiff1d(np.arange(len(self.y)), drawn)), self.rows(drawn)

    def rows(self, chosen: npt.NDArray[np.int64]) -> _Part:
        clients = None if self.clients is None else self.clients[chosen]
        features = [column.rows(chosen) for column in self.features]
        return _Part(self.where, features, self.y[chosen], clients, lambda row: self.place(int(chosen[row])))

    def as_trained(self, table: pa.Table, roles: TableRoles) -> _Part:
        """Return the rows of a csv file with 01 as 1 in the columns that hold whole numbers in training.

        A single name in the file makes its column text, and the numbers in it would keep their zeros.
        """
        from pyarrow import types

        def plain(name: str, values: Array) -> Array:
            return whole_numbers(values) if types.is_integer(table.column(name).type) else values

        features = [replace(one, values=plain(one.name, one.values)) for one in self.features if one.is_text]
        written = {one.name: one for one in features if one.name in roles.categorical}
        clients = None if self.clients is None else plain(roles.client, self.clients)
        return replace(
            self,
            features=[written.get(one.name, one) for one in self.features],
            y=plain(roles.label, self.y),
            clients=clients,
        )

    def encoded(self, encoder: TableEncoder) -> Columns:
        return Columns(encoder.encode(self.features, self.where), self.y, self.clients, self.place)


def _texts(table: pa.Table, part: _Part, roles: TableRoles) -> list[str]:
    """Return the columns that hold text, not numbers, and must be read as text from another file too."""
    from pyarrow import types

    names = [roles.label, roles.client, *(one.name for one in part.features if one.is_text)]
    kinds = {name: table.column(name).type for name in names if name}
    return [name for name, kind in kinds.items() if types.is_string(kind) or types.is_large_string(kind)]


def _ends(file: TableFile, name: str, where: str) -> Array:
    """Return the column of the labels or clients."""
    _check_complete(file, name, where)
    return label_column(name, file.table.column(name), where, file.place)


def _opened(
    table: pd.DataFrame | pa.Table | Mapping[str, npt.ArrayLike] | str | Path,
    name: str,
    texts: Sequence[str] = (),
) -> tuple[TableFile, str]:
    """Return a table, and what messages call it. The columns `texts` of a csv file are read as text."""
    import pyarrow as pa

    if isinstance(table, str | Path):
        found = read_table(Path(table).expanduser(), texts)
        where = str(table)
    elif isinstance(table, pa.Table):
        found, where = TableFile(table), name
    else:
        found, where = TableFile(_from_memory(table, name)), name
    columns = found.table.column_names
    if len(set(columns)) < len(columns):
        twice = next(one for one in columns if columns.count(one) > 1)
        raise UsageError(f"{where}: two columns are named {twice!r}; rename one")
    if not found.table.num_rows:
        raise UsageError(f"{where} has no rows")
    return found, where


def _from_memory(table: pd.DataFrame | Mapping[str, npt.ArrayLike], name: str) -> pa.Table:
    import pyarrow as pa

    try:
        if isinstance(table, Mapping):
            columns = {str(key): as_array(f"{name}: column {key!r}", one) for key, one in table.items()}
            return pa.table({key: pa.array(one, from_pandas=True) for key, one in columns.items()})
        return pa.Table.from_pandas(table, preserve_index=False)
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{name} cannot be read as a table: {str(error).splitlines()[0]}") from error


def _check_complete(file: TableFile, name: str, where: str) -> None:
    from pyarrow import compute

    missing = np.asarray(compute.is_null(file.table.column(name), nan_is_null=True).to_numpy())
    if missing.any():
        raise UsageError(
            f"{where}: column {name!r} has {int(missing.sum())} missing values, the first in "
            f"{file.place(int(np.argmax(missing)))}; fill them, remove the rows, or leave the column out"
        )


def _share(test: str | float) -> float | None:
    """Return the fraction that `test` means, or None if it is a path."""
    try:
        return float(test)
    except ValueError:
        return None
