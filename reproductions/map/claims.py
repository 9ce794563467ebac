"""The claims of docs/papers/map.md about MAP's Tables I to III (§E5) and Figs. 10 to 12 (§E6), as sums of
cells.

Numbers in brackets are those of that page. The claim that two methods lead means that their mean is above
every other method's value. "About" means within about one point (`within`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raffed import Claim

AVG, MEAN = "Avg", "mean"  # columns of averages: Tables I and II; Table III and Fig. 11
CHANCE = ("pFedMe", "PerFedAvg")  # are at chance in VGG_11, which has a hundred classes
VGG_11 = "CIFAR-100 VGG11"
ALIKE = ("FedRS", "Scaffold")  # MAP and ScaMAP are within 0.3 points of these
FALLING = ("FedROD",)  # many epochs make its aggregation worse in Fig. 12
PERSONAL_BELOW = ("Ditto", "DittoRS")  # the exceptions of (7) that show in the average
LOSING, LOSE_IN_PRINT = "losing_last", 16.0  # Fig. 10, FaMnist
FALL_BEHIND = (
    "FaMnist MLPNet",
    "CIFAR-10 TFCNN",
    "CIFAR-10 VGG8",
    "CIFAR-100 VGG8-BN",
    VGG_11,
    "CINIC-10 ResNet56",
)
EXCEPTIONS = {  # all printed exceptions of (7), cell by cell
    **dict.fromkeys(PERSONAL_BELOW, FALL_BEHIND),
    "FLDA": ("CIFAR-10 VGG8", "CIFAR-100 VGG8-BN", VGG_11),
    "FedROD": ("CIFAR-10 TFCNN", "CIFAR-10 VGG8", VGG_11),
    **dict.fromkeys(("FedAvg", "Scaffold", "ScaRS"), ("CIFAR-100 VGG8-BN",)),
    "FedDF": (VGG_11,),
}


def aggregation(rows: Iterable[str], columns: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims (1), (2), (5) and (6) about Table I."""
    claims = [
        Claim.above(f"(1) {column}: FedRS above FedAvg", "FedRS", "FedAvg", column)
        for column in (*columns, AVG)
    ]
    claims += _lead("(2)", ("MAP", "ScaMAP"), (row for row in rows if row not in ALIKE), AVG)
    claims += [
        Claim.near(f"(2) {AVG}: {row} within 0.3 points of {other}", row, other, AVG, 0.3)
        for row in ("MAP", "ScaMAP")
        for other in ALIKE
    ]
    claims += [Claim.near(f"(2) {column}: MAP is FedRS", "MAP", "FedRS", column, 0.0) for column in columns]
    claims.append(Claim.above(f"(5) {AVG}: DittoRS above Ditto", "DittoRS", "Ditto", AVG))
    claims += [
        Claim(f"(6) {VGG_11}: {row} about 25 %", ((1.0, row, VGG_11),), minus=25.0, within=3.0)
        for row in ("FedAvg", "MAP")
    ]
    return (*claims, *_chance())


def personalization(rows: Iterable[str], aggregated: Iterable[str]) -> tuple[Claim, ...]:
    """Return the claims (3) to (7) about Table II. `aggregated` are the rows that have a global model."""
    claims = _lead("(3)", ("FedPHP", "MAP"), rows, AVG)
    claims += [
        Claim.above(f"(3) {AVG}: {row} below FedAvg", "FedAvg", row, AVG) for row in ("Scaffold", "ScaRS")
    ]
    claims.append(Claim.above(f"(4) {AVG}: ScaMAP above ScaRS", "ScaMAP", "ScaRS", AVG))
    three = ((1.0, "ScaMAP", AVG), (-1.0, "ScaRS", AVG))
    claims.append(Claim(f"(4) {AVG}: … by about 3 points", three, minus=3.0, within=1.0))
    claims.append(Claim.above(f"(5) {AVG}: DittoRS above Ditto", "DittoRS", "Ditto", AVG))
    claims += _chance()
    claims += [_gap(row, AVG, below=row in PERSONAL_BELOW) for row in aggregated]
    claims += [_gap(row, column, below=True) for row, columns in EXCEPTIONS.items() for column in columns]
    return tuple(claims)


