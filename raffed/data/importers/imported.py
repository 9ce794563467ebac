"""What every importer returns: arrays that fit together, or an error in one line that names the fault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from raffed.data.importers.values import (
    FEW_VALUES,
    Array,
    IntArray,
    Place,
    as_clients,
    as_features,
    as_labels,
    row_place,
)
from raffed.data.randomness import stream
from raffed.errors import UsageError, check_range

TEST_SHARE = 0.2
"""Fraction of the samples that becomes the test set where a file or folder brings none."""


@dataclass(frozen=True)
class EncodedColumn:
    """How one column of a table was encoded.

    Attributes:
        name: Name of the column.
        mean, std: A column of numbers became (value - mean) / std.
        categories: A column of text became one column of 0 and 1 for each of these; empty for numbers.
    """

    name: str
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataFacts:
    """What an importer found beside the arrays. None of it changes what a run computes.

    Attributes:
        kind: "table", "images", or "arrays" for all else.
        notes: Sentences about what a user may not expect, such as a part that is not used.
        client_names: Names of the clients, in the order of their numbers.
        label, client: Columns of a table that hold the classes and the clients.
        columns: The columns of a table that are features.
        na: Words that mean a missing value in a csv file; empty for the usual ones.
        missing: What was done about missing values of a table.
        resized: Whether images were resized to the size that the data set has.
    """

    kind: Literal["table", "images", "arrays"] = "arrays"
    notes: tuple[str, ...] = ()
    client_names: tuple[str, ...] = ()
    label: str = ""
    client: str = ""
    columns: tuple[EncodedColumn, ...] = ()
    na: tuple[str, ...] = ()
    missing: str = ""
    resized: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return what is known, for a JSON file. What is empty is left out."""
        facts: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {key: value for key, value in facts.items() if value}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> DataFacts:
        """Return what `as_json` described. What is missing counts as empty.

        Raises:
            ValueError: It has other types.
        """
        from pydantic import TypeAdapter

        facts: DataFacts = TypeAdapter(DataFacts).validate_python(dict(values))
        return facts


@dataclass(frozen=True, eq=False)
class Imported:
    """Arrays from outside, checked.

    Attributes:
        x: Samples [N, ...]: uint8 (becomes [0, 1] in training), float32, or int64 (ids).
        y: Labels, int64 [N], 0 to len(class_names) - 1. Every class occurs.
        x_test, y_test: The test set, as `x` and `y`; may have 0 rows.
        clients: Number of the client that has each sample, int64 [N]; None without clients.
        test_clients: The same of the test samples, -1 for a client without training samples.
        class_names: Names of the classes.
        client_names: Names of the clients, in the order of their numbers; empty without clients.
        name: Name for messages and results.
        source: Where the data came from, as typed; "" for arrays.
        facts: What was found beside the arrays.
    """

    x: Array
    y: IntArray
    x_test: Array
    y_test: IntArray
    clients: IntArray | None
    test_clients: IntArray | None
    class_names: tuple[str, ...]
    client_names: tuple[str, ...]
    name: str
    source: str = ""
    facts: DataFacts = field(default_factory=DataFacts)


@dataclass(frozen=True, eq=False)
class Columns:
    """One part of a data set as an importer found it: samples, labels, and clients where there are any.

    `place` is how messages name a sample, given its number from 0.
    """

    x: npt.ArrayLike
    y: npt.ArrayLike
    clients: npt.ArrayLike | None = None
    place: Place = row_place


