"""The splits by name, the notation in which they are typed, and splits of the user's own, by reference.

The notation is `p10c2`, `dirichlet:100:0.5`, ... A split of your own is a function that divides labels, or a
subclass of `Split`, whose docstring has an example. `register_split` gives a class a name.

The function gets what it names among its parameters: the labels, a random generator of the run's seed, the
number of classes, the natural clients. All its other parameters are arguments, which the configuration gives
(`data.split_args`). It returns one list of indices for each client.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, TypeVar, overload

import numpy as np

from raffed.config.validation import Doc, Value, check_call
from raffed.data import benchmark_splits, label_splits, published_splits
from raffed.data.files import IntArray
from raffed.data.randomness import generator
from raffed.data.split import SMALL_CLIENTS, LabelPool, Split
from raffed.errors import UsageError
from raffed.own.gate import entry_points
from raffed.own.names import OwnFunction, mark_of, marked, own_function, reference_of
from raffed.own.resolve import load
from raffed.own.user_code import user_errors

GROUP: Final = "raffed.splits"  # of entry points
KIND: Final = "split"
SUPPLIED: Final = ("labels", "rng", "num_classes", "owners")
F = TypeVar("F")


@dataclass(frozen=True)
class SplitMark:
    """What `@raffed.split` says about a function.

    Attributes:
        overlapping: Whether clients may share samples.
    """

    overlapping: bool = False


@overload
def split(function: F, /) -> F: ...
@overload
def split(*, overlapping: bool = False) -> Callable[[F], F]: ...
def split(function: F | None = None, /, *, overlapping: bool = False) -> F | Callable[[F], F]:
    """Mark a function as a split. A function in one's own files needs no mark.

    Args:
        function: The function, where the decorator is written without brackets.
        overlapping: Whether clients may share samples. Otherwise a sample that two clients have is an error.

    Returns:
        The function, unchanged.

    Example:
        @raffed.split
        def halves(labels, rng, clients: int = 10):
            return np.array_split(rng.permutation(len(labels)), clients)
    """

    def decorated(target: F) -> F:
        return marked(target, KIND, SplitMark(overlapping))

    return decorated if function is None else decorated(function)


@dataclass(frozen=True)
class OwnSplit(Split):
    """A function of the user's own that divides the labels."""

    name, syntax = "own", "./file.py:NAME or package.module:NAME"
    meaning = "a function of yours, with --split-arg NAME=VALUE for its arguments"

    typed: Annotated[str, Doc("The reference or entry point, as typed.")]
    args: Annotated[Mapping[str, Value], Doc("Arguments of the function.")] = field(default_factory=dict)

    def __post_init__(self) -> None:
        function = self.function.load()
        if "labels" not in inspect.signature(function).parameters:
            raise UsageError(
                f"{self.function.where}: a split needs a parameter `labels`; {self.typed} has "
                f"{', '.join(inspect.signature(function).parameters) or 'none'}"
            )
        check_call(f"split {self.typed!r}", function, SUPPLIED, self.args, "--split-arg")

    @property
    def function(self) -> OwnFunction:
        """Where the function is."""
        return own_function(KIND, self.typed, GROUP)

    @property
    def text(self) -> str:
        """The reference, and the arguments in brackets."""
        given = ", ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.typed} ({given})" if given else self.typed

    def stored(self) -> tuple[str, Mapping[str, Value]]:
        return self.typed, self.args

    @property
    def is_own(self) -> bool:
        return True

    @property
    def where(self) -> str:
        return f"{self.function.where}: {self.typed}"

    @property
    def overlapping(self) -> bool:
        """Whether the function is marked so."""
        return mark_of(self.function.load(), KIND, SplitMark()).overlapping

    @property
    def client_count(self) -> int | None:
        """The argument `clients` of the function, given or by default, if it has one."""
        known = inspect.signature(self.function.load()).parameters.get("clients")
        given = self.args.get("clients", known.default if known is not None else None)
        return given if isinstance(given, int) and not isinstance(given, bool) else None

    def lists(self, pool: LabelPool, seed: int) -> list[IntArray]:
        """Return what the function gives, after checking it.

        Raises:
            UsageError: It is not one list of existing indices for each client, or a rule is broken. The
                message begins with the file and line of the function.
            UserCodeError: The function raised an error.
        """
        function = self.function.load()
        wanted = inspect.signature(function).parameters
        supplied = {name: value for name, value in self._supplied(pool, seed).items() if name in wanted}
        if "owners" in wanted and pool.clients is None:
            raise UsageError(
                f"split {self.typed!r} needs the natural clients (owners), which this data set does not name"
            )
        with user_errors(self.function.reference):
            answer = function(**supplied, **self.args)
        lists = checked_lists(answer, len(pool.labels), self.overlapping, self.where)
        if self.client_count not in (None, len(lists)):
            raise UsageError(f"{self.where} gave {len(lists)} lists, and clients = {self.client_count}")
        return lists

    def shrunk(self) -> Split:
        """Return the same split for at most ten clients, if it has an argument for them."""
        count = self.client_count
        if count is None:
            return self
        return replace(self, args={**self.args, "clients": min(count, SMALL_CLIENTS)})

    def _supplied(self, pool: LabelPool, seed: int) -> dict[str, IntArray | int | np.random.Generator | None]:
        """Return what the function may ask for. Arrays are read-only."""
        return {
            "labels": _read_only(pool.labels),
            "rng": generator(seed, f"own split {self.typed}"),
            "num_classes": pool.num_classes,
            "owners": None if pool.clients is None else _read_only(pool.clients),
        }


