"""The names by which people call the parts of a data set: train, test and validation, in any spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from raffed.errors import UsageError

Part = Literal["train", "test", "validation"]
_WORDS: dict[str, Part] = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("test", "testing", "tests", "tst"), "test"),
    **dict.fromkeys(
        ("val", "valid", "validation", "validate", "dev", "development", "eval", "evaluation"), "validation"
    ),
}
_ENDINGS = ("", "set", "data", "dataset", "images", "image", "imgs", "img", "split", "part", "samples")
_JOINED = {word + ending: part for word, part in _WORDS.items() for ending in _ENDINGS}


def part_named(name: str) -> Part | None:
    """Return the part that a name means, such as "train" for `Training`, `train_set` or `train2017`.

    Blanks, hyphens, capitals and a year at the end do not matter. A word may stand before the part's, as in
    `seg_train`. Every other name means no part.
    """
    plain = re.sub(r"(19|20)\d\d$", "", name.strip().casefold())
    if re.search(r"\d", plain):
        return None
    words = re.findall(r"[a-z]+", plain)
    return _JOINED.get("".join(words)) or (_WORDS.get(words[-1]) if words else None)


def parts_named(names: Iterable[str]) -> dict[str, Part]:
    """Return name → part for all names that mean one, in their order."""
    found = {name: part_named(name) for name in names}
    return {name: part for name, part in found.items() if part is not None}


def are_parts(names: Iterable[str]) -> bool:
    """Return whether all names mean parts, one of them the training part and another one a different part."""
    every = [part_named(name) for name in names]
    return None not in every and "train" in every and len(set(every)) > 1


@dataclass(frozen=True)
class ChosenParts:
    """Which parts of a data set are trained and tested on, by their names in the data.

    Attributes:
        train: The training part.
        test: The test part; None if there is none.
        notes: What a user may not expect, such as parts that are not used.
    """

    train: str
    test: str | None
    notes: tuple[str, ...] = ()


def chosen_parts(where: str, sizes: Mapping[str, int], train: str = "", test: str = "") -> ChosenParts | None:
    """Choose the parts of a data set by their names; None if no name means the training part.

    The rule: without a part for tests, the validation part is the test set; with one, it is not used.

    Args:
        where: Beginning of the message.
        sizes: Name of each part → number of its samples.
        train, test: The names that the user gave; "" to go by the usual names.

    Raises:
        UsageError: Two parts mean the same, and neither has the plain name.
    """
    rest = [name for name in sizes if name not in (train, test)]
    trained = train or _only(where, rest, "train")
    if not trained:
        return None
    others = [name for name in rest if name != trained]
    tested = test or _only(where, others, "test") or _only(where, others, "validation")
    notes = []
    if tested and not test and part_named(tested) == "validation":
        notes.append(f"{where}: {tested!r} is the test set (there is no part for tests)")
    spare = [f"{name} ({sizes[name]:,})" for name in others if name != tested]
    if spare:
        notes.append(f"{where}: not used: {', '.join(spare)}; {trained!r} is trained on")
    return ChosenParts(trained, tested or None, tuple(notes))


def _only(where: str, names: Iterable[str], part: Part) -> str:
    """Return the name that means a part, or ""."""
    found = [name for name in names if part_named(name) == part]
    if len(found) > 1 and part not in found:
        raise UsageError(
            f"{where}: {found[0]!r} and {found[1]!r} both mean the {part} part; join them or rename one"
        )
    return part if part in found else next(iter(found), "")


__all__ = ["ChosenParts", "Part", "are_parts", "chosen_parts", "part_named", "parts_named"]