def imported(
    name: str,
    train: Columns,
    test: Columns | None = None,
    *,
    share: float = 0.0,
    seed: int = 0,
    class_names: tuple[str, ...] = (),
    client_names: tuple[str, ...] = (),
    facts: DataFacts | None = None,
) -> Imported:
    """Check arrays and number their classes and clients.

    Args:
        name: Beginning of every message.
        train: The training part, or all samples if a test part is drawn.
        test: The test part, if the data bring one.
        share: Fraction of the samples that becomes the test part if `test` is None; 0 draws none. See
            `drawn_test_part` for the rule.
        seed: Decides which samples are drawn. It is not the seed of a run, so all runs share one test set.
        class_names: Names of the classes 0, 1, ...; by default the labels found are the names.
        client_names: Names of the clients 0, 1, ...; by default those found.
        facts: What is known beside the arrays; the names of the clients are added.

    Raises:
        UsageError: The arrays cannot be used. The message names the array and, where it can, the row.
    """
    check_range(f"{name}: test", share, 0.0, 0.9)
    x = as_features(f"{name}: x", train.x)
    y, names = as_labels(f"{name}: y", train.y, len(x), class_names, place=train.place)
    who, owners = as_clients(f"{name}: clients", train.clients, len(x), client_names, train.place)
    if not class_names:
        check_not_a_quantity(f"{name}: y", len(names), len(y))
    if test is not None:
        x_test, y_test, test_who = _test_columns(name, test, x, names, owners, bool(class_names))
    else:
        rows = drawn_test_part(y, who, share, seed)
        x_test, y_test, test_who = x[rows], y[rows], None if who is None else who[rows]
        if len(rows):
            kept = np.ones(len(x), dtype=bool)
            kept[rows] = False
            x, y, who = x[kept], y[kept], None if who is None else who[kept]
    _check_classes(name, y, names)
    known = replace(facts or DataFacts(), client_names=owners)
    if np.asarray(train.x).dtype == np.uint8 and np.ndim(train.x) == 2:
        scale = f"{name}: x is uint8 with one axis, so its values are numbers and are not divided by 255"
        known = replace(known, notes=(*known.notes, f"{scale}; pixels have the shape [N, H, W]"))
    return Imported(x, y, x_test, y_test, who, test_who, names, owners, name, facts=known)


def _test_columns(
    name: str, test: Columns, x: Array, names: tuple[str, ...], owners: tuple[str, ...], named: bool
) -> tuple[Array, IntArray, IntArray | None]:
    x_test = as_features(f"{name}: x_test", test.x, like=x)
    y_test, _ = as_labels(f"{name}: y_test", test.y, len(x_test), names, known=not named, place=test.place)
    if test.clients is None:
        return x_test, y_test, None
    if not owners:
        raise UsageError(f"{name}: test_clients is given and clients is not; give both or neither")
    test_who, _ = as_clients(f"{name}: test_clients", test.clients, len(x_test), owners, test.place)
    return x_test, y_test, test_who


def check_not_a_quantity(where: str, classes: int, rows: int) -> None:
    """Refuse labels of which nearly every row has one of its own."""
    if classes > max(FEW_VALUES, rows // 2):
        raise UsageError(
            f"{where} has {classes:,} different values in {rows:,} rows, so it is a quantity or a name and "
            "not a class; raffed classifies: make classes of it, such as ranges"
        )


def _check_classes(name: str, y: IntArray, names: tuple[str, ...]) -> None:
    if not len(y):
        raise UsageError(f"{name}: there is no training sample")
    if len(names) < 2:
        raise UsageError(
            f"{name}: y has the one class {names[0]!r}; a classification needs at least two classes"
        )
    empty = [names[number] for number in np.flatnonzero(np.bincount(y, minlength=len(names)) == 0)]
    if empty:
        raise UsageError(
            f"{name}: class {empty[0]!r} has no training sample ({len(empty)} such classes); "
            "remove the class, or add samples"
        )


def drawn_test_part(y: IntArray, clients: IntArray | None, share: float, seed: int) -> IntArray:
    """Return the rows of a test part that is drawn because the data bring none, in their order.

    The rule: a class with n samples gives round(share · n) of them, at least one and at most n - 1, so every
    class with two samples is trained and tested. Within a class they are spread evenly over the clients. A
    client all of whose samples would be drawn keeps its first one.

    Args:
        y: Labels [N].
        clients: Number of the client of every sample [N], or None.
        share: Fraction of each class, in [0, 0.9]; 0 draws nothing.
        seed: Decides which samples are drawn.
    """
    if share == 0:
        return np.zeros(0, np.int64)
    draws = stream(seed, "test part")
    chosen = np.zeros(len(y), dtype=bool)
    for label in range(int(y.max()) + 1):
        rows = draws.permutation(np.flatnonzero(y == label))
        if clients is not None:
            rows = rows[np.argsort(clients[rows], kind="stable")]
        wanted = min(max(round(share * len(rows)), 1), len(rows) - 1)
        if wanted > 0:
            # Every (n / wanted)-th row of the list that is sorted by client
            places = np.floor((np.arange(wanted) + draws.random_sample()) * (len(rows) / wanted))
            chosen[rows[places.astype(np.int64)]] = True
    if clients is not None:
        left = np.bincount(clients[~chosen], minlength=int(clients.max()) + 1)
        present, first = np.unique(clients, return_index=True)
        chosen[first[left[present] == 0]] = False
    return np.flatnonzero(chosen)
