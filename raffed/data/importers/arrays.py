"""Arrays in memory, npz files, and data sets of PyTorch's kind (`len(ds)`; `ds[i]` is sample and label)."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from raffed.data.files import read_npz, reading_npz
from raffed.data.importers.imported import TEST_SHARE, Columns, DataFacts, Imported, imported
from raffed.data.importers.values import Part, part_named, renumbered
from raffed.errors import DataFileError, UsageError

_KINDS = {
    "x": ("x", "data", "images", "image", "features", "inputs", "samples"),
    "y": ("y", "labels", "label", "targets", "target"),
    "clients": ("clients", "client", "groups", "users", "owners"),
}
CLASS_NAMES = ("class_names", "label_names", "target_names")
_ROLES: dict[Part, Mapping[str, str]] = {
    "train": {"x": "x", "y": "y", "clients": "clients"},
    "test": {"x": "x_test", "y": "y_test", "clients": "test_clients"},
    "validation": {"x": "x_val", "y": "y_val", "clients": "val_clients"},
}
_TESTS = ("x_test", "y_test", "test_clients")
_VALIDATION = ("x_val", "y_val", "val_clients")


_OPTIONAL = ("clients", "x_test", "y_test", "test_clients", "class_names")


class MapStyle(Protocol):
    """A data set of PyTorch's kind: torch.utils.data.Dataset and torchvision's data sets are."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sequence[npt.ArrayLike] | Mapping[str, npt.ArrayLike]: ...


def import_arrays(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    x_test: npt.ArrayLike | None = None,
    y_test: npt.ArrayLike | None = None,
    clients: npt.ArrayLike | None = None,
    test_clients: npt.ArrayLike | None = None,
    class_names: Iterable[str] = (),
    test: float = 0.0,
    seed: int = 0,
    name: str = "data",
    facts: DataFacts | None = None,
) -> Imported:
    """Check arrays and number their classes and clients.

    Args:
        x: Samples [N, ...]: uint8 pixels, floats, or integers that are ids.
        y: Labels [N]: integers, yes/no or text.
        x_test, y_test: The test set, if there is one.
        clients: The client of each sample [N], as integers or text.
        test_clients: The same of the test samples.
        class_names: Names of the classes 0, 1, ...; by default the labels found.
        test: Fraction of the samples that becomes the test set if none is given. Default 0: none.
        seed: Decides which samples are drawn for the test set.
        name: Beginning of every message.
        facts: What is known beside the arrays.

    Raises:
        UsageError: The arrays cannot be used. The message names the array and the sample.
    """
    if (x_test is None) != (y_test is None):
        given, absent = ("y_test", "x_test") if x_test is None else ("x_test", "y_test")
        raise UsageError(f"{name}: {given} is given without {absent}; give both or neither")
    if test_clients is not None and x_test is None:
        raise UsageError(f"{name}: test_clients is given without x_test and y_test")
    given_names = _ordered(name, class_names)
    if len(set(given_names)) < len(given_names):
        twice = next(label for label in given_names if given_names.count(label) > 1)
        raise UsageError(f"{name}: class_names has {twice!r} twice; every class needs a name of its own")
    _check_columns(name, x, x_test)
    _check_rows(name, {"x": x, "y": y, "clients": clients})
    _check_rows(name, {"x_test": x_test, "y_test": y_test, "test_clients": test_clients})
    rest = None if x_test is None or y_test is None else Columns(x_test, y_test, test_clients)
    train = Columns(x, y, clients)
    return imported(name, train, rest, share=test, seed=seed, class_names=given_names, facts=facts)


def _check_columns(name: str, x: npt.ArrayLike, x_test: npt.ArrayLike | None) -> None:
    """Refuse two data frames whose columns differ, also in their order, which arrays would not show."""
    columns, other = (getattr(frame, "columns", None) for frame in (x, x_test))
    if columns is None or other is None:
        return
    for place, (here, there) in enumerate(
        itertools.zip_longest(map(str, columns), map(str, other), fillvalue="")
    ):
        if here != there:
            raise UsageError(
                f"{name}: column {place} of x_test is {there!r}, and that of x is {here!r}; give the same "
                "columns in the same order: x_test[x.columns]"
            )


def _check_rows(name: str, parts: Mapping[str, npt.ArrayLike | None]) -> None:
    """Refuse frames and series whose rows carry other names, which arrays would join by their places."""
    named: dict[str, Any] = {
        part: getattr(given, "index", None) for part, given in parts.items() if hasattr(given, "iloc")
    }
    first = next(iter(named), "")
    for part, index in named.items():
        if not index.equals(named[first]):
            raise UsageError(
                f"{name}: the rows of {part} and {first} have other names (index); give one order: "
                f"{part}.loc[{first}.index], or {part}.to_numpy() to go by their places"
            )


