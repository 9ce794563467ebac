"""`raffed datasets TEXT` for data of one's own: what was read, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import typer

from raffed.cli.numbers import counted
from raffed.results.text import visible

if TYPE_CHECKING:
    from raffed.data.dataset import Dataset
    from raffed.data.importers.imported import EncodedColumn

SHOWN = 50
SHOWN_CATEGORIES = 8
THINGS = {"images": "image", "table": "row", "arrays": "sample"}


def show_own(text: str) -> None:
    """Read data of one's own, and show their size, classes, clients and columns.

    Raises:
        UsageError: They cannot be used.
    """
    from raffed.cli.tables import show, show_pairs
    from raffed.data.own_data import read_own

    data = read_own(text)
    facts = data.facts
    show_pairs(_about(data), title=text)
    classes = np.bincount(data.y, minlength=data.num_classes), _counts(data.y_test, data.num_classes)
    names = data.class_names or tuple(map(str, range(data.num_classes)))
    _show_counts("class", names, *classes)
    if data.clients is not None:
        count = int(data.clients.max()) + 1
        tests = _counts(data.test_clients, count) if data.test_clients is not None else None
        owners = facts.client_names or tuple(map(str, range(count)))
        _show_counts("client", owners, np.bincount(data.clients, minlength=count), tests)
    if facts.columns:
        rows = [(one.name, _encoding(one)) for one in facts.columns[:SHOWN]]
        show(("column", "what the network gets"), rows)
        _more(len(facts.columns), "column")
    for note in facts.notes:
        typer.echo(visible(f"note: {note}"))
    split = "iid:10" if data.clients is None else "natural"
    typer.echo(visible(f"Use it: raffed run --dataset '{text}' --split {split}"))


def _about(data: Dataset) -> list[tuple[str, str]]:
    thing = THINGS[data.facts.kind]
    shape = "x".join(map(str, data.input_shape))
    held = {"uint8": "pixels", "float32": "numbers", "int64": "ids"}[str(data.x.dtype)]
    found = [
        ("training part", counted(len(data.x), thing)),
        ("test part", counted(len(data.x_test), thing) if len(data.x_test) else "none"),
        ("one input", f"{shape} {held} ({data.x.dtype})"),
        ("classes", f"{data.num_classes}" + (f", in column {data.facts.label}" if data.facts.label else "")),
    ]
    if data.clients is not None:
        column = f", in column {data.facts.client}" if data.facts.client else ""
        found.append(("clients", f"{int(data.clients.max()) + 1}{column}"))
    else:
        found.append(("clients", "none are named; every split but natural can be used"))
    return found


def _counts(values: np.typing.NDArray[np.int64], count: int) -> np.typing.NDArray[np.int64]:
    return np.bincount(values[values >= 0], minlength=count).astype(np.int64)


def _show_counts(
    what: str,
    names: tuple[str, ...],
    train: np.typing.NDArray[np.int64],
    test: np.typing.NDArray[np.int64] | None,
) -> None:
    from raffed.cli.tables import show

    rows = [
        (str(number), name, f"{train[number]:,}", "" if test is None else f"{test[number]:,}")
        for number, name in enumerate(names[:SHOWN])
    ]
    show(("number", what, "training", "test"), rows, right="number|training|test")
    _more(len(names), what)


def _more(count: int, what: str) -> None:
    if count > SHOWN:
        plural = "classes" if what == "class" else f"{what}s"
        typer.echo(f"The first {SHOWN} of {count:,} {plural} are shown.")


def _encoding(column: EncodedColumn) -> str:
    if not column.categories:
        return f"(value - {column.mean:.6g}) / {column.std:.6g}"
    shown = ", ".join(column.categories[:SHOWN_CATEGORIES])
    more = ", …" if len(column.categories) > SHOWN_CATEGORIES else ""
    return f"0 or 1 for each of {len(column.categories)} categories: {shown}{more}"


__all__ = ["show_own"]
