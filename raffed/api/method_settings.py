"""Methods that are compared, each with the settings by which it may stand more than once in one table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from raffed.config.validation import Value
from raffed.errors import UsageError

_NEXT = re.compile(r",(?=\s*[A-Za-z_][\w.]*\s*=)")  # a comma before NAME=


class ComparedMethod(NamedTuple):
    """A method, and arguments that it has here only.

    Attributes:
        method: Its name or reference.
        args: Its arguments here. Empty if the method is compared as it is.
    """

    method: str
    args: Mapping[str, Value]

    @property
    def label(self) -> str:
        """What distinguishes it from the others, such as "fedprox,mu=0.1". It also names the folder."""
        return ",".join([self.method, *(f"{name}={_spelt(value)}" for name, value in self.args.items())])


def separated(text: str) -> tuple[str, list[str]]:
    """Return the method and the settings of a text: "fedprox,mu=0.1" → "fedprox" and ["mu=0.1"]."""
    method, *settings = _NEXT.split(text)
    return method.strip(), [one.strip() for one in settings]


def by_label(methods: Iterable[ComparedMethod]) -> dict[str, ComparedMethod]:
    """Return label → method.

    Raises:
        UsageError: Two methods have the same label.
    """
    found: dict[str, ComparedMethod] = {}
    for one in methods:
        if one.label in found:
            raise UsageError(
                f"{one.label} is given twice, and the second run would be the first again; leave one out, or "
                f"give each its settings, as in {one.method},NAME=VALUE"
            )
        found[one.label] = one
    return found


def _spelt(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as in TOML
    if isinstance(value, list | tuple):
        return f"[{', '.join(_spelt(one) for one in value)}]"
    return str(value)


__all__ = ["ComparedMethod", "by_label", "separated"]
