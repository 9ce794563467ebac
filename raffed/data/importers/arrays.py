"""Arrays in memory, npz files, and data sets of PyTorch's kind (`len(ds)`; `ds[i]` is sample and label)."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from raffed.budget import check_file
from raffed.data.files import read_npz
from raffed.data.importers.array_names import array_names
from raffed.data.importers.imported import TEST_SHARE, Columns, DataFacts, Imported, imported
from raffed.data.importers.values import renumbered
from raffed.errors import DataFileError, UsageError

_OPTIONAL = ("clients", "x_test", "y_test", "test_clients", "class_names")


class MapStyle(Protocol):
    """A data set of PyTorch's kind: torch.utils.data.Dataset and torchvision's data sets are."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sequence[npt.ArrayLike]: ...


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
    source: str = "",
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
        source: Where the arrays came from, as typed.
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
        twice = next(one for one in given_names if given_names.count(one) > 1)
        raise UsageError(f"{name}: class_names has {twice!r} twice; every class needs a name of its own")
    _check_columns(name, x, x_test)
    rest = None if x_test is None or y_test is None else Columns(x_test, y_test, test_clients)
    train = Columns(x, y, clients)
    return imported(
        name, train, rest, share=test, seed=seed, class_names=given_names, source=source, facts=facts
    )


def _check_columns(name: str, x: npt.ArrayLike, x_test: npt.ArrayLike | None) -> None:
    """Refuse two data frames whose columns differ, also in their order, which arrays would not show."""
    own, other = (getattr(one, "columns", None) for one in (x, x_test))
    if own is None or other is None:
        return
    for place, (here, there) in enumerate(
        itertools.zip_longest(map(str, own), map(str, other), fillvalue="")
    ):
        if here != there:
            raise UsageError(
                f"{name}: column {place} of x_test is {there!r}, and that of x is {here!r}; give the same "
                "columns in the same order: x_test[x.columns]"
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
    source: str = "",
) -> Imported:
    """Read an npz file with the arrays x and y, and perhaps x_test, y_test, clients and others.

    Args:
        path: The file. It may also hold test_clients and class_names. Pickled objects are refused.
        x, y, clients: Other names of these arrays. Usual names, as `array_names` knows them, need no mention.
        test: Fraction of the samples that becomes the test set if the file has none.
        seed: Decides which samples are drawn.
        name: Beginning of every message; by default the file's name.
        source: Where the data came from, as typed.

    Raises:
        UsageError: The file is missing or damaged, or its arrays cannot be used.
    """
    where = Path(path).expanduser()
    members = _members(where)
    found = array_names(str(path), members, {"x": x, "y": y, "clients": clients})
    if absent := [role for role in ("x", "y") if found.of.get(role, role) not in members]:
        lacking = ", ".join(found.of.get(role, role) for role in absent)
        options = "&".join(f"{role}=NAME" for role in absent)
        raise DataFileError(
            f"{path} lacks the arrays {lacking}; it holds {', '.join(members) or 'none'}; say which ones "
            f"they are: npz:{path}?{options}"
        )
    wanted = [found.of["x"], found.of["y"]]
    optional = [found.of.get(role, role) for role in _OPTIONAL]
    read = read_npz(where, wanted, DataFileError, optional)
    stored = {role: read[name] for role, name in found.of.items() if name in read}
    return import_arrays(
        stored["x"],
        stored["y"],
        x_test=stored.get("x_test"),
        y_test=stored.get("y_test"),
        clients=stored.get("clients"),
        test_clients=stored.get("test_clients"),
        class_names=[str(one) for one in stored["class_names"].flat] if "class_names" in stored else (),
        test=0.0 if "x_test" in stored or "y_test" in stored else test,
        seed=seed,
        name=name or str(path),
        source=source,
        facts=DataFacts(notes=found.notes),
    )


def import_torch(
    data: MapStyle,
    *,
    test_data: MapStyle | None = None,
    clients: npt.ArrayLike | None = None,
    test_clients: npt.ArrayLike | None = None,
    class_names: Iterable[str] = (),
    test: float = 0.0,
    seed: int = 0,
    name: str = "",
) -> Imported:
    """Read a map-style data set of PyTorch's kind, sample by sample.

    Each item is (sample, label). Samples are tensors, arrays or PIL images of one shape. A transform of the
    data set is carried out once, here; random augmentation would be frozen.

    Args:
        data: The training part.
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
    x, y = _items(data, name)
    x_test, y_test = None, None
    if test_data is not None:
        x_test, y_test = _items(test_data, f"{name} (test)")
        y_test = renumbered(f"{name} (test)", y_test, _classes(test_data), _classes(data))
    classes = _ordered(name, class_names) or _class_names(data, y)
    return import_arrays(
        x,
        y,
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
    return tuple(str(one) for one in class_names)


def _items(data: MapStyle, name: str) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise UsageError(f"{name} has no length or no items by number; give a map-style data set")
    samples: list[npt.NDArray[np.generic]] = []
    labels: list[npt.ArrayLike] = []
    for number in range(len(data)):
        item = data[number]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise UsageError(f"{name}: item {number} is a {type(item).__name__}, but must be (sample, label)")
        sample = _pixels(np.asarray(item[0]), item[0])
        if samples and sample.shape != samples[0].shape:
            raise UsageError(
                f"{name}: item {number} has shape {sample.shape}, item 0 {samples[0].shape}; make them alike"
            )
        samples.append(sample)
        labels.append(np.asarray(item[1]).reshape(-1)[0] if np.size(item[1]) == 1 else item[1])
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
    return tuple(str(one) for one in classes) if isinstance(classes, list | tuple) else ()


def _members(path: Path) -> dict[str, bool]:
    """Return the arrays of an npz file, and refuse one that holds Python objects.

    Nothing is unpickled: only headers are read.
    """
    found: dict[str, bool] = {}
    try:
        check_file(path, DataFileError)
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                with archive.open(member) as file:
                    found[name] = b"'descr': '|O'" in file.read(256)
    except FileNotFoundError as error:
        raise DataFileError(f"{path} is missing") from error
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise DataFileError(f"{path} cannot be read as an npz file: {error}") from error
    if objects := [name for name, is_object in found.items() if is_object]:
        raise DataFileError(
            f"{path}: the array {objects[0]!r} holds Python objects, which are not read from files; save "
            f"it as numbers or text (astype)"
        )
    return found
