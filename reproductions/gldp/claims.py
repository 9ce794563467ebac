"""The claims of GLDP's paper, from docs/papers/gldp.md §EB and §EE."""

from __future__ import annotations

from collections.abc import Mapping

from raffed import Claim

from .settings import ALL, METHODS, Columns, Way

# the methods that the paper says are best, and in what
BEST = {
    "A_glo": ("GLDP-GP", "GLDP-LP"),
    "A_loc": ("GLDP-GP", "GLDP-LP"),
    "A_sel": ("GLDP-LP",),
    "drop of A_sel": ("GLDP-LP",),
}
# In print FedRep is ahead there, with 36.96 to 36.20
SECOND_TO = {("GLDP-LP", "TinyImageNet [20,20,5] IF50", "A_loc")}
# Points, in print; by docs/papers/gldp.md §EE no. 3 a level within 5 points is the paper's
MARGIN_4B, COST_OF_GP, ROOM = (19.12, 9.58, 5.0)


def leads(metric: str, where: Columns, ways: Mapping[str, Way]) -> tuple[Claim, ...]:
    """Return the claims of docs/papers/gldp.md §EE no. 1 and §EB, "best in every column".

    Each GLDP is above each other method, wherever that is so in print.
    """
    return tuple(
        Claim.above(f"{column}: {best} above {other}", best, other, column)
        for column in (f"{data} {split} IF{factor}" for data, split, factor in where)
        for best in ("GLDP-GP", "GLDP-LP")
        if (best, column, metric) not in SECOND_TO
        for other in ways
        if not other.startswith("GLDP")
    )


def stages_so_far(panel: str) -> tuple[Claim, ...]:
    """Return the claims of figure 4 (b): the text says that GLDP is 19.12 above the second best."""
    return tuple(
        Claim(
            f"(b): GLDP-LP above {row} by {MARGIN_4B} or more, within {ROOM:g} points",
            ((1.0, "GLDP-LP", panel), (-1.0, row, panel)),
            minus=MARGIN_4B - ROOM,
            sized=True,
        )
        for row in ALL
        if not row.startswith("GLDP")
    )


def cost_of_prototypes(column: str) -> Claim:
    """Return the claim of table 4: what removing GP costs on CIFAR-100, 36.82 − 27.24."""
    return Claim(
        f"{column}: removing GP costs {COST_OF_GP} points, within {ROOM:g}",
        ((1.0, "GLDP full", column), (-1.0, "GLDP without L_GP (lambda=1)", column)),
        minus=COST_OF_GP,
        within=ROOM,
        sized=True,
    )


def of_a_measure(split: str, metric: str) -> list[Claim]:
    """Return what the paper says about the order of methods by one measure, on one split."""
    column, others = f"{split} {metric}", [row for row in METHODS if not row.startswith("GLDP")]
    claims = [_ahead(best, other, column) for best in BEST[metric] for other in others]
    if metric == "drop of A_sel":
        claims += [Claim(f"{split}: A_sel of {row} falls", ((1.0, row, column),)) for row in METHODS]
    return claims


def of_the_terms(split: str, rows: Mapping[str, Way]) -> list[Claim]:
    """Return the claims on the rows without one of the terms, and on FedAvg, on a split with stages."""
    claims = []
    for metric in ("A_glo", "A_sel"):
        column = f"{split} {metric}"
        claims += [
            Claim.above(f"{column}: GLDP-LP above {row}", "GLDP-LP", row, column)
            for row in rows
            if "without" in row
        ]
    just_fitted = (1.0, "FedAvg", f"{split} A_glo"), (-1.0, "FedAvg", f"{split} A_loc")
    text = f"{split}: FedAvg's A_glo above its A_loc, of models just fitted to one stage"
    return [*claims, Claim(text, just_fitted)]


def _ahead(best: str, other: str, column: str) -> Claim:
    """Return the claim that GLDP's value is the better one: the higher accuracy, or the smaller drop."""
    if column.endswith(" drop of A_sel"):
        return Claim.above(f"{column}: {best} below {other}", other, best, column)
    return Claim.above(f"{column}: {best} above {other}", best, other, column)
