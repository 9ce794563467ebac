"""The splits by name, and the notation in which they are typed: `p10c2`, `dirichlet:100:0.5`, ...

A split of your own is a subclass of `Split`; its docstring has an example. `register_split` gives it a name.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping

from raffed.config.validation import Value
from raffed.data import benchmark_splits, label_splits, published_splits
from raffed.data.own_split import GROUP, own_split
from raffed.data.split import Split
from raffed.errors import UsageError
from raffed.own.gate import entry_points
from raffed.own.names import reference_of

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
