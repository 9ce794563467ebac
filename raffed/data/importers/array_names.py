"""Which array of an npz file is what, by its name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from raffed.data.importers.values import Part, part_named

_KINDS = {
    "x": ("x", "data", "images", "image", "features", "inputs", "samples"),
    "y": ("y", "labels", "label", "targets", "target"),
    "clients": ("clients", "client", "groups", "users", "owners"),
}
CLASS_NAMES = ("class_names", "label_names", "target_names")
_ROLES: dict[Part, Mapping[str, str]] = {
    "train": {"x": "x", "y": "y", "clients": "clients"},
    "test": {"x": "x_test", "y": "y_test", "clients": "test_clients"},
    "validation": {"x": "x_val", "y": "y_val", "clients": "val_clients"},
}
_TESTS = ("x_test", "y_test", "test_clients")
_VALIDATION = ("x_val", "y_val", "val_clients")


@dataclass(frozen=True)
class ArrayNames:
    """The names of a file's arrays by their roles: x, y, clients, x_test, y_test, test_clients, class_names.

    Attributes:
        of: Role → name of the array in the file.
        notes: What a user may not expect, such as arrays that are not used.
    """

    of: Mapping[str, str]
    notes: tuple[str, ...]


def array_names(where: str, members: Collection[str], asked: Mapping[str, str]) -> ArrayNames:
    """Find the roles of the arrays of an npz file.

    A name says what an array is (x, data, images, ...; y, labels, target, ...; clients, groups, ...) and
    perhaps of which part, before or after it: x_test, X_train, test_images, val_labels. Where two arrays have
    one role, the one whose word is listed first above is used. Without a test part, the validation part is
    the test set; with one, it is not used.

    Args:
        where: Beginning of the notes.
        members: The arrays of the file.
        asked: Role → name that the user gave, if it is not the role's own name.
    """
    ranks: dict[str, list[tuple[tuple[int, ...], str]]] = {}
    for name in members:
        if found := _role(name):
            ranks.setdefault(found[0], []).append((found[1], name))
    of = {role: min(names)[1] for role, names in ranks.items()}
    of |= {role: name for role, name in asked.items() if name != role}
    classes = next((name for name in CLASS_NAMES if name in members), None)
    of |= {"class_names": classes} if classes else {}
    notes = []
    if not {"x_test", "y_test"} & of.keys() and {"x_val", "y_val"} <= of.keys():
        notes.append(f"{where}: {of['x_val']} is the test set (there is no array for tests)")
        of |= {test: of[val] for test, val in zip(_TESTS, _VALIDATION, strict=True) if val in of}
    used = {
        name for role, name in of.items() if role not in _VALIDATION or name in {of.get(t) for t in _TESTS}
    }
    if spare := sorted(set(members) - used):
        notes.append(f"{where}: not used: {', '.join(spare[:10])}{', …' if len(spare) > 10 else ''}")
    return ArrayNames(of, tuple(notes))


def _role(name: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the role that a name means, and its rank among other names of this role; None for no role."""
    if re.search(r"\d", name):
        return None
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold())
    for kind, known in _KINDS.items():
        for place, word in enumerate(known):
            rest = _without(words, word)
            if rest is None:
                continue
            part = part_named(rest) if rest else "train"
            if part is not None:
                return _ROLES[part][kind], (int(name != _ROLES[part][kind]), int(not rest), place)
    return None


def _without(words: list[str], word: str) -> str | None:
    """Return what is left of a name without one word at its beginning or end; None if it is not there."""
    if len(words) == 1 and words[0] != word:
        # Written together, as in xtrain
        only = words[0]
        found = next((one for one in (only.removeprefix(word), only.removesuffix(word)) if one != only), "")
        return found if part_named(found) else None
    if word in words[:1]:
        return " ".join(words[1:])
    return " ".join(words[:-1]) if word in words[-1:] else None


__all__ = ["ArrayNames", "array_names"]
