"""Short names that installed packages give to their own code. Nothing of theirs is imported.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from collections.abc import Mapping
from typing import NamedTuple

GROUPS = ("methods", "models", "datasets", "splits", "selections", "losses", "metrics")
# Not the current folder, which may have come from a stranger, nor what is added to the path later
_INSTALLED = [one for one in sys.path if one and os.path.realpath(one) != os.path.realpath(os.getcwd())]


class EntryPoint(NamedTuple):
    """A short name that an installed package gives to its own code.

    Attributes:
        name: The name, in small letters.
        reference: The reference behind it, such as "mylab.methods:myprox".
        package: The installed distribution and its version, such as "mylab 0.1".
    """

    name: str
    reference: str
    package: str


@functools.cache
def entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Return the short names that installed packages register in a group.

    Args:
        group: "raffed.methods", "raffed.models", "raffed.datasets" or "raffed.splits".

    Returns:
        Name → entry point, sorted by name.
    """
    found: dict[str, EntryPoint] = {}
    for package in importlib.metadata.distributions(path=_INSTALLED):
        for one in package.entry_points.select(group=group):
            name, about = one.name.lower(), f"{package.name} {package.version}"
            found.setdefault(name, EntryPoint(name, f"{one.module}:{one.attr}", about))
    return dict(sorted(found.items()))


def entry_references() -> set[str]:
    """Return the references of all short names."""
    return {one.reference for group in GROUPS for one in entry_points(f"raffed.{group}").values()}


__all__ = ["EntryPoint", "entry_points", "entry_references"]