def _gap(row: str, column: str, below: bool) -> Claim:
    """Return a claim of (7): a row's personalization is above, or below, its aggregation."""
    sign, word = (-1.0, "below") if below else (1.0, "above")
    terms = (sign, row, column), (-sign, row, column, "accuracy_last")
    return Claim(f"(7) {column}: {row}'s personalization {word} its aggregation", terms)


def complete_classes(rows: Iterable[str], leaders: tuple[str, str]) -> tuple[Claim, ...]:
    """Return the claims about who leads in Table III."""
    return tuple(_lead("", leaders, rows, MEAN))


def who_gains(columns: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims of Fig. 10 about all clients: they gain in the mean, and few lose.

    Fewer than half lose; on FaMnist 16 of 100 do (two binomial standard deviations are 7.3).
    """
    claims = [
        Claim.above(f"{column}: clients gain in the mean", "MAP", "FedAvg", column) for column in columns
    ]
    claims += [
        Claim(f"{column}: fewer than half of the clients lose", ((-1.0, "MAP", column, LOSING),), minus=-50.0)
        for column in columns
    ]
    claims += [
        Claim(
            f"{column}: about {LOSE_IN_PRINT:g} % of the clients lose",
            ((1.0, "MAP", column, LOSING),),
            minus=LOSE_IN_PRINT,
            within=7.3,
        )
        for column in columns
        if column.startswith("FaMnist")
    ]
    return tuple(claims)


def settings(rows: Mapping[str, Mapping[str, float]], columns: Iterable[str]) -> tuple[Claim, ...]:
    """Return the claims of Fig. 11: every setting is above FedAvg on both axes.

    Settings that act only in stage 2 leave the aggregation as it is. `rows` maps a row to its differences
    from MAP's defaults.
    """
    default = next(row for row, args in rows.items() if not args)
    claims = []
    for row in rows:
        claims.append(Claim.above(f"{MEAN}: {row} above FedAvg in personalization", row, "FedAvg", MEAN))
        terms = (1.0, row, MEAN, "accuracy_last"), (-1.0, "FedAvg", MEAN, "accuracy_last")
        claims.append(Claim(f"{MEAN}: {row} above FedAvg in aggregation", terms))
    private = [row for row, args in rows.items() if args and "alpha" not in args]
    claims += [
        Claim.near(f"{column}: {row} aggregates as {default}", row, default, column, 0.0, "accuracy_last")
        for column in columns
        for row in private
    ]
    return tuple(claims)


def femnist(rows: Iterable[str], shares: Iterable[float], few: float, many: float) -> tuple[Claim, ...]:
    """Return the claims of Fig. 12: MAP is on top, and more epochs are faster (mean over all rounds).

    FedROD, however, ends lower with more epochs.
    """
    claims = []
    for share in shares:
        short, long = (f"Q={share} E={epochs:g}" for epochs in (few, many))
        for column in (short, long):
            claims += [
                Claim.above(f"{column}: MAP above {row}", "MAP", row, column) for row in rows if row != "MAP"
            ]
        claims += [
            Claim(
                f"Q={share}: {row} is faster with E={many:g} than with E={few:g} (mean over all rounds)",
                ((1.0, row, long, "accuracy_mean"), (-1.0, row, short, "accuracy_mean")),
            )
            for row in rows
            if row not in FALLING
        ]
        claims += [
            Claim(
                f"Q={share}: {row} ends lower with E={many:g} than with E={few:g}",
                ((1.0, row, short), (-1.0, row, long)),
            )
            for row in FALLING
        ]
    return tuple(claims)


def _lead(number: str, two: tuple[str, str], rows: Iterable[str], column: str) -> list[Claim]:
    """Return the claims that the mean of two methods is above every other row's value."""
    start, mean = f"{number} {column}: ".lstrip(), tuple((0.5, method, column) for method in two)
    return [
        Claim(f"{start}{two[0]} and {two[1]}, in the mean, above {row}", (*mean, (-1.0, row, column)))
        for row in rows
        if row not in two
    ]


def _chance() -> list[Claim]:
    return [
        Claim(f"(6) {VGG_11}: {row} at chance, 1 %", ((1.0, row, VGG_11),), minus=1.0, within=1.0)
        for row in CHANCE
    ]
