"""The notation `name:value:value` for records with declared parameters, such as `dirichlet:100:0.5`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

from raffed.config.validation import Declaration, declarations
from raffed.errors import UsageError


@dataclass(frozen=True)
class TypedRecord:
    """A record that a person types as its name and its parameters, with colons between them.

    Attributes:
        name: What is typed before the first colon, in lower case.
        syntax: How it is typed, for messages and listings.
        meaning: What it means, in a few words.
    """

    name: ClassVar[str] = ""
    syntax: ClassVar[str] = ""
    meaning: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field, one in self.declared().items():
            one.check(getattr(self, field), f"split {self.text!r}: ")

    @property
    def text(self) -> str:
        """The canonical spelling, which `parse_split` reads back to an equal split."""
        values = [getattr(self, field) for field in self.declared()]
        words = [
            word
            for value in values
            if value is not None
            for word in (value if isinstance(value, tuple) else (value,))
        ]
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
        required = sum(not one.default for one in declared)
        if not required <= len(fields) <= len(declared):
            raise cls.refusal(text)
        values = {one.name: cls.value(text, one, field) for one, field in zip(declared, fields, strict=False)}
        return cls.made(text, **values)

    @classmethod
    def made(cls, text: str, **values: int | float | str | tuple[str, ...] | None) -> Self:
        """Return the split with these parameters, or a UsageError that quotes the text as typed."""
        make: Callable[..., Self] = cls
        for name, one in cls.declared().items():
            if name in values:
                one.check(values[name], f"split {text!r}: ")
        return make(**values)

    @classmethod
    def value(cls, text: str, one: Declaration, field: str) -> int | float | str:
        """Return one parameter from its text: a whole number, a number or a word, as it is declared."""
        kinds = set(one.kind.split(" | "))
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
        found = declarations(cls)
        return {field.name: found[field.name] for field in dataclasses.fields(cls)}
