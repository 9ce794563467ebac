"""The claims of MpFedcon's paper, from docs/papers/mpfedcon.md §EC."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from raffed import Claim

from .settings import METHODS, TASKS

BEST = tuple(  # MpFedcon is best in these, except for SOLO where clients have two classes
    Claim.above(f"{d} {s}: MpFedcon above {row}", "MpFedcon", row, f"{d} {s}")
    for d, s in TASKS
    for row in METHODS
    if row != "MpFedcon" and (row, s) != ("SOLO", "(100,2)")
)


def strengths() -> tuple[Claim, ...]:
    """Return the claims of table 2: the stronger the contrast, the better."""
    strengths = ("MpFedcon (mu=10)", "MpFedcon (mu=5)", "MpFedcon (mu=0.5)")
    pairs = (*itertools.pairwise(strengths), (strengths[0], "FedRep"))
    return tuple(
        Claim.above(f"{split} T=200: {more} above {less}", more, less, f"{split} T=200")
        for split in ("(50,5)", "(100,5)")
        for more, less in pairs
    )


def gains(splits: Iterable[str]) -> tuple[Claim, ...]:
    """Return the claims of figure 9: more than 70 % of the clients gain by MpFedcon."""
    return tuple(
        Claim(
            f"{split}: more than 70 % of the parties gain by MpFedcon",
            ((1.0, "MpFedcon", f"CIFAR10 {split}", "gaining_last"),),
            minus=70.0,
        )
        for split in splits
    )


def small(rows: Iterable[str]) -> tuple[Claim, ...]:
    """Return the claims on CIFAR-10: MpFedcon is best, and all methods are above FedAvg."""
    personal = ("SOLO", "FedAvg+FT", "FedPer", "FedRep", "Ditto", "APFL")
    best = [
        Claim.above(f"{s}: MpFedcon above {row}", "MpFedcon", row, f"CIFAR10 {s}")
        for _, s in TASKS[:2]
        for row in rows
        if row != "MpFedcon" and (row, s) != ("SOLO", "(100,2)")
    ]
    column = "CIFAR10 (100,2)"
    above = [Claim.above(f"(100,2): {row} above FedAvg", row, "FedAvg", column) for row in personal]
    return (*best, *above)
