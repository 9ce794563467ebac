"""The contract of a data set: complete arrays, the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from raffed.config.validation import Value
from raffed.data.array_cache import CACHED
from raffed.data.dataset import Dataset
from raffed.data.files import InputArray
from raffed.data.importers.reference import parse_reference
from raffed.data.partition_file import Partition
from raffed.data.split import LabelPool, Split
from raffed.data.splits import own_reference, parse_split
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError
from raffed.own.resolve import load
from raffed.testing.findings import Check, Findings, NotApplicableError, found_by, is_code, named, resolved
from raffed.testing.generators import global_draws

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


# The contract of a split: lists that a seed decides, of samples that exist.


SAMPLES, CLASSES, CLIENTS = 2000, 10, 8


@dataclass(frozen=True)
class SplitSubject:
    """A split to be checked, and the pool that it divides."""

    split: Split
    pool: LabelPool

    def partition(self, seed: int) -> Partition:
        """Divide the pool, without local test parts unless the split makes them itself."""
        share = None if self.split.brings_tests else 0.0
        return self.split.partition(self.pool, seed, local_test=share)


def check_split(
    split: str | Split | type[Split],
    pool: LabelPool | None = None,
    *,
    name: str | None = None,
    args: Mapping[str, Value] | None = None,
) -> Findings:
    """Check a split: its lists, its randomness, and the text by which it is typed.

    Args:
        split: A text such as "dirichlet:10:0.5", a reference such as "mylab.data:halves" to a function or to
            a subclass of `Split`, a `Split`, or a subclass of it whose parameters all have defaults.
        pool: What it divides. Without it: 2,000 labels of 10 classes, made by 8 natural clients.
        name: What messages call the split.
        args: Arguments of a function or class by reference.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such split.

    Example:
        >>> check_split("dirichlet:10:0.5").ok
        True
    """
    subject = SplitSubject(split_of(split, args), pool or example_pool())
    return found_by(SPLIT_CHECKS, subject, "split", name or named(split))


def example_pool() -> LabelPool:
    """Return 2,000 labels of 10 classes, 200 of each, made by 8 natural clients."""
    labels = np.arange(SAMPLES, dtype=np.int64) % CLASSES
    owners = np.arange(SAMPLES, dtype=np.int64) // (SAMPLES // CLIENTS)
    return LabelPool(labels, CLASSES, owners, labels[:500], owners[:500])


def split_of(split: str | Split | type[Split], args: Mapping[str, Value] | None = None) -> Split:
    """Return the split that a text, a reference or a class stands for."""
    if isinstance(split, str):
        return parse_split(split, args)
    if isinstance(split, Split):
        return split
    if not isinstance(split, type) or not issubclass(split, Split):
        raise UsageError(f"{named(split)} is not a subclass of raffed's Split")
    try:
        return split()
    except TypeError as error:
        raise UsageError(
            f"{named(split)} needs arguments ({error}); give its parameters defaults, or check an instance"
        ) from error


def _same_seed(subject: SplitSubject) -> str:
    one, two = subject.partition(0).sha256(), subject.partition(0).sha256()
    return "" if one == two else f"two divisions with one seed differ; {subject.split.seed_rule}"


def _other_seed(subject: SplitSubject) -> str:
    if subject.split.stores_lists:
        raise NotApplicableError("its lists exist already")
    one, other = subject.partition(0).sha256(), subject.partition(1).sha256()
    return "another seed gives the same lists" if one == other else ""


def _generator(subject: SplitSubject) -> str:
    found = global_draws(lambda: subject.partition(0))
    return f"{found}; {subject.split.seed_rule}" if found else ""


def _indices(subject: SplitSubject) -> str:
    size = len(subject.pool.labels)
    for client, own in enumerate(subject.partition(0).train):
        if not len(own):
            return f"client {client} has no training sample"
        if own.dtype.kind not in "iu" or own.min() < 0 or own.max() >= size:
            return f"client {client} has an index outside 0 to {size - 1}"
    return ""


def _once(subject: SplitSubject) -> str:
    found = subject.partition(0)
    listed = np.concatenate(found.train)
    again = len(listed) - len(np.unique(listed))
    stated = found.recipe.get("reused", 0)
    return "" if again == stated else f"{again} samples belong to two clients, and its recipe says {stated}"


def _count(subject: SplitSubject) -> str:
    wanted, found = subject.split.client_count, subject.partition(0).num_clients
    return "" if wanted in (None, found) else f"it divides among {found} clients, and says {wanted}"


def _text(subject: SplitSubject) -> str:
    if own_reference(subject.split.stored()[0]) is not None:
        raise NotApplicableError("it is typed as its reference")
    text = subject.split.text
    again = type(subject.split).read(text)
    return "" if again == subject.split else f"{text!r} is not read as the same split"


def _inputs(subject: SplitSubject) -> str:
    before = subject.pool.labels.copy()
    subject.partition(0)
    return "" if np.array_equal(before, subject.pool.labels) else "it changes the labels in place"


_SPLIT_LOOKS: tuple[tuple[str, str, Callable[[SplitSubject], str]], ...] = (
    ("same-seed-same-lists", "One seed gives the same lists twice.", _same_seed),
    ("seed-decides", "Another seed gives other lists.", _other_seed),
    ("no-global-generator", "The global random generators are left alone.", _generator),
    ("indices-exist", "Every client has samples, and every index exists.", _indices),
    ("each-sample-once", "No sample belongs to two clients, except as the recipe says.", _once),
    ("clients-as-said", "There are as many clients as the split says.", _count),
    ("text-reads-back", "The text by which it is typed is read as the same split.", _text),
    ("labels-unchanged", "The labels are not changed.", _inputs),
)
SPLIT_CHECKS: tuple[Check[SplitSubject], ...] = tuple(Check(*one) for one in _SPLIT_LOOKS)
