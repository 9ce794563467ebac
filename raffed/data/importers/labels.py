"""Turn labels of any kind (integers, yes/no, text) into the numbers 0 to C - 1, with names."""

from __future__ import annotations

import unicodedata

import numpy as np
import numpy.typing as npt

from raffed.data.importers.features import as_array
from raffed.data.importers.table_files import Place, row_place
from raffed.errors import UsageError

IntArray = npt.NDArray[np.int64]
Names = tuple[str, ...]
SHOWN = 5


def as_labels(
    where: str,
    given: npt.ArrayLike,
    count: int,
    class_names: Names = (),
    known: bool = False,
    place: Place = row_place,
) -> tuple[IntArray, Names]:
    """Return labels as int64 [N] from 0, and the names of the classes.

    Without `class_names`, the classes are the labels found, in their order (numbers by size, text by
    alphabet), and the labels are the names. With `class_names`, integers are places in that list, and text
    is one of its entries.

    Args:
        where: Beginning of the message.
        given: One label for each of `count` samples: integers, yes/no, or text; also as one column [N, 1].
        count: Number of samples.
        class_names: Names of the classes, if they are known.
        known: Whether `class_names` are those of a training part, so that numbers are names and not places.
        place: How the message names a row.

    Raises:
        UsageError: The labels have another type, another length, or name no class. The message names the row.
    """
    y = as_array(where, given)
    if y.dtype.kind == "O":
        y = _from_objects(where, y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or (y.size and y.dtype.kind not in "biuU"):
        raise UsageError(
            f"{where} is {y.dtype} {y.shape}, but must be one integer or text per sample, ({count},)"
            f"{_advice(y)}"
        )
    if len(y) != count:
        raise UsageError(f"{where} has {len(y)} labels for {count} samples")
    if not len(y):
        return np.zeros(0, np.int64), class_names
    y = y.astype(np.int64) if y.dtype.kind == "b" else y
    _check_text(where, y, place)
    if class_names and y.dtype.kind != "U" and not known:
        return _places(where, y, class_names), class_names
    if class_names:
        return _named(where, y, class_names, place), class_names
    found, places = np.unique(y, return_inverse=True)
    return places.astype(np.int64), tuple(str(one) for one in found)


def _advice(y: npt.NDArray[np.generic]) -> str:
    """Return what to do about labels that are not integers or text, as the end of a message."""
    if y.ndim == 2 and y.dtype.kind in "biuf" and y.shape[1] > 1:
        ones = np.equal(y, 1)
        if bool(np.all(ones | np.equal(y, 0))) and bool(np.all(ones.sum(1) == 1)):
            return "; it is one-hot, so give the numbers of the classes: y.argmax(1)"
        return "; scores of classes become labels with y.argmax(1), and several labels per sample do not fit"
    if y.ndim == 1 and y.dtype.kind == "f":
        values = y.astype(np.float64)
        wrong = np.flatnonzero(values != np.round(values))
        if len(wrong):
            value = values[wrong[0]]
            return f"; row {wrong[0]} has {value:g}, and raffed classifies: make classes of such numbers"
        return "; give whole numbers: y.astype(int)"
    if y.dtype.kind == "S":
        return "; give text: y.astype(str)"
    return ""


def _from_objects(where: str, y: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Turn an array of Python objects into one of text or integers, if all are of one of these types."""
    kinds = {type(one) for one in y.flat}
    if kinds <= {str, np.str_}:
        return y.astype(str)
    for number, one in enumerate(y.flat):
        if one is None or isinstance(one, float):
            raise UsageError(f"{where} has no label in row {number} ({one}); remove the row or label it")
    if kinds <= {int, np.int64, np.int32}:
        return y.astype(np.int64)
    shown = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise UsageError(f"{where} holds objects of type {shown}, but must be one integer or text per sample")


def _check_text(where: str, y: npt.NDArray[np.generic], place: Place) -> None:
    if y.dtype.kind != "U":
        return
    for number in np.flatnonzero(np.char.strip(y.astype(str)) == ""):
        raise UsageError(f"{where} has an empty label in {place(int(number))}; remove the row or label it")
    alike: dict[str, str] = {}
    for one in np.unique(y).tolist():
        other = alike.setdefault(unicodedata.normalize("NFC", str(one)).strip(), str(one))
        if other != one:
            blanks = other.strip() == str(one).strip()
            how = "differ in blanks only" if blanks else "look the same"
            raise UsageError(f"{where}: the labels {other!r} and {one!r} {how}; make them alike")


def _places(where: str, y: npt.NDArray[np.generic], names: Names) -> IntArray:
    wrong = np.flatnonzero(np.less(y, 0) | np.greater_equal(y, len(names)))
    if len(wrong):
        raise UsageError(
            f"{where} has the label {y[wrong[0]]} in row {wrong[0]}, but labels must be 0 to "
            f"{len(names) - 1} for {len(names)} class_names"
        )
    return y.astype(np.int64)


def _named(where: str, y: npt.NDArray[np.generic], names: Names, place: Place) -> IntArray:
    number = {name: place for place, name in enumerate(names)}
    found, places = np.unique(y, return_inverse=True)
    for one, text in enumerate(str(each) for each in found):
        if text not in number:
            row = int(np.flatnonzero(places == one)[0])
            shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
            raise UsageError(
                f"{where} has the label {text!r} in {place(row)}, which is not a class of the training part "
                f"({shown})"
            )
    table = np.array([number[str(each)] for each in found], dtype=np.int64)
    return table[places]


def renumbered(where: str, y: npt.NDArray[np.generic], names: Names, known: Names) -> npt.NDArray[np.generic]:
    """Return labels that number `names` as labels that number `known`.

    Args:
        where: Beginning of the message.
        y: Labels. Text is not changed.
        names: The classes of these labels; empty if nobody knows.
        known: The classes of the training part; empty if nobody knows.

    Raises:
        UsageError: A label stands for a class that the training part does not have.
    """
    if not known or names == known or y.dtype.kind not in "iu" or y.ndim != 1 or not y.size:
        return y
    if not 0 <= int(y.min()) <= int(y.max()) < len(names):
        return y
    places = {one: place for place, one in enumerate(known)}
    found, rows = np.unique(y, return_inverse=True)
    for one in found.tolist():
        if names[one] not in places:
            raise UsageError(f"{where}: its class {names[one]!r} is not a class of the training part")
    return np.array([places[names[one]] for one in found.tolist()], dtype=np.int64)[rows]
