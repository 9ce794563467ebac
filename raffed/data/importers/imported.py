"""What every importer returns: arrays that fit together, or an error in one line that names the fault."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from raffed.data.importers.clients import as_clients
from raffed.data.importers.facts import DataFacts
from raffed.data.importers.features import as_features
from raffed.data.importers.labels import as_labels
from raffed.data.importers.table_files import Place, row_place
from raffed.data.importers.test_part import drawn_test_part
from raffed.errors import UsageError, check_range

Array = npt.NDArray[np.generic]
IntArray = npt.NDArray[np.int64]
TEST_SHARE = 0.2
"""Fraction of the samples that becomes the test set where a file or folder brings none."""


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
    source: str = "",
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
        source: Where the data came from, as typed.
        facts: What is known beside the arrays; the names of the clients are added.

    Raises:
        UsageError: The arrays cannot be used. The message names the array and, where it can, the row.
    """
    check_range(f"{name}: test", share, 0.0, 0.9)
    x = as_features(f"{name}: x", train.x)
    y, names = as_labels(f"{name}: y", train.y, len(x), class_names, place=train.place)
    who, owners = as_clients(f"{name}: clients", train.clients, len(x))
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
    return Imported(x, y, x_test, y_test, who, test_who, names, owners, name, source, known)


def _test_columns(
    name: str, test: Columns, x: Array, names: tuple[str, ...], owners: tuple[str, ...], named: bool
) -> tuple[Array, IntArray, IntArray | None]:
    x_test = as_features(f"{name}: x_test", test.x, like=x)
    y_test, _ = as_labels(f"{name}: y_test", test.y, len(x_test), names, known=not named, place=test.place)
    if test.clients is None:
        return x_test, y_test, None
    if not owners:
        raise UsageError(f"{name}: test_clients is given and clients is not; give both or neither")
    test_who, _ = as_clients(f"{name}: test_clients", test.clients, len(x_test), owners)
    return x_test, y_test, test_who


def _check_classes(name: str, y: IntArray, names: tuple[str, ...]) -> None:
    counts = np.bincount(y, minlength=len(names))
    if not len(y):
        raise UsageError(f"{name}: there is no training sample")
    if len(names) < 2:
        raise UsageError(
            f"{name}: y has the one class {names[0]!r}; a classification needs at least two classes"
        )
    empty = [names[number] for number in np.flatnonzero(counts == 0)]
    if empty:
        raise UsageError(
            f"{name}: class {empty[0]!r} has no training sample ({len(empty)} such classes); "
            "remove the class, or add samples"
        )
