"""The record of a data set: inputs of any shape with class labels, as NumPy arrays. Imports no torch."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec

import numpy as np
import numpy.typing as npt

from raffed.data.array_cache import CACHED, ArrayCache, StoredArrays
from raffed.data.files import InputArray, IntArray
from raffed.data.importers.arrays import import_arrays, import_torch
from raffed.data.importers.client_folders import DividedData, import_pfllib
from raffed.data.importers.imported import DataFacts, Imported
from raffed.data.importers.reference import import_flwr, import_hf, import_reference
from raffed.data.importers.tables import import_table
from raffed.data.importers.values import as_array, as_features
from raffed.data.preparation import Transform, transform_from, transform_in, transform_text
from raffed.data.randomness import stream
from raffed.errors import UsageError, check_range

# Turn a user's arrays into the few forms that raffed works with, or refuse them with a one-line error.


MOST = 2**62  # natural clients have smaller numbers
ARRAYS = ("x", "y", "x_test", "y_test", "clients", "test_clients")  # of a data set


def inputs(where: str, given: npt.ArrayLike, max_value: int, like: InputArray | None = None) -> InputArray:
    """Return inputs [N, ...] as `as_features` does, but pixels in uint8 may also have one axis [N, D].

    Args:
        where: The beginning of the message of a UsageError.
        given: The inputs.
        max_value: The largest value that uint8 may have.
        like: Training inputs, whose type and shape the result must have.
    """
    x = as_array(where, given)
    alike = like is None or (like.dtype, like.shape[1:]) == (x.dtype, x.shape[1:])
    if not (x.dtype == np.uint8 and x.ndim == 2 and x.size and alike):
        x = as_features(where, x, like)
    if x.dtype == np.uint8 and max_value < 255 and int(x.max(initial=0)) > max_value:
        raise UsageError(
            f"{where} goes up to {int(x.max())}, but max_value, the pixel that means 1.0, is {max_value}"
        )
    return x


def numbers(where: str, given: npt.ArrayLike, count: int, least: int = 0, most: int = MOST) -> IntArray:
    """Return numbers of any integer type as int64 [N], one for each of `count` samples.

    Args:
        where: The beginning of the message of a UsageError.
        given: Labels, or numbers of clients.
        count: Number of samples N.
        least, most: The range of the numbers; the last one is not allowed.
    """
    y = as_array(where, given)
    if y.ndim != 1 or (y.size and y.dtype.kind not in "biu"):
        raise UsageError(f"{where} is {y.dtype} {y.shape}, but must be one integer per sample, ({count},)")
    if len(y) != count:
        raise UsageError(f"{where} has {len(y)} entries, but there are {count} samples")
    if y.size and not least <= int(y.min()) <= int(y.max()) < most:
        raise UsageError(
            f"{where} goes from {int(y.min())} to {int(y.max())}, but must stay within {least} to {most - 1}"
        )
    return y.astype(np.int64, copy=False)


P = ParamSpec("P")


def _constructor(importer: Callable[P, Imported]) -> Callable[P, Dataset]:
    """Return a function that makes a data set of what an importer finds, with the importer's arguments."""

    @functools.wraps(importer)
    def made(*args: P.args, **kwargs: P.kwargs) -> Dataset:
        return Dataset.of(importer(*args, **kwargs))

    return made