def _read_only(values: IntArray) -> IntArray:
    view = values.view()
    view.flags.writeable = False
    return view


def checked_lists(drawn: Sequence[Sequence[int]], size: int, overlapping: bool, where: str) -> list[IntArray]:
    """Return the lists of indices that a function of the user's own gave as arrays of int64.

    Args:
        drawn: What it gave.
        size: Number of samples N of the pool.
        overlapping: Whether clients may share samples.
        where: File and line of the function, and its reference.

    Raises:
        UsageError: They are not one list of existing indices for each client, a client has none or has a
            sample twice, or two clients share a sample and may not.
    """
    if isinstance(drawn, str | bytes | Mapping) or not hasattr(drawn, "__len__"):
        kind = type(drawn).__name__
        raise UsageError(f"{where} gave a {kind}; it must give one list of indices per client")
    if not len(drawn):
        raise UsageError(f"{where} gave no client at all")
    lists, owner = [], np.full(size, -1, dtype=np.int64)
    for client, values in enumerate(drawn):
        gave = f"{where} gave client {client}"
        try:
            indices = np.asarray(values)
        except ValueError as error:
            raise UsageError(f"{gave} a list that is not of indices") from error
        if indices.size == 0:
            raise UsageError(f"{gave} no sample; every client needs at least one")
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise UsageError(f"{gave} {indices.dtype} {indices.shape}; it must be indices, integers (n,)")
        if (wrong := indices[(indices < 0) | (indices >= size)]).size:
            raise UsageError(f"{gave} the index {wrong[0]}; indices are 0 to {size - 1}")
        if len(np.unique(indices)) < len(indices):
            raise UsageError(f"{gave} a sample twice")
        if not overlapping and (shared := indices[owner[indices] >= 0]).size:
            raise UsageError(
                f"{where} gave sample {shared[0]} to the clients {owner[shared[0]]} and {client}; mark it "
                f"with @raffed.split(overlapping=True) if that is meant"
            )
        owner[indices] = client
        lists.append(indices.astype(np.int64))
    return lists


def own_split(typed: str, args: Mapping[str, Value]) -> Split:
    """Return the split that a reference or entry point names: a function, a `Split`, or a subclass of it.

    Args:
        typed: The name as the configuration stores it.
        args: Its arguments.

    Raises:
        UsageError: There is none, or the arguments do not fit.
        UserCodeError: The user's file raised an error while it was imported.
    """
    where = own_function(KIND, typed, GROUP)
    loaded = load(where.reference)
    if isinstance(loaded, Split):
        if args:
            raise UsageError(f"split {typed!r} is made already, so it takes no --split-arg")
        return loaded
    if not isinstance(loaded, type) or not issubclass(loaded, Split):
        return OwnSplit(typed, args)
    check_call(f"split {typed!r}", loaded, (), args, "--split-arg")
    build: Callable[..., Split] = loaded
    with user_errors(where.reference):
        return build(**args)


