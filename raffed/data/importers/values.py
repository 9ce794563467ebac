"""Check what stands in arrays, and number classes and clients. A fault is one line that names its place."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from raffed.errors import UsageError

Array = npt.NDArray[np.generic]
IntArray = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Names = tuple[str, ...]
Place = Callable[[int], str]
"""How messages name a row or sample, given its number from 0."""
Part = Literal["train", "test", "validation"]

LARGEST = 1e9
"""Largest magnitude of a feature. A square of it, summed over a layer, is still far inside float32."""
LARGEST_ID = 2**31
CHANNELS = (1, 3, 4)
SHOWN = 5
FEW_VALUES = 20  # so many different values are never too many for a class or a category
_FLOATS = "give numbers: astype('float32') for features, astype('int64') for ids, uint8 for pixels"
_WORDS: dict[str, Part] = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("test", "testing", "tests", "tst"), "test"),
    **dict.fromkeys(
        ("val", "valid", "validation", "validate", "dev", "development", "eval", "evaluation"), "validation"
    ),
}
_ENDINGS = ("", "set", "data", "dataset", "images", "image", "imgs", "img", "split", "part", "samples")
_JOINED = {word + ending: part for word, part in _WORDS.items() for ending in _ENDINGS}


def row_place(row: int) -> str:
    """Return how messages name a row of what is not a text file: rows are counted from 0."""
    return f"row {row}"


def as_array(where: str, given: npt.ArrayLike) -> Array:
    """Return an array of NumPy's, or refuse what cannot be made one (lists of unequal lengths, a tensor on a
    GPU) and arrays with masked values.

    A list in which text stands beside other things becomes objects: NumPy would make the text "nan" of NaN.
    """
    if isinstance(given, np.ma.MaskedArray) and (masked := np.ma.getmaskarray(given)).any():
        # NumPy keeps any numbers under masked values
        raise UsageError(
            f"{where} has {int(masked.sum())} masked values, the first in sample {_sample(masked)}; fill "
            "them or remove these samples"
        )
    try:
        x = np.asarray(given)
        if x.dtype.kind == "U" and isinstance(given, list | tuple):
            objects = np.asarray(given, dtype=object)
            return x if all(isinstance(item, str) for item in objects.flat) else objects
        return x
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{where} cannot be turned into a NumPy array: {reason}") from error


def as_features(where: str, given: npt.ArrayLike, like: Array | None = None) -> Array:
    """Return samples [N, ...] as uint8, float32 or int64.

    uint8 of pictures stays, for pixels; those of samples with one axis [N, D] are numbers. They, floats and
    yes/no become float32. Other integers become int64 and are read as ids, such as those of words. uint8
    images [N, H, W] get one channel.

    Args:
        where: Beginning of the message.
        given: The samples.
        like: Training samples; the result must have their kind of values and their shape.

    Raises:
        UsageError: The values have another type, are not finite or too large, or the shapes differ.
    """
    x = as_array(where, given)
    if like is not None and not len(x):
        return np.zeros((0, *like.shape[1:]), like.dtype)
    if x.ndim < 2 or 0 in x.shape:
        kind = "objects, perhaps of unequal lengths" if x.dtype.kind == "O" else f"{x.dtype}"
        advice = ": x[:, None] for one value per sample" if x.ndim == 1 and len(x) else ""
        raise UsageError(
            f"{where} has shape {x.shape} ({kind}), but must have the shape (N, ...) with at least one "
            f"sample and one value{advice}"
        )
    x = _converted(where, x)
    if x.dtype == np.uint8 and x.ndim == 3:
        x = x[:, None]
    if _channels_last(x):
        raise UsageError(
            f"{where} has shape {x.shape}, with the channels last, but must be (N, channels, H, W): "
            "transpose(0, 3, 1, 2)"
        )
    if like is not None and x.dtype != like.dtype:
        raise UsageError(
            f"{where} becomes {x.dtype}, and the training samples are {like.dtype}; give one type"
        )
    if like is not None and x.shape[1:] != like.shape[1:]:
        raise UsageError(f"{where} has samples of shape {x.shape[1:]}, the training part {like.shape[1:]}")
    return x


def as_lists(
    where: str, column: str, given: Sequence[Any], pad: int | None = None, place: Place = row_place
) -> Array:
    """Return a column of numbers, or of lists of numbers, as one array [N, ...].

    Args:
        where: Beginning of the message.
        column: Name of the column.
        given: Its values.
        pad: The id that fills short lists up at their ends. None refuses lists of unequal lengths.
        place: How the message names a row.

    Raises:
        UsageError: A row holds other things than numbers, or the lists have unequal lengths.
    """
    start, rows = f"{where}: column {column!r} holds", []
    for number, value in enumerate(given):
        nested = isinstance(value, np.ndarray) and value.dtype == object
        try:
            rows.append(np.asarray(value.tolist() if nested else value))
        except ValueError:  # lists of unequal lengths within a list
            rows.append(np.array(None))
        if rows[-1].size and rows[-1].dtype.kind not in "biuf":
            raise UsageError(
                f"{start} something else than numbers in {place(number)}; ids of words are numbers, and "
                "docs/own_data.md shows how a tokenizer makes them"
            )
    lengths = {row.shape[0] if row.ndim else 1 for row in rows}
    flat = all(row.ndim == 1 for row in rows)
    if pad is not None and rows and flat:
        kinds = {row.dtype for row in rows if row.size} or {np.dtype(np.int64)}
        filled = np.full((len(rows), max(lengths)), pad, dtype=np.result_type(*kinds))
        for line, row in zip(filled, rows, strict=True):
            line[: len(row)] = row
        return filled
    if len({row.shape for row in rows}) > 1:
        how = "pad=N fills them up with the id N, such as the padding_idx of the network"
        raise UsageError(
            f"{start} lists of unequal lengths, {min(lengths)} to {max(lengths)}; "
            f"{how if flat else 'make them alike'}"
        )
    return np.array(rows)


def alike(pad: int | None, *parts: npt.ArrayLike) -> list[Array]:
    """Return parts [N, L] with lists of one length, the shorter ones filled up with the id `pad`."""
    arrays = list(map(np.asarray, parts))
    if pad is None or any(part.ndim != 2 for part in arrays):
        return arrays
    length = max(part.shape[1] for part in arrays)
    return [np.pad(part, ((0, 0), (0, length - part.shape[1])), constant_values=pad) for part in arrays]


def _channels_last(x: Array) -> bool:
    """Return whether samples look like images [N, H, W, channels]. Floats are images only if H = W."""
    if x.ndim != 4 or x.shape[1] in CHANNELS or x.shape[3] not in CHANNELS:
        return False
    return x.dtype == np.uint8 or (x.dtype == np.float32 and x.shape[1] == x.shape[2])


def _converted(where: str, x: Array) -> Array:
    if x.dtype == np.uint8 and x.ndim > 2:
        return x
    if x.dtype == np.uint8 or x.dtype.kind == "b":
        return x.astype(np.float32)
    if x.dtype.kind in "iu":
        _refuse(
            np.less(x, 0),
            f"{where} is {x.dtype} with {{count}} negative values, {{first}}; integers are read as ids, "
            "which begin at 0: astype('float32') makes them features",
        )
        high = np.greater_equal(x, LARGEST_ID)
        _refuse(high, f"{where} has ids of {LARGEST_ID} or more, {{first}}; number them from 0")
        return x.astype(np.int64, copy=False)
    if x.dtype.kind != "f" or x.dtype.itemsize > 8:
        raise UsageError(f"{where} is {x.dtype} {x.shape}; {_FLOATS}")
    values = x.astype(np.float64) if x.dtype.itemsize < 4 else x
    _refuse(
        ~np.isfinite(values),
        f"{where} has {{count}} values that are NaN or infinite, {{first}}; fill them or remove these "
        "samples",
    )
    _refuse(
        np.abs(values) > LARGEST,
        f"{where} has values beyond ±{LARGEST:g}, {{first}}; float32 training would overflow: subtract the "
        "mean and divide by the standard deviation",
    )
    return x.astype(np.float32, copy=False)


def _refuse(wrong: npt.NDArray[np.bool_], message: str) -> None:
    if wrong.any():
        first = f"the first in sample {_sample(wrong)}"
        raise UsageError(message.format(count=int(wrong.sum()), first=first))


def _sample(wrong: npt.NDArray[np.bool_]) -> str:
    """Return the place of the first wrong value: number of the sample from 0, and its index if it has one."""
    first = [int(place) for place in np.unravel_index(int(np.argmax(wrong)), wrong.shape)]
    inside = ", ".join(map(str, first[1:]))
    return f"{first[0]} (index [{inside}])" if inside else str(first[0])


def parsed(text: Array) -> Floats | None:
    """Return text as float64 if every value is a number. A minus sign may be that of typesetting."""
    words = text.astype(np.str_)
    try:
        numbers = np.array(list(map(float, words.tolist())))  # three times as fast as astype
    except ValueError:
        plain = np.char.replace(words, "\u2212", "-")
        return None if np.array_equal(plain, words) else parsed(plain)
    # Python reads 1_000 and nan as well
    return None if np.isnan(numbers).any() or (np.char.find(words, "_") >= 0).any() else numbers


def in_order(names: Array) -> tuple[str, ...]:
    """Return the different names in the order that a person expects: numbers by size, also within a text."""
    distinct = np.unique(names).astype(np.str_)
    numbers = parsed(distinct)
    if numbers is not None:
        return tuple(str(distinct[place]) for place in np.argsort(numbers, kind="stable"))

    def digits_by_size(name: str) -> list[str]:
        return [part.zfill(20) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

    return tuple(sorted(map(str, distinct), key=digits_by_size))


def as_labels(
    where: str,
    given: npt.ArrayLike,
    count: int,
    class_names: Names = (),
    known: bool = False,
    place: Place = row_place,
) -> tuple[IntArray, Names]:
    """Return labels as int64 [N] from 0, and the names of the classes.

    Without `class_names`, the classes are the labels found, in the order of `in_order`, and the labels are
    the names. With `class_names`, integers are places in that list, and text
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
    y = _named_values(where, given, count, "label", place)
    if not len(y):
        return np.zeros(0, np.int64), class_names
    if class_names and y.dtype.kind != "U" and not known:
        wrong = np.flatnonzero(np.less(y, 0) | np.greater_equal(y, len(class_names)))
        if len(wrong):
            raise UsageError(
                f"{where} has the label {y[wrong[0]]} in row {wrong[0]}, but labels must be 0 to "
                f"{len(class_names) - 1} for {len(class_names)} class_names"
            )
        return y.astype(np.int64), class_names
    distinct, places = np.unique(y, return_inverse=True)
    class_names = class_names or in_order(distinct)
    number = {name: place for place, name in enumerate(class_names)}
    for position, text in enumerate(map(str, distinct)):
        if text not in number:
            row = int(np.flatnonzero(places == position)[0])
            shown = ", ".join(class_names[:SHOWN]) + (", …" if len(class_names) > SHOWN else "")
            raise UsageError(
                f"{where} has the label {text!r} in {place(row)}, which is not a class of the training part "
                f"({shown})"
            )
    return np.array([number[str(label)] for label in distinct], dtype=np.int64)[places], class_names