def import_npz(
    path: str | Path,
    *,
    x: str = "x",
    y: str = "y",
    clients: str = "clients",
    test: float = TEST_SHARE,
    seed: int = 0,
    name: str = "",
) -> Imported:
    """Read an npz file with the arrays x and y, and perhaps x_test, y_test, clients and others.

    Args:
        path: The file. It may also hold test_clients and class_names. Pickled objects are refused.
        x, y, clients: Other names of these arrays. Usual names, as `array_names` knows them, need no mention.
        test: Fraction of the samples that becomes the test set if the file has none.
        seed: Decides which samples are drawn.
        name: Beginning of every message; by default the file's name.

    Raises:
        UsageError: The file is missing or damaged, or its arrays cannot be used.
    """
    where = Path(path).expanduser()
    with reading_npz(where, DataFileError), np.load(where, allow_pickle=False) as file:
        members = list(file.files)
    names, notes = array_names(str(path), members, {"x": x, "y": y, "clients": clients})
    if absent := [role for role in ("x", "y") if names.get(role, role) not in members]:
        lacking = ", ".join(names.get(role, role) for role in absent)
        options = "&".join(f"{role}=NAME" for role in absent)
        raise DataFileError(
            f"{path} lacks the arrays {lacking}; it holds {', '.join(members) or 'none'}; say which ones "
            f"they are: npz:{path}?{options}"
        )
    wanted = [names["x"], names["y"]]
    optional = [names.get(role, role) for role in _OPTIONAL]
    read = read_npz(where, wanted, DataFileError, optional)
    stored = {role: read[member] for role, member in names.items() if member in read}
    return import_arrays(
        stored["x"],
        stored["y"],
        x_test=stored.get("x_test"),
        y_test=stored.get("y_test"),
        clients=stored.get("clients"),
        test_clients=stored.get("test_clients"),
        class_names=[str(label) for label in stored["class_names"].flat] if "class_names" in stored else (),
        test=0.0 if "x_test" in stored or "y_test" in stored else test,
        seed=seed,
        name=name or str(path),
        facts=DataFacts(notes=notes),
    )


def import_torch(
    data: MapStyle,
    *,
    x: str = "",
    y: str = "",
    test_data: MapStyle | None = None,
    clients: npt.ArrayLike | None = None,
    test_clients: npt.ArrayLike | None = None,
    class_names: Iterable[str] = (),
    test: float = 0.0,
    seed: int = 0,
    name: str = "",
) -> Imported:
    """Read a map-style data set of PyTorch's kind, sample by sample.

    Each item is (sample, label), or a dict that has them under names. Samples are tensors, arrays or PIL
    images of one shape. A transform of the data set is carried out once, here; random augmentation would be
    frozen.

    Args:
        data: The training part.
        x, y: The names of sample and label in items that are dicts; by default usual names, such as
            `input_ids`, `pixel_values`, `image` and `labels`.
        test_data: The test part, if there is one. Where both parts list their classes, those of the test part
            are known by their names, because a folder that lacks a class numbers the others differently.
        clients: The client of each sample.
        test_clients: The same of the test samples.
        class_names: Names of the classes; by default `data.classes`, as torchvision's data sets have it.
        test: Fraction of the samples that becomes the test set if none is given.
        seed: Decides which samples are drawn.
        name: Beginning of every message; by default the data set's class.

    Raises:
        UsageError: The data set has no length, or an item is not (sample, label).
    """
    name = name or type(data).__name__
    samples, labels = _items(data, name, x, y)
    x_test, y_test = None, None
    if test_data is not None:
        x_test, y_test = _items(test_data, f"{name} (test)", x, y)
        y_test = renumbered(f"{name} (test)", y_test, _classes(test_data), _classes(data))
    classes = _ordered(name, class_names) or _class_names(data, labels)
    return import_arrays(
        samples,
        labels,
        x_test=x_test,
        y_test=y_test,
        clients=clients,
        test_clients=test_clients,
        class_names=classes,
        test=test,
        seed=seed,
        name=name,
    )