@dataclass(frozen=True, eq=False, init=False)
class Dataset:
    """A pool of training samples and, if there is one, a benchmark's test set.

    Inputs have any shape, the same for all samples: images [channels, H, W], rows of a table [F], sequences
    of numbers of words [L]. Their type says what they are: `uint8` holds pixels, which become [0, 1]; floats
    are used as they are (stored as float32); other integers number words or categories (stored as int64).

    Args:
        x: Training inputs [N, ...], with N ≥ 1. Images in uint8 may also be given as [N, H, W].
        y: Training labels [N], integers from 0 to C - 1, of any integer type.
        x_test: Test inputs, shaped as `x`. None: the data set has no test set of its own.
        y_test: Test labels, as `y`.
        clients: The natural client of every training sample, integers [N] from 0, for the split `natural`.
            None: nobody knows who made which sample.
        test_clients: The natural client of every test sample, -1 for none. None: the test set belongs to
            nobody.
        class_names: One name for each class, in the order of the labels.
        name: Name of the data set, used in messages and results.
        transform: How the inputs are prepared in every style that `transforms` does not have. None: as their
            type says.
        source: Where the data come from, for people.
        num_classes: Number of classes C. 0: as many as there are `class_names`, or else as the labels name.
        max_value: The value in uint8 that means 1.0, from 1 to 255.
        transforms: Style of preparation ("plain", "map", "map-authors", "fedmr") → transform.
        facts: What `from_table`, `load` and their like found beside the arrays, such as the names of
            the clients. It decides no result.

    Attributes are the arguments, with arrays in the types named above. Without a test set, `x_test` and
    `y_test` have 0 rows. An array that already has the right type is not copied.

    Raises:
        UsageError: The arrays do not fit together, or have another type or range.

    Example:
        >>> import numpy as np
        >>> table, labels = np.zeros((4, 13), dtype=np.float32), np.array([0, 1, 0, 1])
        >>> mine = Dataset(table, labels, name="mine")
        >>> mine.num_classes, mine.input_shape
        (2, (13,))
    """

    x: InputArray
    y: IntArray
    x_test: InputArray
    y_test: IntArray
    clients: IntArray | None
    test_clients: IntArray | None
    class_names: tuple[str, ...]
    name: str
    transform: Transform | None
    source: str
    num_classes: int
    max_value: int
    transforms: Mapping[str, Transform]
    facts: DataFacts

    def __init__(
        self,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        x_test: npt.ArrayLike | None = None,
        y_test: npt.ArrayLike | None = None,
        clients: npt.ArrayLike | None = None,
        test_clients: npt.ArrayLike | None = None,
        class_names: tuple[str, ...] = (),
        name: str = "",
        transform: Transform | None = None,
        source: str = "",
        num_classes: int = 0,
        max_value: int = 255,
        transforms: Mapping[str, Transform] | None = None,
        facts: DataFacts | None = None,
    ) -> None:
        label = name or "the data set"
        check_range(f"{label}: max_value", max_value, 1, 255)
        if (x_test is None) != (y_test is None):
            raise UsageError(f"{label}: x_test and y_test belong together; give both or neither")
        x = inputs(f"{label}: x", x, max_value)
        x_test = inputs(f"{label}: x_test", x[:0] if x_test is None else x_test, max_value, x)
        y = numbers(f"{label}: y", y, len(x))
        y_test = numbers(f"{label}: y_test", [] if y_test is None else y_test, len(x_test))
        classes = _class_count(label, num_classes, class_names, y, y_test)
        values = {
            "x": x,
            "y": numbers(f"{label}: y", y, len(x), 0, classes),
            "x_test": x_test,
            "y_test": numbers(f"{label}: y_test", y_test, len(x_test), 0, classes),
            "clients": _owners(f"{label}: clients", clients, len(x)),
            "test_clients": _owners(f"{label}: test_clients", test_clients, len(x_test), least=-1),
            "class_names": tuple(class_names),
            "name": name,
            "transform": transform,
            "source": source,
            "num_classes": classes,
            "max_value": max_value,
            "transforms": dict(transforms or {}),
            "facts": facts or DataFacts(),
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    from_arrays = staticmethod(_constructor(import_arrays))
    from_torch = staticmethod(_constructor(import_torch))
    from_table = staticmethod(_constructor(import_table))
    from_hf = staticmethod(_constructor(import_hf))
    from_flwr = staticmethod(_constructor(import_flwr))
    from_pfllib = staticmethod(_constructor(import_pfllib))

    @classmethod
    def load(cls, text: str) -> Dataset:
        """Read data in files, named as after `--dataset`: `KIND:PATH?key=value&key=value`.

        Args:
            text: Such as "csv:table.csv?label=y", "folder:./images?size=32", "npz:arrays.npz".

        Raises:
            UsageError: The text is not of this form, or the data cannot be used.
        """
        return cls.of(import_reference(text))

    @classmethod
    def of(cls, imported: Imported) -> Dataset:
        """Return the data set of what an importer found."""
        build: Callable[..., Dataset] = cls
        about = {"class_names": imported.class_names, "source": imported.source, "facts": imported.facts}
        return build(**{name: getattr(imported, name) for name in ARRAYS}, name=imported.name, **about)

    def stored(self) -> StoredArrays:
        """Return the arrays and all else that decides results, as the cache holds them."""
        held = {name: getattr(self, name) for name in ARRAYS if getattr(self, name) is not None}
        words = {
            "class_names": self.class_names,
            "numbers": (str(self.num_classes), str(self.max_value)),
            "transform": (transform_text(self.transform),),
            "transforms": tuple(f"{style} {transform_text(rule)}" for style, rule in self.transforms.items()),
        }
        return StoredArrays(held, words, self.name, self.source, self.facts.as_json())

    @classmethod
    def restored(cls, stored: StoredArrays) -> Dataset:
        """Return the data set that `stored` described."""
        classes, largest = (int(number) for number in stored.words["numbers"])
        pairs = [text.split(" ", 1) for text in stored.words["transforms"]]
        styles = {style: transform_from(text) for style, text in pairs}
        build: Callable[..., Dataset] = cls
        return build(
            **stored.arrays,
            class_names=stored.words["class_names"],
            name=stored.name,
            transform=transform_from(stored.words["transform"][0]),
            source=stored.source,
            num_classes=classes,
            max_value=largest,
            transforms={style: transform for style, transform in styles.items() if transform is not None},
            facts=DataFacts.from_json(stored.facts),
        )

    def reference(self) -> str:
        """Put the arrays into the cache, and return the text by which every process finds them.

        `raffed.Data(dataset=mine)` calls it.

        Raises:
            DataFileError: The cache cannot be written.
        """
        return f"{CACHED}{ArrayCache.of_user().put(self.stored())}"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one stored input, without the axis of the samples."""
        return self.x.shape[1:]

    def divided(
        self, train: Sequence[IntArray], test: Sequence[IntArray], test_pool: str, split: str
    ) -> DividedData:
        """Return the samples of every client by a partition's lists, for another program.

        Args:
            train, test: Indices of each client's samples.
            test_pool: The part that `test` indexes, "train" or "test".
            split: How the data were divided, in words.
        """
        x, y = (self.x, self.y) if test_pool == "train" else (self.x_test, self.y_test)
        parts = [(self.x[rows], self.y[rows]) for rows in train], [(x[rows], y[rows]) for rows in test]
        return DividedData(*parts, self.num_classes, split, self.max_value)

    @contextlib.contextmanager
    def naming(self, split: str) -> Iterator[None]:
        """Add the names of classes and natural clients to a refusal that has their numbers.

        Args:
            split: The split. Its clients are the natural ones if it is "natural".
        """
        names = {"class": self.class_names}
        if split.partition(":")[0] == "natural":
            names["client"] = tuple(self.facts.client_names)

        def named(match: re.Match[str]) -> str:
            known, number = names.get(match[1], ()), int(match[2])
            name = known[number] if number < len(known) else match[2]
            return match[0] if name == match[2] else f"{match[0]} ({name})"

        try:
            yield
        except UsageError as error:
            error.args = (re.sub(r"\b(class|client) (\d+)\b", named, str(error)),)
            raise

    def transform_in(self, style: str) -> Transform:
        """Return how the inputs are prepared in a style.

        Args:
            style: "plain", "map", "map-authors" or "fedmr".
        """
        return transform_in(style, self.transforms, self.transform)


def fewer(dataset: Dataset, samples: int, seed: int) -> Dataset:
    """Return the data set with `samples` of its training samples, equally many of every class, in their old
    order.

    Args:
        dataset: The data set.
        samples: Number of training samples to keep, a multiple of the number of classes; 0 keeps all.
        seed: Decides which samples are kept.

    Raises:
        UsageError: A class does not have enough samples, or the samples belong to natural clients.
    """
    if not samples:
        return dataset
    each, rest = divmod(samples, dataset.num_classes)
    counts = np.bincount(dataset.y, minlength=dataset.num_classes)
    if rest or not 0 < each <= counts.min() or dataset.clients is not None:
        most = f"a multiple of {dataset.num_classes} up to {dataset.num_classes * int(counts.min())}"
        wanted = most if dataset.clients is None else "0, because its samples belong to natural clients"
        raise UsageError(f"data.samples = {samples} for {dataset.name}: it must be {wanted}")
    draws = stream(seed, "samples")
    chosen = [
        draws.permutation(np.flatnonzero(dataset.y == label))[:each] for label in range(dataset.num_classes)
    ]
    kept = np.sort(np.concatenate(chosen))
    return replace(dataset, x=dataset.x[kept], y=dataset.y[kept])


def _class_count(label: str, given: int, names: tuple[str, ...], y: IntArray, y_test: IntArray) -> int:
    """Return the number of classes C, from the number given, the names or the labels."""
    check_range(f"{label}: num_classes", given, 0, 2**31)
    if given and names and len(names) != given:
        raise UsageError(f"{label}: there are {len(names)} class_names, but num_classes = {given}")
    return given or len(names) or 1 + max(int(part.max(initial=0)) for part in (y, y_test))


def _owners(where: str, given: npt.ArrayLike | None, count: int, least: int = 0) -> IntArray | None:
    return None if given is None else numbers(where, given, count, least)


# Join a data set's training and test part to one pool, which is then divided anew.


def joined(dataset: Dataset) -> Dataset:
    """Return the data set with all its samples in the training pool: first its own, then those of the test.

    PFLlib and FedVLS divide data in this way. The result has no test set, so models are scored on the
    clients' local test parts. Natural clients are kept if the owners of all test samples are known.

    Args:
        dataset: The data set.

    Raises:
        UsageError: It has no test set.
    """
    if not len(dataset.y_test):
        raise UsageError(
            f"data.pool = 'joined': {dataset.name or 'the data set'} has no test set that could be joined; "
            "use train"
        )
    owners, test_owners = dataset.clients, dataset.test_clients
    known = owners is not None and test_owners is not None and bool((test_owners >= 0).all())
    return replace(
        dataset,
        x=np.concatenate([dataset.x, dataset.x_test]),
        y=np.concatenate([dataset.y, dataset.y_test]),
        x_test=dataset.x_test[:0],
        y_test=dataset.y_test[:0],
        clients=np.concatenate([owners, test_owners]) if known else None,
        test_clients=None,
    )