def as_clients(
    where: str, given: npt.ArrayLike | None, count: int, known: Names = (), place: Place = row_place
) -> tuple[IntArray | None, Names]:
    """Return the number of each sample's client, int64 [N], and the clients' names by number.

    Clients are numbered in the order of `in_order`.

    Args:
        where: Beginning of the message.
        given: The client of every sample, as integers or text; None if there are no clients.
        count: Number of samples.
        known: Names of the clients of the training part; a client of another name gets -1.
        place: How the message names a row.

    Raises:
        UsageError: The array has another type or length, a name is empty, or two names look the same, also
            one of each part.
    """
    if given is None:
        return None, ()
    who = _named_values(where, given, count, "client", place)
    distinct, places = np.unique(who, return_inverse=True)
    names = in_order(distinct)
    _check_names(where, "client", tuple(dict.fromkeys((*known, *names))))
    known = known or names
    number = {name: place for place, name in enumerate(known)}
    table = np.array([number.get(str(name), -1) for name in distinct], dtype=np.int64)
    return table[places] if len(who) else np.zeros(0, np.int64), known


def _named_values(where: str, given: npt.ArrayLike, count: int, what: str, place: Place) -> Array:
    """Return a name for each sample, as integers or as text. None is empty or looks like another one."""
    y = as_array(where, given)
    if y.dtype.kind == "O":
        y = _from_objects(where, y, what)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or (y.size and y.dtype.kind not in "biuU"):
        raise UsageError(
            f"{where} is {y.dtype} {y.shape}, but must be one integer or text per sample, ({count},); "
            "whole numbers: y.astype(int), bytes: y.astype(str), one-hot rows or scores: y.argmax(1), and "
            "classes such as ranges of numbers with a fraction"
        )
    if len(y) != count:
        raise UsageError(f"{where} has {len(y)} {what}s for {count} samples")
    if y.dtype.kind == "U":
        empty = np.flatnonzero(np.char.strip(y.astype(str)) == "")
        if len(empty):
            raise UsageError(
                f"{where} has an empty {what} in {place(int(empty[0]))}; name it or remove the row"
            )
        _check_names(where, what, tuple(map(str, np.unique(y))))
    return y.astype(np.int64) if y.dtype.kind == "b" else y


