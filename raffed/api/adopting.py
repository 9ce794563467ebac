"""`raffed adopt`: what an author's checkout says about itself. Nothing of it is executed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from raffed.adopted.checkout import AuthorFlag, AuthorMethod, Checkout, Missing
from raffed.adopted.traps import TRAPS, traps_of


def adopt(path: str | Path) -> dict[str, Any]:
    """Read an author's checkout.

    Args:
        path: The folder of the checkout.

    Returns:
        Plain data; each place is a path below the checkout with a line, such as "main.py:3". A method without
        a server is named in the main file and not released. `packages` are not installed here, `missing` are
        modules of the author's own that are not released, `undefined` names are defined nowhere, and
        `unreadable` files are not Python of this version. `versions` are those that the release states.

    Raises:
        UsageError: If it is no folder, or holds no engine of a known family.
    """
    checkout = Checkout(Path(path))
    return {
        "family": checkout.family.name,
        "main": checkout.named(checkout.main),
        "commit": checkout.commit(),
        "licence": checkout.licence(),
        "files": checkout.hashes,
        "sha256": checkout.sha256,
        "methods": [_plain(entry) for entry in checkout.methods()],
        "flags": [_plain(entry) for entry in checkout.flags()],
        "packages": [_plain(entry) for entry in checkout.packages()],
        "missing": [_plain(entry) for entry in checkout.files()],
        "undefined": [_plain(entry) for entry in checkout.names()],
        "unreadable": [_plain(entry) for entry in checkout.unreadable],
        "versions": [_plain(entry) for entry in checkout.versions()],
        "traps": [
            {"trap": trap, "says": TRAPS[trap]["says"], "places": [str(place) for place in places]}
            for trap, places in traps_of(checkout).items()
        ],
    }


def _plain(about: AuthorFlag | AuthorMethod | Missing) -> dict[str, Any]:
    return {**asdict(about), "place": str(about.place)}
