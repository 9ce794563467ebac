"""`raffed adopt`: what an author's checkout says about itself. Nothing of it is executed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from raffed.adopted.checkout import AuthorFlag, AuthorMethod, Checkout, CodeLine, Missing
from raffed.adopted.traps import SAYS, traps_of


@dataclass(frozen=True)
class Audit:
    """What was read in a checkout. All places are paths below it, with a line.

    Attributes:
        family: The kind of engine, pfllib or flsim.
        main: The file that the author starts.
        commit: The commit that is checked out, if it is a checkout of git.
        licence: The licence, or None if no file states one.
        files: The SHA-256 of each Python file by its path.
        sha256: The SHA-256 of all of them together.
        methods: What the main file can run. A method without `server` is named there and not released.
        flags: The options of the author's parser.
        packages: Packages that are imported and not installed here.
        missing: Modules of the author's own that are imported and not released.
        undefined: Names that are used and defined nowhere.
        unreadable: Files that this version of Python cannot read.
        versions: The versions that the release states for itself.
        traps: The places of each trap by its key; `raffed.adopted.traps` has their sentences.
    """

    family: str
    main: str
    commit: str | None
    licence: str | None
    files: dict[str, str]
    sha256: str
    methods: list[AuthorMethod]
    flags: list[AuthorFlag]
    packages: list[Missing]
    missing: list[Missing]
    undefined: list[Missing]
    unreadable: list[Missing]
    versions: list[Missing]
    traps: dict[str, list[CodeLine]]

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain data; each place is a text such as "main.py:3"."""
        plain = asdict(self)
        listed = ("methods", "flags", "packages", "missing", "undefined", "unreadable", "versions")
        for name in listed:
            for entry, about in zip(plain[name], getattr(self, name), strict=True):
                entry["place"] = str(about.place)
        plain["traps"] = [
            {"trap": key, "says": SAYS[key], "places": [str(place) for place in places]}
            for key, places in self.traps.items()
        ]
        return plain


def adopt(path: str | Path) -> Audit:
    """Read an author's checkout.

    Args:
        path: The folder of the checkout.

    Returns:
        Family, commit, licence, methods, flags, what is missing, and the traps with their places.

    Raises:
        UsageError: If it is no folder, or holds no engine of a known family.
    """
    checkout = Checkout(Path(path))
    return Audit(
        family=checkout.family.name,
        main=checkout.named(checkout.main),
        commit=checkout.commit(),
        licence=checkout.licence(),
        files=checkout.hashes,
        sha256=checkout.sha256,
        methods=checkout.methods(),
        flags=checkout.flags(),
        packages=checkout.packages(),
        missing=checkout.files(),
        undefined=checkout.names(),
        unreadable=checkout.unreadable,
        versions=checkout.versions(),
        traps=traps_of(checkout),
    )
