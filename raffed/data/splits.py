"""The splits by name, and the notation in which they are typed: `p10c2`, `dirichlet:100:0.5`, ...

A split of your own is a subclass of `Split`; its docstring has an example. `register_split` gives it a name.
"""

from __future__ import annotations

import contextlib
import difflib

from raffed.data.benchmark_splits import Equal, InStages
from raffed.data.given_splits import FromFile, Natural, style_in
from raffed.data.label_splits import (
    ClassesPerClient,
    Dirichlet,
    DirichletByClient,
    Iid,
    Incomplete,
    LogNormalSizes,
    Shards,
)
from raffed.data.split import MAX_CLIENTS, LabelPool, Split
from raffed.errors import UsageError

__all__ = [
    "MAX_CLIENTS",
    "SPLITS",
    "ClassesPerClient",
    "Dirichlet",
    "DirichletByClient",
    "Equal",
    "FromFile",
    "Iid",
    "InStages",
    "Incomplete",
    "LabelPool",
    "LogNormalSizes",
    "Natural",
    "Shards",
    "Split",
    "parse_split",
    "register_split",
    "style_in",
    "style_words",
]

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


for _split in (
    Dirichlet,
    DirichletByClient,
    Equal,
    FromFile,
    Iid,
    Incomplete,
    LogNormalSizes,
    Natural,
    ClassesPerClient,
    Shards,
    InStages,
):
    register_split(_split)


def parse_split(text: str) -> Split:
    """Parse a split such as "p10c2" or "dirichlet:100:0.5", in any case.

    Args:
        text: The split as typed; `raffed splits` lists the syntax.

    Raises:
        UsageError: The text is not a split. The message contains the syntax.

    Example:
        >>> parse_split("dirichlet:100:0.5")
        Dirichlet(clients=100, alpha=0.5)
    """
    text = text.strip()
    for split in SPLITS.values():
        found = split.read(text)
        if found is not None:
            return found
    near = difflib.get_close_matches(text.partition(":")[0].strip().lower(), SPLITS, n=2)
    hint = f"nearest: {', '.join(SPLITS[name].syntax for name in near)}; " if near else ""
    known = ", ".join(split.syntax for split in SPLITS.values())
    raise UsageError(f"unknown split {text!r}; {hint}known: {known}")


def style_words(asked: str, split: str) -> str:
    """Return in words how a run prepares its inputs: the style and, where `auto` chose it, why.

    Args:
        asked: The run's `data.transform`.
        split: The run's split as text.
    """
    if asked != "auto":
        return asked
    with contextlib.suppress(UsageError):  # a file that cannot be read is reported by whoever needs it
        found = parse_split(split).style_of_auto()
        return f"{found.style} (auto: {found.why})"
    return asked
