"""What docs/papers/map.md claims of MAP's Tables I to III (§E5) and Figs. 10 to 12 (§E6), as sums of cells.

Numbers in brackets are those of that page. "Lead" is said of two methods together: their mean is above every
other method's. Where it says "about", a point or so is meant (within).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raffed.experiments.reproduction.items import Claim

AVG, MEAN = "Avg", "mean"  # columns of averages: Tables I and II; Table III and Fig. 11
CHANCE = ("pFedMe", "PerFedAvg")  # are at chance in VGG_11, of a hundred classes
VGG_11 = "CIFAR-100 VGG11"
ALIKE = ("FedRS", "Scaffold")  # whom MAP and ScaMAP are within 0.3 points of
FALLING = ("FedROD",)  # whose aggregation many epochs make worse in Fig. 12
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
EXCEPTIONS = {  # of (7), cell by cell: all that are printed
    **dict.fromkeys(PERSONAL_BELOW, FALL_BEHIND),
    "FLDA": ("CIFAR-10 VGG8", "CIFAR-100 VGG8-BN", VGG_11),
    "FedROD": ("CIFAR-10 TFCNN", "CIFAR-10 VGG8", VGG_11),
    **dict.fromkeys(("FedAvg", "Scaffold", "ScaRS"), ("CIFAR-100 VGG8-BN",)),
    "FedDF": (VGG_11,),
}


def aggregation(rows: Iterable[str], columns: Sequence[str]) -> tuple[Claim, ...]:
    """Table I, claims (1), (2), (5) and (6)."""
    found = [
        Claim.above(f"(1) {column}: FedRS above FedAvg", "FedRS", "FedAvg", column)
        for column in (*columns, AVG)
    ]
    found += _lead("(2)", ("MAP", "ScaMAP"), (row for row in rows if row not in ALIKE), AVG)
    found += [
        Claim.near(f"(2) {AVG}: {row} within 0.3 points of {other}", row, other, AVG, 0.3)
        for row in ("MAP", "ScaMAP")
        for other in ALIKE
    ]
    found += [Claim.near(f"(2) {column}: MAP is FedRS", "MAP", "FedRS", column, 0.0) for column in columns]
    found.append(Claim.above(f"(5) {AVG}: DittoRS above Ditto", "DittoRS", "Ditto", AVG))
    found += [
        Claim(f"(6) {VGG_11}: {row} about 25 %", ((1.0, row, VGG_11),), minus=25.0, within=3.0)
        for row in ("FedAvg", "MAP")
    ]
    return (*found, *_chance())


def personalization(rows: Iterable[str], aggregated: Iterable[str]) -> tuple[Claim, ...]:
    """Table II, claims (3) to (7); aggregated: the rows that have a global model."""
    found = _lead("(3)", ("FedPHP", "MAP"), rows, AVG)
    found += [
        Claim.above(f"(3) {AVG}: {row} below FedAvg", "FedAvg", row, AVG) for row in ("Scaffold", "ScaRS")
    ]
    found.append(Claim.above(f"(4) {AVG}: ScaMAP above ScaRS", "ScaMAP", "ScaRS", AVG))
    three = ((1.0, "ScaMAP", AVG), (-1.0, "ScaRS", AVG))
    found.append(Claim(f"(4) {AVG}: … by about 3 points", three, minus=3.0, within=1.0))
    found.append(Claim.above(f"(5) {AVG}: DittoRS above Ditto", "DittoRS", "Ditto", AVG))
    found += _chance()
    found += [_gap(row, AVG, below=row in PERSONAL_BELOW) for row in aggregated]
    found += [_gap(row, column, below=True) for row, columns in EXCEPTIONS.items() for column in columns]
    return tuple(found)


def _gap(row: str, column: str, below: bool) -> Claim:
    """(7): a row's personalization is above its aggregation, or below."""
    sign, word = (-1.0, "below") if below else (1.0, "above")
    terms = (sign, row, column), (-sign, row, column, "accuracy_last")
    return Claim(f"(7) {column}: {row}'s personalization {word} its aggregation", terms)


def complete_classes(rows: Iterable[str], leaders: tuple[str, str]) -> tuple[Claim, ...]:
    """Table III: who leads."""
    return tuple(_lead("", leaders, rows, MEAN))


def who_gains(columns: Sequence[str]) -> tuple[Claim, ...]:
    """Fig. 10, of all clients: they gain in the mean, and few lose: fewer than half, on FaMnist 16 of 100
    (two binomial standard deviations are 7.3).
    """
    found = [
        Claim.above(f"{column}: clients gain in the mean", "MAP", "FedAvg", column) for column in columns
    ]
    found += [
        Claim(f"{column}: fewer than half of the clients lose", ((-1.0, "MAP", column, LOSING),), minus=-50.0)
        for column in columns
    ]
    found += [
        Claim(
            f"{column}: about {LOSE_IN_PRINT:g} % of the clients lose",
            ((1.0, "MAP", column, LOSING),),
            minus=LOSE_IN_PRINT,
            within=7.3,
        )
        for column in columns
        if column.startswith("FaMnist")
    ]
    return tuple(found)


def settings(rows: Mapping[str, Mapping[str, float]], columns: Iterable[str]) -> tuple[Claim, ...]:
    """Fig. 11: every setting is above FedAvg on both axes; what acts in stage 2 alone leaves aggregation as
    it is.

    rows: row → what differs from MAP's defaults.
    """
    default = next(row for row, args in rows.items() if not args)
    found = []
    for row in rows:
        found.append(Claim.above(f"{MEAN}: {row} above FedAvg in personalization", row, "FedAvg", MEAN))
        terms = (1.0, row, MEAN, "accuracy_last"), (-1.0, "FedAvg", MEAN, "accuracy_last")
        found.append(Claim(f"{MEAN}: {row} above FedAvg in aggregation", terms))
    private = [row for row, args in rows.items() if args and "alpha" not in args]
    found += [
        Claim.near(f"{column}: {row} aggregates as {default}", row, default, column, 0.0, "accuracy_last")
        for column in columns
        for row in private
    ]
    return tuple(found)


def femnist(rows: Iterable[str], shares: Iterable[float], few: float, many: float) -> tuple[Claim, ...]:
    """Fig. 12: MAP on top; more epochs are faster (mean over all rounds), but FedROD ends lower."""
    found = []
    for share in shares:
        short, long = (f"Q={share} E={epochs:g}" for epochs in (few, many))
        for column in (short, long):
            found += [
                Claim.above(f"{column}: MAP above {row}", "MAP", row, column) for row in rows if row != "MAP"
            ]
        found += [
            Claim(
                f"Q={share}: {row} is faster with E={many:g} than with E={few:g} (mean over all rounds)",
                ((1.0, row, long, "accuracy_mean"), (-1.0, row, short, "accuracy_mean")),
            )
            for row in rows
            if row not in FALLING
        ]
        found += [
            Claim(
                f"Q={share}: {row} ends lower with E={many:g} than with E={few:g}",
                ((1.0, row, short), (-1.0, row, long)),
            )
            for row in FALLING
        ]
    return tuple(found)


def _lead(number: str, two: tuple[str, str], rows: Iterable[str], column: str) -> list[Claim]:
    """Their mean is above every other row's value."""
    start, mean = f"{number} {column}: ".lstrip(), tuple((0.5, one, column) for one in two)
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
