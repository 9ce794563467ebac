"""The lock of the environment in a bundle: the versions of raffed and of everything that it needs.

Only names and versions are listed, never where a package was installed from.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Iterable, Iterator, Mapping

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def environment_lock(packages: Iterable[str], recorded: Iterable[Mapping[str, str]]) -> str:
    """Return the text of environment.txt, which pip reads as a list of requirements.

    Args:
        packages: Installed packages of the user's own code, such as "mylab 0.1".
        recorded: The versions that computed the runs, as their run.json says.
    """
    here = _closure(["raffed", *(one.partition(" ")[0] for one in packages)])
    computed = sorted(
        {", ".join(f"{name} {version}" for name, version in sorted(one.items())) for one in recorded}
    )
    lines = [
        f"# Python {platform.python_version()}; what was installed when the bundle was written",
        *(f"# computed with {one}" for one in computed),
        *(f"{name}=={version}" for name, version in sorted(here.items())),
    ]
    return "\n".join(lines) + "\n"


def _closure(names: list[str]) -> dict[str, str]:
    """Return name → version of installed packages and of all that they need, as far as it is installed."""
    found: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = _plain(waiting.pop())
        if name in found:
            continue
        try:
            about = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # an extra, or for another system
            continue
        found[name] = about.version
        waiting += _needed(about.requires or ())
    return found


def _needed(requires: Iterable[str]) -> Iterator[str]:
    """Yield the names in requirements, without those of extras."""
    for one in requires:
        name = NAME.match(one)
        if name and "extra ==" not in one:
            yield name.group()


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


__all__ = ["environment_lock"]