def _from_objects(where: str, y: Array, what: str) -> Array:
    """Turn an array of Python objects into one of text or integers, if all are of one of these types."""
    kinds = {type(item) for item in y.flat}
    if kinds <= {str, np.str_}:
        return y.astype(str)
    for number, item in enumerate(y.flat):
        if item is None or isinstance(item, float):
            raise UsageError(f"{where} has no {what} in row {number} ({item}); name it or remove the row")
    if kinds <= {int, np.int64, np.int32}:
        return y.astype(np.int64)
    shown = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise UsageError(f"{where} holds objects of type {shown}, but must be one integer or text per sample")


def _check_names(where: str, what: str, names: Names) -> None:
    """Refuse two names of one part, or of two parts, that look the same."""
    alike: dict[str, str] = {}
    for name in names:
        other = alike.setdefault(unicodedata.normalize("NFC", name).strip(), name)
        if other != name:
            raise UsageError(f"{where}: the {what}s {other!r} and {name!r} look the same; make them alike")


def renumbered(where: str, y: Array, names: Names, known: Names) -> Array:
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
    places = {name: place for place, name in enumerate(known)}
    labels, rows = np.unique(y, return_inverse=True)
    for label in labels.tolist():
        if names[label] not in places:
            raise UsageError(f"{where}: its class {names[label]!r} is not a class of the training part")
    return np.array([places[names[label]] for label in labels.tolist()], dtype=np.int64)[rows]


