"""What a declaration says about one argument, and the check of a value against it.

`raffed.config.validation` reads declarations from signatures, and is where to import these names from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from raffed.errors import UnknownNameError, UsageError

# What JSON can express, and what may stand in a configuration, where tuples are also lists. A signature that
# names them is read when it runs, where a recursive alias could not be evaluated.
if TYPE_CHECKING:
    Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
    Value: TypeAlias = "Mapping[str, Value] | Sequence[Value] | str | int | float | bool | None"
else:
    Json = Value = object

T = TypeVar("T")
V = TypeVar("V")
LIST, TABLE = "list of int", "table"
PLAIN: dict[str, type[bool | int | float | str]] = {"bool": bool, "int": int, "float": float, "str": str}
KINDS = {*PLAIN, "None", LIST, TABLE}  # the kinds that are checked; of other types nothing is checked


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`. Both ends belong to the range, the lower one not if `open_low`.

    The range of a list is that of each of its numbers.

    Raises:
        UsageError: An end is not a number, or no number lies between them.
    """

    low: float
    high: float = math.inf
    open_low: bool = False

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in ends):
            raise UsageError(f"Range({self.low!r}, {self.high!r}): both ends must be numbers")
        if not (self.low < self.high if self.open_low else self.low <= self.high):
            raise UsageError(f"Range({self.low!r}, {self.high!r}) holds no number; write the lower end first")

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.open_low else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low, high = map(_short, (self.low, self.high))
        if self.high == math.inf:
            return f"{'>' if self.open_low else '≥'} {low}"
        return f"{'(' if self.open_low else '['}{low}, {high}]"

    def refusal(self, value: float) -> str:
        """Why `value`, which lies outside, is refused."""
        if self.high == math.inf and not self.open_low:
            return f"is below {self.low}"
        return f"is outside {'(' if self.open_low else '['}{self.low}, {self.high}]"


def _short(number: float) -> str:
    text = f"{number:g}"
    return text.replace("e+0", "e") if float(text) == number else f"{number}"


@dataclass(frozen=True)
class Length:
    """How many numbers a list has: from `low` to `high`.

    Raises:
        UsageError: An end is not a whole number, or no list has such a length.
    """

    low: int
    high: int | None = None

    def __post_init__(self) -> None:
        whole = all(type(one) is int for one in (self.low, self.high) if one is not None)
        if not whole or self.low < 0 or (self.high is not None and self.high < self.low):
            raise UsageError(
                f"Length({self.low!r}, {self.high!r}): no list has such a length; give whole numbers "
                f"from 0 on, the lower end first"
            )

    def __contains__(self, count: int) -> bool:
        return self.low <= count and (self.high is None or count <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low} or more"
        return f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"


def _words(kind: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that an argument may be.

    Raises:
        UsageError: There are none, or something else than a text is among them.
    """
    odd = [one for one in given if not isinstance(one, str)]
    if odd or not given:
        raise UsageError(
            f"{kind}({', '.join(map(repr, given))}): each word must be an argument of its own, as in "
            f"{kind}('mean', 'sum')"
        )
    return given


@dataclass(frozen=True)
class Choices:
    """One of these words. For choices that a type cannot state, because they are known only when it runs."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", _words("Choices", words))


