"""Tables with a column of classes, as arrays: features encoded by the training rows alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from raffed.data.importers.imported import (
    TEST_SHARE,
    Columns,
    DataFacts,
    EncodedColumn,
    Imported,
    check_not_a_quantity,
    drawn_test_part,
    imported,
)
from raffed.data.importers.table_files import MISSING, Column, Table, opened
from raffed.data.importers.values import (
    FEW_VALUES,
    Array,
    Floats,
    alike,
    are_parts,
    as_clients,
    as_labels,
    as_lists,
    chosen_parts,
    in_order,
    parsed,
    part_named,
)
from raffed.errors import UsageError, check_choice, check_range

if TYPE_CHECKING:
    from raffed.data.importers.table_files import GivenTable

MOST_CATEGORIES = 1000
MOST_COLUMNS = 100_000
MOST_PARTS = 6
MISSING_RULES = ("drop", "mean", "word")
NEARLY_ALL = 0.95
_DRESSED = r"[^\w]{0,3}\d[\d.,'\s]*[^\d]{0,10}"  # $15, 13.5%, 36 months, <12, 1.013,50


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of one part of a table, not encoded yet: features by name, classes and clients as text."""

    table: Table
    numbers: npt.NDArray[np.int64]
    features: Mapping[str, Column]
    y: Array
    clients: Array | None

    def chosen(self, rows: npt.NDArray[np.int64]) -> _Rows:
        """Return some of the rows."""
        features = {name: replace(cells, values=cells.values[rows]) for name, cells in self.features.items()}
        clients = None if self.clients is None else self.clients[rows]
        return _Rows(self.table, self.numbers[rows], features, self.y[rows], clients)

    def place(self, row: int) -> str:
        """Return how messages name a row."""
        return self.table.place(int(self.numbers[row]))

    def divided(self, share: float, seed: int) -> tuple[_Rows, _Rows]:
        """Draw the test rows. This comes before the statistics, which only training rows may enter."""
        where, count = self.table.where, len(self.y)
        check_range(f"{where}: test", share, 0.0, 0.9)
        y, _ = as_labels(f"{where}: label", self.y, count, in_order(self.y), place=self.place)
        names = () if self.clients is None else in_order(self.clients)
        who, _ = as_clients(f"{where}: client", self.clients, count, names, self.place)
        drawn = drawn_test_part(y, who, share, seed)
        return self.chosen(np.setdiff1d(np.arange(count), drawn)), self.chosen(drawn)

    def encoded(self, encoding: Sequence[EncodedColumn]) -> Columns:
        """Return the rows as numbers. Without an encoding, the only column has lists of them."""
        x = _encode(encoding, self.features) if encoding else next(iter(self.features.values())).values
        return Columns(x, self.y, self.clients, self.place)


