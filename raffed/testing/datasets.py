"""The contract of a data set: complete arrays, the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from raffed.data.array_cache import CACHED
from raffed.data.dataset import Dataset
from raffed.data.files import InputArray
from raffed.data.importers.reference import parse_reference
from raffed.data.split import LabelPool
from raffed.data.splits import parse_split
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError
from raffed.own.resolve import load
from raffed.testing.factories import is_code, named, resolved
from raffed.testing.findings import Check, Findings, NotApplicableError, found_by

LEAK = 0.01  # share of test samples that may occur in the training pool as well
BLOCK = 4096  # samples looked at together


@dataclass(frozen=True)
class DatasetSubject:
    """A data set to be checked: how it is loaded."""

    load: Callable[[], Dataset]

    @cached_property
    def data(self) -> Dataset:
        """The data set, loaded once."""
        return self.load()


def check_dataset(
    dataset: str | Dataset | Callable[[], Dataset], *, root: str | None = None, name: str | None = None
) -> Findings:
    """Check a data set: its arrays, its clients, and that it is the same whenever it is loaded.

    Args:
        dataset: A name such as "digits", data such as "csv:table.csv?label=y", a reference such as
            "mylab.data:load", a `Dataset`, or a function without arguments that returns one.
        root: Folder of the data files of a named data set; without it the one in RAFFED_DATA.
        name: What messages call the data set.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such data set.

    Example:
        >>> check_dataset("digits").ok
        True
    """
    subject = DatasetSubject(_loader(dataset, root))
    found = found_by(DATASET_CHECKS, subject, "dataset", name or named(dataset))
    loaded = next(one.state for one in found if one.name == "loads") == "holds"
    return replace(found, notes=subject.data.facts.notes) if loaded else found


def _loader(dataset: str | Dataset | Callable[[], Dataset], root: str | None) -> Callable[[], Dataset]:
    from raffed.data.datasets import load_dataset

    if isinstance(dataset, Dataset):
        return lambda: dataset
    if isinstance(dataset, str) and (_is_data(dataset) or not is_code(dataset)):
        first = [load_dataset(dataset, root)]  # refused at once if there is none
        return lambda: first.pop() if first else load_dataset(dataset, root)
    if isinstance(dataset, str) and isinstance(made := load(dataset), Dataset):
        return lambda: made
    function: Callable[[], Dataset] = resolved(dataset) if isinstance(dataset, str) else dataset

    def loaded() -> Dataset:
        found = function()
        if not isinstance(found, Dataset):
            raise UsageError(
                f"{named(dataset)} returned a {type(found).__name__}; it must return a raffed Dataset"
            )
        return found

    return loaded


def _is_data(text: str) -> bool:
    """Return whether a text names data in files or in the cache, which may have the form of a reference."""
    return text.startswith(CACHED) or parse_reference(text) is not None


def _loads(subject: DatasetSubject) -> str:
    return "" if len(subject.data.x) else "there is no training sample"


def _same_twice(subject: DatasetSubject) -> str:
    one, two = subject.data, subject.load()
    if one is two:
        raise NotApplicableError("a loaded Dataset was given, not what loads it")
    for part in ("x", "y", "x_test", "y_test", "clients", "test_clients"):
        first, second = getattr(one, part), getattr(two, part)
        if (first is None) != (second is None) or (first is not None and not np.array_equal(first, second)):
            return f"{part} differs when it is loaded again; draw nothing at random without a fixed seed"
    return ""


def _classes(subject: DatasetSubject) -> str:
    counts = np.bincount(subject.data.y, minlength=subject.data.num_classes)
    missing = np.flatnonzero(counts == 0)
    return f"class {missing[0]} has no training sample" if len(missing) else ""


def _clients(subject: DatasetSubject) -> str:
    owners = subject.data.clients
    if owners is None:
        raise NotApplicableError("nobody knows which client made which sample")
    counts = np.bincount(owners)
    missing = np.flatnonzero(counts == 0)
    return f"client {missing[0]} has no training sample; number clients from 0" if len(missing) else ""


def _apart(subject: DatasetSubject) -> str:
    data = subject.data
    if not len(data.x_test):
        raise NotApplicableError("it has no test set")
    known = {row.tobytes() for _, block in _blocks(data.x) for row in block}
    found = sum(row.tobytes() in known for _, block in _blocks(data.x_test) for row in block)
    share = found / len(data.x_test)
    return f"{found} of {len(data.x_test)} test samples are training samples too" if share > LEAK else ""


def _prepared(subject: DatasetSubject) -> str:
    data = subject.data
    transform, _ = data.transform_in("plain")
    made = prepare_inputs(data.x[:2].copy(), transform, data.max_value)
    if made.is_floating_point() and not bool(made.isfinite().all()):
        return "its transform makes values that are not finite"
    return ""


def _divides(subject: DatasetSubject) -> str:
    data = subject.data
    pool = LabelPool(data.y, data.num_classes, data.clients, data.y_test, data.test_clients)
    split = parse_split("iid:2" if data.clients is None else "natural")
    return "" if split.partition(pool, 0, local_test=0.0).num_clients else "no client has data"


def _blocks(x: InputArray) -> list[tuple[int, InputArray]]:
    return [(first, x[first : first + BLOCK]) for first in range(0, len(x), BLOCK)]


_LOOKS: tuple[tuple[str, str, Callable[[DatasetSubject], str]], ...] = (
    ("loads", "It loads, and has training samples.", _loads),
    ("same-twice", "It is the same when it is loaded again, as every worker does.", _same_twice),
    ("every-class", "Every class has a training sample.", _classes),
    ("clients-numbered", "Its clients are numbered from 0, and each has a training sample.", _clients),
    ("test-apart", "At most 1 % of the test samples are training samples too.", _apart),
    ("prepared", "Its transform makes finite inputs.", _prepared),
    ("divides", "It can be divided among clients.", _divides),
)
DATASET_CHECKS: tuple[Check[DatasetSubject], ...] = tuple(Check(*one) for one in _LOOKS)

__all__ = ["DATASET_CHECKS", "DatasetSubject", "check_dataset"]