def part_named(name: str) -> Part | None:
    """Return the part of a data set that a name means, such as "train" for `Training`, `train_set` or
    `train2017`.

    Blanks, hyphens, capitals and a year at the end do not matter. A word may stand before the part's, as in
    `seg_train`. Every other name means no part.
    """
    plain = re.sub(r"(19|20)\d\d$", "", name.strip().casefold())
    if re.search(r"\d", plain):
        return None
    words = re.findall(r"[a-z]+", plain)
    return _JOINED.get("".join(words)) or (_WORDS.get(words[-1]) if words else None)


def are_parts(names: Iterable[str]) -> bool:
    """Return whether all names mean parts, one of them the training part and another one a different part."""
    every = [part_named(name) for name in names]
    return None not in every and "train" in every and len(set(every)) > 1


@dataclass(frozen=True)
class ChosenParts:
    """Which parts of a data set are trained and tested on, by their names in the data.

    Attributes:
        train: The training part.
        test: The test part; None if there is none.
        notes: What a user may not expect, such as parts that are not used.
    """

    train: str
    test: str | None
    notes: tuple[str, ...] = ()


def chosen_parts(where: str, sizes: Mapping[str, int], train: str = "", test: str = "") -> ChosenParts | None:
    """Choose the parts of a data set by their names; None if no name means the training part.

    The rule: without a part for tests, the validation part is the test set; with one, it is not used.

    Args:
        where: Beginning of the message.
        sizes: Name of each part → number of its samples.
        train, test: The names that the user gave; "" to go by the usual names.

    Raises:
        UsageError: Two parts mean the same, and neither has the plain name.
    """
    rest = [name for name in sizes if name not in (train, test)]
    trained = train or _only(where, rest, "train")
    if not trained:
        return None
    others = [name for name in rest if name != trained]
    tested = test or _only(where, others, "test") or _only(where, others, "validation")
    notes = []
    if tested and not test and part_named(tested) == "validation":
        notes.append(f"{where}: {tested!r} is the test set (there is no part for tests)")
    spare = [f"{name} ({sizes[name]:,})" for name in others if name != tested]
    if spare:
        notes.append(f"{where}: not used: {', '.join(spare)}; {trained!r} is trained on")
    return ChosenParts(trained, tested or None, tuple(notes))


def _only(where: str, names: Iterable[str], part: Part) -> str:
    """Return the name that means a part, or ""."""
    meant = [name for name in names if part_named(name) == part]
    if len(meant) > 1 and part not in meant:
        raise UsageError(
            f"{where}: {meant[0]!r} and {meant[1]!r} both mean the {part} part; join them or rename one"
        )
    return part if part in meant else next(iter(meant), "")