SPLITS: dict[str, type[Split]] = {}


def register_split(split: type[Split]) -> type[Split]:
    """Add a class of splits to the table `SPLITS`, so that it can be typed. Also usable as a decorator.

    Args:
        split: A subclass of `Split` with `name`, `syntax` and `meaning`.

    Raises:
        UsageError: A text is missing, or another class has the name.
    """
    for text in ("name", "syntax", "meaning"):
        if not getattr(split, text):
            raise UsageError(f"split {split.__name__} has no {text}; set it in the class")
    if SPLITS.setdefault(split.name, split) is not split:
        raise UsageError(f"there already is a split called {split.name!r}; choose another name")
    return split


_CLASSES = {
    kind
    for home in (benchmark_splits, label_splits, published_splits)
    for kind in vars(home).values()
    if isinstance(kind, type) and issubclass(kind, Split) and kind.name
}
for _split in sorted(_CLASSES, key=lambda kind: kind.name):
    register_split(_split)


def parse_split(text: str, args: Mapping[str, Value] | None = None) -> Split:
    """Parse a split such as "p10c2", "dirichlet:100:0.5" or "./splits.py:mine"; raffed's own in any case.

    Args:
        text: The split as typed; `raffed splits` lists the syntax.
        args: Arguments of a split of one's own.

    Raises:
        UsageError: The text is not a split, or the arguments do not fit. The message contains the syntax.
        UserCodeError: The user's file raised an error while it was imported.

    Example:
        >>> parse_split("dirichlet:100:0.5")
        Dirichlet(clients=100, alpha=0.5)
    """
    text = text.strip()
    split = _known(text)
    if split is not None:
        if args:
            raise UsageError(
                f"split {text!r} takes no split_args ({', '.join(args)}): its numbers stand in its text, "
                f"as in {split.syntax}"
            )
        return split
    if own_reference(text) is not None:
        return own_split(_short(text), args or {})
    raise _unknown(text)


def split_name(text: str) -> str:
    """Return the one spelling of a split. Nothing of the user's own is imported.

    Raises:
        UsageError: The text is not a split.
    """
    text = text.strip()
    split = _known(text)
    if split is not None:
        return split.text
    if own_reference(text) is None:
        raise _unknown(text)
    return _short(text)


def own_reference(text: str) -> str | None:
    """Return the reference to the user's own code that a split stands for; None for one of raffed's."""
    text = text.strip()
    if _known(text) is not None:  # p10c2:duplicates also has the form of a reference
        return None
    return reference_of(_short(text), GROUP, SPLITS)


def _known(text: str) -> Split | None:
    """Return the split that a text means to one of the classes of the table; None if it means none."""
    readings = (split.read(text) for split in SPLITS.values())
    return next((split for split in readings if split is not None), None)


def _short(text: str) -> str:
    return text.lower() if text.lower() in entry_points(GROUP) else text


def _unknown(text: str) -> UsageError:
    near = difflib.get_close_matches(text.partition(":")[0].strip().lower(), SPLITS, n=2)
    hint = f"nearest: {', '.join(SPLITS[name].syntax for name in near)}; " if near else ""
    known = ", ".join(split.syntax for split in SPLITS.values())
    others = "".join(f", {name}" for name in entry_points(GROUP))
    return UsageError(
        f"unknown split {text!r}; {hint}known: {known}{others}; yours: ./file.py:NAME or package.module:NAME"
    )


def style_words(asked: str, split: str) -> str:
    """Return in words how a run prepares its inputs: the style and, where `auto` chose it, why.

    Code of one's own is not executed for that, because a run's folder may come from a stranger.

    Args:
        asked: The run's `data.transform`.
        split: The run's split as text.
    """
    if asked != "auto":
        return asked
    with contextlib.suppress(UsageError):  # a file that cannot be read is reported by whoever needs it
        if own_reference(split) is None:
            style, why = parse_split(split).style_of_auto()
            return f"{style} (auto: {why})"
    return asked