@dataclass(frozen=True)
class Words:
    """Zero or more of these words in one text, separated by commas."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", _words("Words", words))


@dataclass(frozen=True)
class Doc:
    """What an argument means. The first sentence can stand alone, as it does in the help of an option."""

    text: str


@dataclass(frozen=True)
class Strength:
    """Marks a coefficient that makes steps larger, so that it may be the reason if training diverges."""


Marker: TypeAlias = Range | Length | Choices | Words | Doc | Strength


@dataclass(frozen=True)
class Declaration:
    """One argument: its name, its type and default as text, what it may be, and what it means."""

    name: str
    kind: str
    default: str = ""
    range: Range | None = None
    choices: tuple[str, ...] = ()
    doc: str = ""
    length: Length | None = None
    words: bool = False  # whether several choices, separated by commas, may be given
    strength: bool = False

    @cached_property  # cached, because a table of a paper checks half a million values
    def kinds(self) -> list[str]:
        """The types that are accepted, one for each part of a union."""
        return self.kind.split(" | ")

    @cached_property
    def _is_checked(self) -> bool:
        return all(kind in KINDS for kind in self.kinds)

    @cached_property
    def _accepted(self) -> frozenset[type]:
        """The types of which every value is accepted, so that most values need no further look."""
        if self.range is not None or self.choices:
            return frozenset()
        found = {PLAIN[kind] for kind in self.kinds if kind in PLAIN}
        return frozenset({type(None), *found} if "None" in self.kinds else found)

    @cached_property
    def _ranged(self) -> frozenset[type]:
        """The types of numbers that are accepted if they lie in the range."""
        numbers = {"int": int, "float": float}
        return frozenset(numbers[kind] for kind in self.kinds if kind in numbers and not self.choices)

    def _is_usual(self, value: T) -> bool:
        """Whether a value is accepted at first sight, as most are: a number in the range, or a choice."""
        if type(value) in self._ranged and isinstance(value, int | float):
            return self.range is None or value in self.range
        return isinstance(value, str) and not self.words and value in self.choices and "str" in self.kinds

    @property
    def shown_kind(self) -> str:
        """The choices if there are any, otherwise the type."""
        shown = " | ".join(filter(None, self.choices))
        if self.words:
            return f"{shown}, separated by commas"
        kind = self.kind.replace("list of", f"list of {self.length}") if self.length else self.kind
        return shown or kind

    @property
    def shown_default(self) -> str:
        """The default as it is typed in a file or in the command line."""
        text = self.default.strip("'")
        if self.kind == LIST:
            return f"[{', '.join(re.findall('[0-9]+', text))}]".replace(" ", "")
        return text.lower() if self.kind == "bool" else text

    @property
    def summary(self) -> str:
        """The first sentence of the meaning."""
        return re.split(r"(?<=\.)\s+(?=[^a-z])", self.doc, maxsplit=1)[0]

    def marked(self, *markers: Marker | str) -> Declaration:
        """The same with what these markers say; a later marker replaces an earlier one of its kind."""
        found = self
        for one in markers:
            if isinstance(one, Range):
                found = replace(found, range=one)
            elif isinstance(one, Length):
                found = replace(found, length=one)
            elif isinstance(one, Choices):
                found = replace(found, choices=one.words, words=False)
            elif isinstance(one, Words):
                found = replace(found, choices=one.words, words=True)
            elif isinstance(one, Doc):
                found = replace(found, doc=one.text)
            elif isinstance(one, Strength):
                found = replace(found, strength=True)
        return found

    def check(self, value: T, prefix: str = "") -> None:
        """Raise a UsageError if `value` has another type, lies outside the range or is none of the choices.

        An int is also a float, but a bool is never a number. A tuple is also a list. Types outside KINDS are
        not checked.
        """
        if type(value) in self._accepted or not self._is_checked or self._is_usual(value):
            return
        if not any(_fits(value, kind) for kind in self.kinds):
            label = self._label(value, prefix)
            shown = LIST in self.kinds and re.fullmatch(r"[\d, ]*\d[\d, ]*", str(value))
            remedy = f"; write {self.name}=[{value}]" if shown else ""
            raise UsageError(f"{label} is {_a(type(value).__name__)}, but must be {_a(self.kind)}{remedy}")
        if isinstance(value, list | tuple):
            label = self._label(value, prefix)
            if self.length is not None and len(value) not in self.length:
                raise UsageError(f"{label} has {len(value)} numbers, but must have {self.length}")
            for one in value:
                if (why := self._refusal(one)) is not None:
                    raise UsageError(f"{label}: {one!r} {why}")
        else:
            if (why := self._refusal(value)) is not None:
                raise UsageError(f"{self._label(value, prefix)} {why}")
            self._check_words(value, prefix)

    def _label(self, value: T, prefix: str) -> str:
        return f"{prefix}{self.name} = {value!r}"

    def _refusal(self, value: T) -> str | None:
        """Return why a number is refused; None if it lies in the range, or is not a number."""
        if self.range is not None and isinstance(value, (int, float)) and value not in self.range:
            return self.range.refusal(value)
        return None

    def _check_words(self, value: T, prefix: str) -> None:
        if not self.choices or not isinstance(value, str):
            return
        for word in _listed(value) if self.words else (value,):
            if word not in self.choices:
                name = f"{prefix}{self.name}".rpartition(": ")[2]
                raise UnknownNameError(name, word, filter(None, self.choices))

    def canonical(self, value: T) -> T | float | dict[str, V]:
        """`value` in its one spelling: an int that stands for a float is that float."""
        if "float" in self.kinds and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return dict(value) if isinstance(value, Mapping) else value


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")] if text else []


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _fits(value: T, kind: str) -> bool:
    if kind == "None":
        return value is None
    if kind == TABLE:
        return isinstance(value, Mapping)
    if kind == LIST:
        return isinstance(value, list | tuple) and all(_fits(one, "int") for one in value)
    if isinstance(value, bool):
        return kind == "bool"
    return isinstance(value, (int, float) if kind == "float" else PLAIN[kind])


def plain_kind(text: str) -> str:
    """The words that messages use for a type as it is written, such as `list of int` for Sequence[int]."""
    text = re.sub(r"[\w.]+\.(?=\w)", "", text)
    if re.fullmatch(r"(Sequence|list|tuple)\[int(, (int|\.\.\.))*\]", text):
        return LIST
    return TABLE if text.startswith("Mapping[") else text
