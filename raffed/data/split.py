"""What a split is: a class that divides the samples of a pool among clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from raffed.config.validation import Declaration, Value, declarations
from raffed.data.files import IntArray
from raffed.data.partition_file import Partition, Recipe, labels_sha256, repeats
from raffed.data.randomness import stream
from raffed.errors import UsageError, check_range
from raffed.own.names import reference_to
from raffed.own.user_code import place_of

MAX_CLIENTS = 1_000_000
SMALL_CLIENTS, SMALL_NUMBER = 10, 5  # the most that `shrunk` leaves of a number of clients, and of others


@dataclass(frozen=True, eq=False)
class LabelPool:
    """What a split may look at: the labels and the natural clients of the samples, never the samples.

    Attributes:
        labels: Labels of the training pool, int64 [N], values 0 to C - 1.
        num_classes: Number of classes C.
        clients: The natural client of every training sample, int64 [N]; None if nobody knows.
        test_labels: Labels of the benchmark's test set, int64; None or empty if there is none.
        test_clients: The natural client of every test sample, int64, -1 for none; None if nobody knows.
    """

    labels: IntArray
    num_classes: int
    clients: IntArray | None = None
    test_labels: IntArray | None = None
    test_clients: IntArray | None = None

    def check(self, seed: int) -> None:
        """Raise a UsageError unless the labels are those of a pool and the seed is one."""
        labels = self.labels
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0:
            raise UsageError(
                f"labels are {labels.dtype} {labels.shape}, but must be integers (N,) with N > 0"
            )
        check_range("smallest label", int(labels.min()), 0, self.num_classes - 1)
        check_range("largest label", int(labels.max()), 0, self.num_classes - 1)
        check_range("seed", seed, 0, 2**63 - 1)


@dataclass(frozen=True)
class Split:
    """One way to divide the samples of a training pool among clients.

    A split of your own is a frozen dataclass with three texts, its parameters, and `divide`:

        @dataclass(frozen=True)
        class Halves(Split):
            name, syntax = "halves", "halves:CLIENTS:SHARE"
            meaning = "the first client has a share of everything, the others divide the rest"
            clients: Annotated[int, Range(2, MAX_CLIENTS), Doc("Number of clients.")]
            share: Annotated[float, Range(0.0, 1.0), Doc("Share of the first client.")] = 0.5

            def divide(self, labels, seed, num_classes=None):
                order = stream(seed, "halves").permutation(len(labels))
                first = int(self.share * len(order))
                return [order[:first], *np.array_split(order[first:], self.clients - 1)]

        register_split(Halves)

    Then `--split halves:10:0.3` is `Halves(10, 0.3)`. The parameters are typed in the order in which they are
    declared, and those with a default may be left out. Values outside the declared range are refused. All
    randomness must come from `stream(seed, PURPOSE)`, so that a seed always gives the same lists. What else a
    split may override has a default here: `shrunk`, `lists`, `check_data`, `read` and `text`.

    Attributes:
        name: What is typed before the first colon, in lower case.
        syntax: How it is typed, for messages and `raffed splits`.
        meaning: What it does, in a few words.
        style: How inputs are prepared if `--transform auto` is asked for: "plain", "map", "map-authors" or
            "fedmr". A split of a paper names that paper's style.
        default_local_test: Share of each client's samples that is kept for its local test part, if nobody
            says otherwise.
        brings_tests: Whether the split makes the local test parts itself, so that no share can be given.
        stores_lists: Whether the lists exist already. Samples that the server holds are then taken out of
            them afterwards, not out of the pool before it is divided.
        clients: Number of clients; None where the data or a file decides.
    """

    name: ClassVar[str] = ""
    syntax: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    style: ClassVar[str] = "plain"
    default_local_test: ClassVar[float] = 0.2
    brings_tests: ClassVar[bool] = False
    stores_lists: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field, parameter in self.declared().items():
            parameter.check(getattr(self, field), f"split {self.text!r}: ")

    @property
    def text(self) -> str:
        """The canonical spelling, which `parse_split` reads back to an equal split."""
        words: list[object] = []
        for field in self.declared():
            value = getattr(self, field)
            if isinstance(value, bool):
                words += [field] if value else []
            elif value is not None:
                words += value if isinstance(value, tuple) else [value]
        return ":".join(map(str, [self.name, *words]))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the split that a text means; None if the text is not about this class.

        Args:
            text: The split as typed, without spaces around it.

        Raises:
            UsageError: The text is about this class and cannot be read.
        """
        name, colon, rest = text.partition(":")
        if name.strip().lower() != cls.name:
            return None
        return cls.from_fields(text, rest.split(":") if colon else [])

    @classmethod
    def from_fields(cls, text: str, fields: list[str]) -> Self:
        """Return the split whose parameters were typed as `fields`, in the order of their declaration.

        `text` is the whole split, for messages.
        """
        declared = list(cls.declared().values())
        required = sum(not parameter.default for parameter in declared)
        if not required <= len(fields) <= len(declared):
            raise cls.refusal(text)
        values = {arg.name: cls.value(text, arg, field) for arg, field in zip(declared, fields, strict=False)}
        return cls.made(text, **values)

    @classmethod
    def made(cls, text: str, **values: int | float | str | tuple[str, ...] | None) -> Self:
        """Return the split with these parameters, or a UsageError that quotes the text as typed."""
        make: Callable[..., Self] = cls
        for name, parameter in cls.declared().items():
            if name in values:
                parameter.check(values[name], f"split {text!r}: ")
        return make(**values)

    @classmethod
    def value(cls, text: str, parameter: Declaration, field: str) -> int | float | str:
        """Return one parameter from its text, as it is declared: a number, a word, or its name for true."""
        kinds = set(parameter.kind.split(" | "))
        if "bool" in kinds and field == parameter.name:
            return True
        if "bool" in kinds:
            raise cls.refusal(text)
        if "int" in kinds:
            return cls.whole(text, field)
        return cls.number(text, field) if "float" in kinds else field.strip()

    @classmethod
    def whole(cls, text: str, field: str) -> int:
        """Return a whole number of at most nine digits, from its text."""
        digits = field.strip()
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 9):
            raise cls.refusal(text)
        return int(digits)

    @classmethod
    def number(cls, text: str, field: str) -> float:
        """Return a number from its text."""
        try:
            return float(field)
        except ValueError as cause:
            raise cls.refusal(text) from cause

    @classmethod
    def refusal(cls, text: str) -> UsageError:
        """Return the error for a text that is about this class and cannot be read."""
        return UsageError(f"split {text!r} must have the form {cls.syntax} ({cls.meaning})")

    @classmethod
    def declared(cls) -> dict[str, Declaration]:
        """Return the parameters by name, in order, as they are declared."""
        declared = declarations(cls)
        return {field.name: declared[field.name] for field in dataclasses.fields(cls)}

    def divide(self, labels: IntArray, seed: int, num_classes: int | None = None) -> list[IntArray]:
        """Divide a pool: return one list of indices for each client, in any order within a list.

        Args:
            labels: Labels of the pool, int64 [N], values 0 to C - 1.
            seed: Decides everything that is random.
            num_classes: Number of classes C. None: one more than the largest label.

        Raises:
            UsageError: These data cannot be divided in this way.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it divides labels")

    def partition(self, pool: LabelPool, seed: int, local_test: float | None = None) -> Partition:
        """Divide a pool, shuffle each client's list and cut its local test part off.

        Args:
            pool: The pool.
            seed: Decides everything that is random; at least 0.
            local_test: Share f in [0, 0.9] of each client's samples that is kept for testing: the first
                max(int(f n), 1) of its n shuffled samples, not stratified. None: `default_local_test`.

        Raises:
            UsageError: These data cannot be divided in this way, or an argument is out of range.
        """
        share = self.default_local_test if local_test is None else local_test
        check_range("local_test", share, 0, 0.9)
        self.check_local_test(share)
        parts, statistics = self.shuffled(pool, seed, minimum=2 if share > 0 else 1)
        cuts = [max(int(share * len(part)), 1) if share > 0 else 0 for part in parts]
        recipe = self.recipe(pool, seed) | {"local_test": share, **statistics}
        train = tuple(part[cut:] for part, cut in zip(parts, cuts, strict=True))
        test = tuple(part[:cut] for part, cut in zip(parts, cuts, strict=True))
        return Partition(train, test, pool.num_classes, recipe)

    def shuffled(self, pool: LabelPool, seed: int, minimum: int) -> tuple[list[IntArray], Recipe]:
        """Return one shuffled list of at least `minimum` samples per client, and what was left over and
        moved.
        """
        clients, size = self.client_count, len(pool.labels)
        if clients is not None and minimum * clients > size and not self.overlapping:
            raise UsageError(
                f"{self.text}: {size} samples cannot give {clients} clients {_needs(minimum)}; use fewer "
                f"clients"
            )
        parts = self.lists(pool, seed)
        rng = stream(seed, "client order")
        parts, moved = self.mended([rng.permutation(part) for part in parts], minimum)
        self.check_sizes(parts, minimum)
        return parts, unused(parts, size) | {"moved": moved}

    def check_sizes(self, parts: list[IntArray], minimum: int) -> None:
        """Raise a UsageError if a client has fewer than `minimum` samples."""
        for client, part in enumerate(parts):
            if len(part) < minimum:
                raise UsageError(
                    f"{self.text}: client {client} has {len(part)} samples, not {_needs(minimum)}"
                )

    def lists(self, pool: LabelPool, seed: int) -> list[IntArray]:
        """Return what `divide` gives. A split that looks at more than labels overrides this instead."""
        return self.divide(pool.labels, seed, pool.num_classes)

    def mended(self, parts: list[IntArray], minimum: int) -> tuple[list[IntArray], int]:
        """Return the lists after helping clients with too few samples, and how many samples were moved.

        By default nobody is helped, and a client with fewer than `minimum` samples is an error.
        """
        return parts, 0

    def recipe(self, pool: LabelPool, seed: int) -> Recipe:
        """Return how a partition is made, for its file."""
        return {
            "split": self.text,
            "seed": seed,
            "samples": len(pool.labels),
            "labels_sha256": labels_sha256(pool.labels),
            "transform": self.style,
        }

    def check_data(self, data: str, num_classes: int) -> None:
        """Refuse what can be refused before the data are read. By default nothing.

        Args:
            data: Name of the data set, for the message.
            num_classes: Its number of classes.
        """

    def classes_in(self, labels: IntArray, num_classes: int | None) -> int:
        """Return the number of classes, as given or one more than the largest label, after `check_data`."""
        known = int(labels.max(initial=-1)) + 1 if num_classes is None else num_classes
        self.check_data("the data", known)
        return known

    def check_local_test(self, share: float) -> None:
        """Refuse a share of local tests that this split cannot give. By default nothing."""

    def style_of_auto(self) -> tuple[str, str]:
        """Return the style of preparation that `--transform auto` means for this split, and why."""
        return self.style, f"the style of {self.name} splits"

    def stored(self) -> tuple[str, Mapping[str, Value]]:
        """Return how a configuration stores this split: its text and, for a class of one's own, arguments."""
        if type(self).__module__.startswith("raffed."):
            return self.text, {}
        return reference_to(type(self)), {name: getattr(self, name) for name in self.declared()}

    def shrunk(self) -> Split:
        """Return a split of the same kind for at most ten clients and ten classes, for a short trial."""
        changes = {}
        for field in self.declared():
            value = getattr(self, field)
            if isinstance(value, int):
                changes[field] = min(value, SMALL_CLIENTS if field == "clients" else SMALL_NUMBER)
        return replace(self, **changes)

    @property
    def is_own(self) -> bool:
        """Whether it is code of the user's, and not one of raffed's splits."""
        return not type(self).__module__.startswith("raffed.")

    @property
    def where(self) -> str:
        """Where its code is, for messages."""
        return f"{place_of(type(self))}: {type(self).__name__}"

    @property
    def seed_rule(self) -> str:
        """What its author must do so that a seed always gives the same lists, for messages."""
        return (
            f"{self.where} must draw from an argument `rng` that it names, or as a class from stream(seed, "
            "PURPOSE), and not from random, numpy.random or torch"
        )

    @property
    def overlapping(self) -> bool:
        """Whether clients may share samples."""
        return False

    @property
    def client_count(self) -> int | None:
        """Number of clients; None where the data or a file decides."""
        clients = getattr(self, "clients", None)
        return clients if isinstance(clients, int) else None

    @property
    def stage_count(self) -> int:
        """Number of stages in which the data come; 1 if they are all there from the start."""
        return 1


def unused(parts: list[IntArray], samples: int) -> Recipe:
    """Count the samples that nobody has, and how often a sample is listed again."""
    listed = np.concatenate(parts)
    reused, doubled = repeats([listed]), repeats(parts)
    return {
        "leftovers": samples - (len(listed) - reused),
        "reused": reused,
        **({"doubled": doubled} if doubled else {}),
    }


class ClassesEach(Split):
    """A split whose clients have `classes` classes each."""

    classes: int

    def check_data(self, data: str, num_classes: int) -> None:
        if self.classes > num_classes:
            raise UsageError(f"{self.text}: {self.classes} classes for each client; {data} has {num_classes}")


def _needs(minimum: int) -> str:
    return "1 sample" if minimum == 1 else "2 samples (1 to train on, 1 to test on; local_test = 0 needs 1)"