def import_table(
    table: GivenTable,
    *,
    x: str = "",
    pad: int | None = None,
    label: str = "",
    client: str = "",
    features: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    categorical: tuple[str, ...] = (),
    na: tuple[str, ...] = MISSING,
    missing: str = "",
    test: GivenTable | float = TEST_SHARE,
    seed: int = 0,
    name: str = "table",
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
        x: Column of lists of numbers that are the samples, such as ids of words; "" for columns of features.
        pad: The id that fills short lists up at their ends. None refuses lists of unequal lengths.
        label: Column of the classes.
        client: Column of the clients, for `--split natural`; "" without clients.
        features: Columns that are features; by default all others that can be features.
        drop: Columns that are not used.
        categorical: Columns of numbers that are categories, such as postcodes.
        na: Words that mean a missing value in a csv file. No text always does.
        missing: What is done about missing values. "drop" leaves their rows out. "mean" fills in the mean of
            the training rows, and the word "missing" for texts; "word" does only the latter. "" refuses them.
            Classes and clients are never filled in.
        test: Fraction of the rows that becomes the test set, or a second table with the test rows.
        seed: Decides which rows are drawn for the test set.
        name: Beginning of every message.
        notes: What a user may not expect of the table.

    Returns:
        The data set; samples are float32 [N, columns], or what the lists of `x` hold.

    Raises:
        UsageError: The table cannot be used. The message names the column and the row.
    """
    check_choice(f"{name}: missing", missing or MISSING_RULES[0], MISSING_RULES)
    whole = opened(table, name, na)
    where = whole.where
    if not label:
        columns = ", ".join(whole.names_of_columns[:20])
        raise UsageError(f"{where}: give the column of the classes (label=...); the columns are {columns}")
    ends = [label, client] if client else [label]
    whole.check_columns("label", [label])
    whole.check_columns("client", ends[1:])
    whole.check_columns("features", features)
    whole.check_columns("drop", drop)
    whole.check_columns("categorical", categorical)
    lists = [x] if x else []
    whole.check_columns("x", lists)
    taken = [*ends, *drop]
    if clash := sorted(set(taken) & {*features, *lists}):
        raise UsageError(
            f"{where}: column {clash[0]!r} is a feature and also a label, client or dropped column"
        )
    if x and features:
        raise UsageError(f"{where}: x names a column of lists, and features columns of numbers; give one")
    if pad is not None and not x:
        raise UsageError(f"{where}: pad={pad} is for lists; also give x=COLUMN")
    others = [column for column in whole.names_of_columns if column not in [*taken, *lists]]
    rest = lists or features or others
    spare: dict[str, str] = {}
    for column in () if x or features else rest:
        if not column or whole.frame[column].isna().all():
            spare[column] = "is empty" if column else "has no name"
    used = [column for column in rest if column not in spare]
    whole = whole.complete([] if x else used, [*ends, *lists], missing, categorical)

    def feature(table: Table, column: str, text: bool | None = None) -> Column:
        if column in lists:
            return Column(as_lists(table.where, x, table.frame[x].tolist(), pad, table.place))
        return Column(table.text(column)) if column in categorical else table.column(column, text)

    held = {column: feature(whole, column) for column in used}
    few = [key for key in others if whole.kind(key) == "string" and whole.frame[key].nunique() <= MOST_PARTS]
    texts = {column: Column(whole.text(column)) for column in few if x}
    parts = None if features else _column_of_parts(texts if x else held, where)
    if x and (unused := ", ".join(column for column in others if column != parts)):
        notes = (*notes, f"{where}: not used: {unused}; {x!r} holds the samples")
    elif not x and not features:
        spare |= _without_meaning(held, {*categorical, parts})
    kept = {column: cells for column, cells in held.items() if column not in spare and column != parts}
    if not kept:
        columns = ", ".join(whole.names_of_columns)
        raise UsageError(f"{where}: no column is left for the features; it has {columns}")
    notes = (
        *notes,
        *whole.notes,
        *(f"{where}: column {name!r} is not used, because it {why}" for name, why in spare.items()),
        *_doubts(whole, kept, categorical),
    )
    owners = whole.names(client) if client else None
    train = _Rows(whole, np.arange(len(whole.frame)), kept, whole.names(label), owners)
    check_not_a_quantity(f"{where}: column {label!r}", len(set(train.y)), len(train.y))
    if not isinstance(test, float | int):
        second = opened(test, f"{name} (test)", na)
        tests, said = _second(second, whole, train, (label, client, missing), feature)
    elif parts is not None:
        train, tests, said = _by_column(train, parts, whole.text(parts))
    else:
        (train, tests), said = train.divided(test, seed), ()
    encoding = [] if x else [_fitted(column, cells, where) for column, cells in train.features.items()]
    width = sum(len(column.categories) or 1 for column in encoding)
    if width > MOST_COLUMNS:
        raise UsageError(f"{where}: the features become {width} columns; at most {MOST_COLUMNS} are made")
    if parts is not None or not isinstance(test, float | int):
        said = (*said, *_unknown_categories(encoding, tests))
    trained, tested = train.encoded(encoding), tests.encoded(encoding)
    if pad is not None:
        long, long_test = alike(pad, trained.x, tested.x)
        trained, tested = replace(trained, x=long), replace(tested, x=long_test)
    kind: Literal["arrays", "table"] = "arrays" if x else "table"
    return imported(
        name,
        trained,
        tested if len(tests.y) else None,
        class_names=in_order(train.y),
        client_names=() if train.clients is None else in_order(train.clients),
        facts=DataFacts(
            kind,
            (*notes, *said),
            label=label,
            client=client,
            columns=tuple(encoding),
            na=() if na == MISSING else na or ("",),  # no text means a missing value anyway
            missing=missing,
        ),
    )


def encoded_rows(table: GivenTable, facts: DataFacts, name: str = "table") -> npt.NDArray[np.float32]:
    """Return new rows of a table, encoded as the rows of a data set were.

    Every row is returned, so a row with a missing value is refused where rows were left out for that.

    Args:
        table: As for `import_table`.
        facts: How each feature is encoded, and what is missing.
        name: Beginning of every message.

    Raises:
        UsageError: A column is missing, or holds text where it held numbers.
    """
    columns = facts.columns
    new = opened(table, name, facts.na or MISSING)
    texts = {column.name: bool(column.categories) for column in columns}
    new.check_columns("the model", [*texts])
    rule = "" if facts.missing == "drop" else facts.missing
    new.check_complete([*texts], rule, [name for name, is_text in texts.items() if is_text])
    held = {key: Column(new.text(key)) if text else new.column(key, text) for key, text in texts.items()}
    return _encode(columns, held)


def _column_of_parts(columns: Mapping[str, Column], where: str) -> str | None:
    """Return the column of text that names the part of every row, if there is one."""
    for name, column in columns.items():
        if not column.is_text:
            continue
        values = [str(value) for value in np.unique(column.values)]
        if are_parts(values):
            return name
        known = {value: part_named(value) for value in values[: MOST_PARTS + 1]}
        other = next((value for value, part in known.items() if part is None), None)
        if len(values) <= MOST_PARTS and other is not None and {"train", "test"} <= set(known.values()):
            raise UsageError(
                f"{where}: column {name!r} names parts, and {other!r}, which is none, so the test rows would "
                f"be trained on; rename or remove the rows of {other!r}, or drop={name}"
            )
    return None


def _without_meaning(columns: Mapping[str, Column], decided: Collection[str | None]) -> dict[str, str]:
    """Return the columns that number the rows or name parts, and why they are not used."""
    reasons = {}
    for name, column in columns.items():
        values = column.values
        if name in decided:
            continue
        if column.is_text:
            if are_parts({re.sub(r"[\W_]*\d+$", "", str(value)) for value in np.unique(values)}):
                reasons[name] = "names parts; features=... uses it"
        elif column.whole and re.fullmatch(r"Unnamed: \d+|__index_level_\d+__", name):
            reasons[name] = "numbers the rows; features=... uses it"
        elif column.whole and re.fullmatch(r"(k|cv)?[_ -]?(fold|split)s?[_ -]?\d*", name.casefold()):
            reasons[name] = "names parts; features=... uses it"
        elif column.whole and len(values) >= FEW_VALUES and bool((np.diff(values) == 1).all()):
            reasons[name] = "numbers the rows; features=... uses it"
    return reasons


def _doubts(table: Table, columns: Mapping[str, Column], decided: Collection[str]) -> list[str]:
    """Return a note for each feature that may be meant otherwise, except declared categories."""
    notes = []
    for name, column in columns.items():
        if not column.whole and not column.is_text:
            continue
        values, distinct = column.values, len(np.unique(column.values))
        if column.whole and len(values) >= FEW_VALUES and distinct >= NEARLY_ALL * len(values):
            notes.append(
                f"{table.where}: column {name!r} has a value of its own in nearly every row; if it names the "
                f"rows and measures nothing, drop={name}"
            )
        if not column.is_text or name in decided:
            continue
        plain = np.array([parsed(values[row : row + 1]) is not None for row in range(len(values))])
        if not table.typed and not plain.all() and plain.mean() >= NEARLY_ALL:
            raise UsageError(
                f"{table.where}: column {name!r} holds numbers, and {str(values[np.argmin(plain)])!r} in "
                f"{table.at(~plain)}; correct it, or categorical={name}"
            )
        words = [str(value) for value in values if re.search(r"\w", value)]
        dressed = sum(re.fullmatch(_DRESSED, word) is not None for word in words)
        if dressed > len(words) / 2:
            notes.append(
                f"{table.where}: column {name!r} is read as text with {distinct} categories, because "
                f"{str(values[np.argmin(plain)])!r} is not a number; correct such values, drop={name} or "
                f"categorical={name}"
            )
    return notes


def _second(
    second: Table,
    first: Table,
    train: _Rows,
    asked: tuple[str, str, str],
    feature: Callable[[Table, str, bool | None], Column],
) -> tuple[_Rows, tuple[str, ...]]:
    """Return the rows of a second table, whose features are those of the first one, and notes."""
    label, client, missing = asked
    client = client if client in second.frame else ""  # without the column, its rows belong to nobody
    second.check_columns("features", [*train.features])
    second.check_columns("label", [label])
    ends = [label, *([client] if client else [])]
    texts = [name for name, cells in train.features.items() if cells.is_text]
    second = second.complete([*train.features], ends, missing, texts)
    features = {name: feature(second, name, cells.is_text) for name, cells in train.features.items()}
    spare = [column for column in second.names_of_columns if column not in first.frame]
    unused = f"{second.where}: not used, because {first.where} does not have it: {', '.join(spare)}"
    owners = second.names(client) if client else None
    rows = _Rows(second, np.arange(len(second.frame)), features, second.names(label), owners)
    return rows, (*second.notes, *([unused] if spare else []))


def _by_column(rows: _Rows, column: str, values: Array) -> tuple[_Rows, _Rows, tuple[str, ...]]:
    """Return the training rows, the test rows and what a user is told about them."""
    counted = zip(*np.unique(values, return_counts=True), strict=True)
    where = f"{rows.table.where}: column {column!r}"
    chosen = chosen_parts(where, {str(value): int(count) for value, count in counted})
    assert chosen is not None
    said = (
        f"{where} names the parts, so {chosen.train!r} is trained on and {chosen.test!r} is the test set; "
        f"drop={column} draws a test set from all rows"
    )
    train, test = (rows.chosen(np.flatnonzero(values == part)) for part in (chosen.train, chosen.test))
    return train, test, (said, *chosen.notes)


def _unknown_categories(encoding: Sequence[EncodedColumn], rows: _Rows) -> list[str]:
    """Return a note for each column whose rows here have categories that no training row has."""
    notes = []
    for column in encoding:
        values = rows.features[column.name].values
        unknown = ~np.isin(values, column.categories) if column.categories else np.zeros(0, bool)
        if unknown.any():
            notes.append(
                f"{rows.table.where}: column {column.name!r} has a category in {int(unknown.sum()):,} test "
                f"rows that no training row has, such as {str(values[unknown][0])!r}; it becomes zeros"
            )
    return notes


def _fitted(name: str, column: Column, where: str) -> EncodedColumn:
    """Take the statistics of a column of training rows."""
    values = column.values
    if column.is_text:
        texts = np.unique(values)
        if len(texts) > MOST_CATEGORIES or len(texts) > max(FEW_VALUES, len(values) // 2):
            raise UsageError(
                f"{where}: column {name!r} holds {len(texts)} different texts in {len(values)} rows; leave "
                f"it out (drop={name}) or make it numbers"
            )
        return EncodedColumn(name, categories=tuple(texts.tolist()))
    # Divided by the largest value first, so that no square overflows
    numbers: Floats = values[~np.isnan(values)].astype(np.float64)
    if not len(numbers):
        raise UsageError(f"{where}: column {name!r} has no value in the training rows; drop={name}")
    scale = float(np.abs(numbers).max()) or 1.0
    mean, std = float((numbers / scale).mean()), float((numbers / scale).std())
    constant = std <= 1e-12 * abs(mean) or std == 0.0
    return EncodedColumn(name, mean * scale, 1.0 if constant else std * scale)


def _encode(columns: Sequence[EncodedColumn], values: Mapping[str, Column]) -> npt.NDArray[np.float32]:
    """Return float32 [N, encoded columns]. A category that is not known becomes zeros."""
    encoded = []
    for column in columns:
        cells = values[column.name].values
        if column.categories:
            encoded.append(np.equal(cells[:, None], np.array(column.categories)[None]).astype(np.float32))
        else:
            numbers = np.nan_to_num((cells.astype(np.float64) - column.mean) / column.std)  # 0 is the mean
            encoded.append(numbers[:, None].astype(np.float32))
    return np.concatenate(encoded, axis=1)