def _ordered(name: str, class_names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the classes, and refuse a set, whose order Python draws anew for each process."""
    if isinstance(class_names, str | Set):
        kind = type(class_names).__name__
        raise UsageError(f"{name}: class_names is a {kind}, but must be a list of names in their order")
    return tuple(str(label) for label in class_names)


def _pair(item: object, where: str, x: str, y: str) -> tuple[Any, Any]:
    """Return sample and label of an item, which is a pair or a dict."""
    if isinstance(item, Mapping):
        of, _ = array_names(where, [*map(str, item)], {"x": x or "x", "y": y or "y"})
        if lacking := [role for role in ("x", "y") if of.get(role) not in item]:
            names = ", ".join(map(str, item))
            raise UsageError(
                f"{where} has the names {names}; say which one is {lacking[0]}: {lacking[0]}=NAME"
            )
        return item[of["x"]], item[of["y"]]
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise UsageError(f"{where} is a {type(item).__name__}, but must be (sample, label) or a dict of them")
    return item[0], item[1]


def _items(
    data: MapStyle, name: str, x: str, y: str
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise UsageError(f"{name} has no length or no items by number; give a map-style data set")
    samples: list[npt.NDArray[np.generic]] = []
    labels: list[npt.ArrayLike] = []
    for number in range(len(data)):
        given, label = _pair(data[number], f"{name}: item {number}", x, y)
        sample = _pixels(np.asarray(given), given)
        if samples and sample.shape != samples[0].shape:
            raise UsageError(
                f"{name}: item {number} has shape {sample.shape}, item 0 {samples[0].shape}; make them alike"
            )
        samples.append(sample)
        labels.append(np.asarray(label).reshape(-1)[0] if np.size(label) == 1 else label)
    if not samples:
        raise UsageError(f"{name} has no items")
    try:
        return np.stack(samples), np.asarray(labels)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: its labels do not fit in one array: {error}") from error


def _pixels(sample: npt.NDArray[np.generic], given: npt.ArrayLike) -> npt.NDArray[np.generic]:
    """Put the channels of a PIL image first. One with a palette gets the colours for its numbers."""
    if getattr(given, "mode", None) in ("P", "PA") and hasattr(given, "convert"):
        sample = np.asarray(given.convert("RGB"))
    if hasattr(given, "getbands") and sample.ndim == 3:
        return sample.transpose(2, 0, 1)
    return sample


def _class_names(data: MapStyle, y: npt.NDArray[np.generic]) -> tuple[str, ...]:
    """Return the names that a data set of torchvision's gives its classes, if they fit the labels."""
    names = _classes(data)
    if y.dtype.kind in "iu" and len(names) > int(y.max()):
        return names if len(np.unique(y)) == len(names) == len(set(names)) else ()
    return ()


def _classes(data: MapStyle) -> tuple[str, ...]:
    """Return the classes that a data set of torchvision's lists; empty if it lists none."""
    classes = getattr(data, "classes", None)
    return tuple(str(label) for label in classes) if isinstance(classes, list | tuple) else ()


def array_names(
    where: str, members: Collection[str], asked: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the names of an npz file's arrays by their roles, and notes.

    A name says what an array is (x, data, images, ...; y, labels, target, ...; clients, groups, ...) and
    perhaps of which part, before or after it: x_test, X_train, test_images, val_labels. Where two arrays have
    one role, the one whose word is listed first above is used. Without a test part, the validation part is
    the test set; with one, it is not used.

    Args:
        where: Beginning of the notes.
        members: The arrays of the file.
        asked: Role → name that the user gave, if it is not the role's own name.
    """
    ranks: dict[str, list[tuple[tuple[int, ...], str]]] = {}
    for name in members:
        if ranked := _role(name):
            ranks.setdefault(ranked[0], []).append((ranked[1], name))
    of = {role: min(names)[1] for role, names in ranks.items()}
    of |= {role: name for role, name in asked.items() if name != role}
    classes = next((name for name in CLASS_NAMES if name in members), None)
    of |= {"class_names": classes} if classes else {}
    notes = []
    if not {"x_test", "y_test"} & of.keys() and {"x_val", "y_val"} <= of.keys():
        notes.append(f"{where}: {of['x_val']} is the test set (there is no array for tests)")
        of |= {test: of[val] for test, val in zip(_TESTS, _VALIDATION, strict=True) if val in of}
    used = {
        name for role, name in of.items() if role not in _VALIDATION or name in {of.get(t) for t in _TESTS}
    }
    if spare := sorted(set(members) - used):
        notes.append(f"{where}: not used: {', '.join(spare[:10])}{', …' if len(spare) > 10 else ''}")
    return of, tuple(notes)


@functools.cache
def _role(name: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the role that a name means, and its rank among other names of this role; None for no role."""
    if name in ("input_ids", "pixel_values"):  # as Hugging Face's processors call them
        return "x", (1, 0, 0)
    if re.search(r"\d", name):
        return None
    plain = re.sub(r"[^a-z]", "", name.casefold())
    for kind, known in _KINDS.items():
        for place, word in enumerate(known):
            for rest in (plain.removeprefix(word), plain.removesuffix(word)):
                part = part_named(rest) if rest else "train"
                if rest != plain and part is not None:
                    role = _ROLES[part][kind]
                    return role, (int(name != role), int(not rest), place)
    return None
