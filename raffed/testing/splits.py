"""The contract of a split: lists that a seed decides, of samples that exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from raffed.config.validation import Value
from raffed.data.partition_record import Partition
from raffed.data.split import LabelPool, Split
from raffed.data.splits import own_reference, parse_split
from raffed.errors import UsageError
from raffed.testing.factories import named
from raffed.testing.findings import Check, Findings, NotApplicableError, found_by
from raffed.testing.generators import global_draws

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


_LOOKS: tuple[tuple[str, str, Callable[[SplitSubject], str]], ...] = (
    ("same-seed-same-lists", "One seed gives the same lists twice.", _same_seed),
    ("seed-decides", "Another seed gives other lists.", _other_seed),
    ("no-global-generator", "The global random generators are left alone.", _generator),
    ("indices-exist", "Every client has samples, and every index exists.", _indices),
    ("each-sample-once", "No sample belongs to two clients, except as the recipe says.", _once),
    ("clients-as-said", "There are as many clients as the split says.", _count),
    ("text-reads-back", "The text by which it is typed is read as the same split.", _text),
    ("labels-unchanged", "The labels are not changed.", _inputs),
)
SPLIT_CHECKS: tuple[Check[SplitSubject], ...] = tuple(Check(*one) for one in _LOOKS)

__all__ = ["SPLIT_CHECKS", "SplitSubject", "check_split", "example_pool", "split_of"]
