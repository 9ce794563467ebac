"""The claims of docs/papers/fedmr.md §E5 about FedMR's tables 1, 5, 6 and 7, and about their small networks.

Each claim is a sum of cells:

(a) FedMR is above all baselines, and the gain is larger the fewer classes a client has. FedAvg itself is
lower there.

(b) Both terms together gain more than intra alone, and intra gains more than inter alone (on SVHN less). On
FMNIST the gain of both is larger than the sum of the two single gains.

(c) V(FedAvg), the variance of eigenvalues, falls as clients have more classes. V(intra) is far below it, and
in IID V(both) lies between V(intra) and V(FedAvg).

(d) If half of the clients share, most of the gain remains.

Claims that the printed numbers do not support are left out. So are claims of (a) that they support by less
than the noise of the printed numbers. A contract test compares.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from raffed import Claim

AHEAD = {  # columns in which the printed Δ is half a point or more
    "FMNIST": ("P5C2", "P10C2", "P10C5"),
    "SVHN": ("P5C2", "P10C2", "P10C3"),
    "CIFAR10": ("P5C2", "P10C2", "P10C3", "P10C5"),
    "CIFAR100": ("P10C10",),
}
FEW_MANY = {
    **dict.fromkeys(("FMNIST", "SVHN", "CIFAR10"), ("P10C2", "P10C5")),
    "CIFAR100": ("P10C10", "P10C50"),
}
NOT_KEPT = "CIFAR100 P50C10"  # 0.84 of 3.14 points: the printed numbers do not support (d) here
SHARED, HALF = "FedMR(proto_share=100%)", "FedMR(proto_share=50%)"


def table_1(rivals: Iterable[str]) -> tuple[Claim, ...]:
    """Return the claims (a). Gains are compared only between columns with equally many clients."""
    claims = [
        claim
        for name, splits in AHEAD.items()
        for split in splits
        for claim in _ahead(rivals, f"{name} {split}")
    ]
    return (
        *claims,
        *(_larger_gain(f"{name} {few}", f"{name} {many}") for name, (few, many) in FEW_MANY.items()),
        *(_drops(f"{name} {few}", f"{name} {many}") for name, (few, many) in FEW_MANY.items()),
    )


def table_5(columns: Iterable[str]) -> tuple[Claim, ...]:
    """Return the claims (d). "Most" means more than half, and the printed gain is above a point
    everywhere.
    """
    return tuple(_half_kept(column, HALF, SHARED) for column in columns if column != NOT_KEPT)


def table_6(none: str, inter: str, intra: str, both: str) -> tuple[Claim, ...]:
    """Return the claims (b), as in docs/papers/fedmr.md §E5.

    Inter alone is above none by only 0.28 (CIFAR-10) and 0.21 points (CIFAR-100).
    """
    orders = dict.fromkeys(("FMNIST", "CIFAR10", "CIFAR100"), (both, intra, inter, none)) | {
        "SVHN": (both, inter, intra, none)
    }
    claims = [claim for name, order in orders.items() for claim in _in_order(order, f"{name} avg")]
    return (*claims, _together((both, intra, inter, none), "FMNIST avg"))


def table_7(dataset: str) -> tuple[Claim, ...]:
    """Return the claims (c). P5C2 and P10C2 both have two classes per client.

    "Far below" means half, which also holds in print with two and three classes. In IID V(both) is 61 to 102
    below V(FedAvg). FedNova, which is the same algorithm as FedAvg there, differs from it by 68.
    """
    two, ten, three, five, all_ = (
        f"{dataset} {split}" for split in ("P5C2", "P10C2", "P10C3", "P10C5", "IID")
    )
    claims = [
        *_falling((two, three)),
        *_falling((ten, three, five, all_)),
        *_flatter("FedMR(intra)", "FedMR(inter+intra)", (two, ten, three, five), all_),
    ]
    far = [
        Claim(
            f"(c) {column}: V(intra) below half of V(FedAvg)",
            ((0.5, "FedAvg", column), (-1.0, "FedMR(intra)", column)),
        )
        for column in (two, ten, three)
    ]
    return (*claims, *far)


def small_accuracy(net: str) -> list[Claim]:
    """Return the claims (a), (b) and (d) for Fashion-MNIST with a small network."""
    few, some, all_ = f"{net} P5C2", f"{net} P10C3", f"{net} IID"
    claims = [
        claim for column in (few, some) for claim in _ahead(("FedAvg", "FedProx", "FedProc", "MOON"), column)
    ]
    claims += [_larger_gain(a, b) for a, b in itertools.pairwise((few, some, all_))]
    order = ("FedMR", "FedMR(intra)", "FedMR(inter)", "FedAvg")
    claims += [claim for column in (few, some) for claim in _in_order(order, column)]
    # Half means 5 of 10 clients, so P5C2, which has 5 in all, is left out
    return [*claims, _together(order, few), _half_kept(some, HALF, "FedMR")]


def small_variance(net: str) -> list[Claim]:
    """Return the claims (c) for Fashion-MNIST with a small network."""
    few, some, all_ = f"{net} P5C2", f"{net} P10C3", f"{net} IID"
    return [*_falling((few, some, all_)), *_flatter("FedMR(intra)", "FedMR", (few, some), all_)]


def _ahead(rivals: Iterable[str], column: str) -> list[Claim]:
    return [Claim.above(f"(a) {column}: FedMR above {row}", "FedMR", row, column) for row in rivals]


def _larger_gain(more: str, less: str) -> Claim:
    gains = (1.0, "FedMR", more), (-1.0, "FedAvg", more), (-1.0, "FedMR", less), (1.0, "FedAvg", less)
    return Claim(f"(a) the gain over FedAvg is larger in {more} than in {less}", gains)


def _drops(fewer: str, more: str) -> Claim:
    """Return the first sentence of the paper's results: with fewer classes a client FedAvg drops."""
    return Claim(
        f"(a) FedAvg is lower in {fewer} than in {more}", ((1.0, "FedAvg", more), (-1.0, "FedAvg", fewer))
    )


def _in_order(rows: Sequence[str], column: str) -> list[Claim]:
    return [Claim.above(f"(b) {column}: {a} above {b}", a, b, column) for a, b in itertools.pairwise(rows)]


def _together(rows: tuple[str, str, str, str], column: str) -> Claim:
    """Return the claim that both terms gain more than the sum of the single gains.

    `rows` are: both terms, either term, the other, none.
    """
    terms = tuple((sign, row, column) for sign, row in zip((1.0, -1.0, -1.0, 1.0), rows, strict=True))
    return Claim(f"(b) {column}: both terms gain more together than one by one", terms)


def _half_kept(column: str, half: str, whole: str) -> Claim:
    kept = (1.0, half, column), (-0.5, whole, column), (-0.5, "FedAvg", column)
    gain = (1.0, whole, column), (-1.0, "FedAvg", column)
    return Claim(f"(d) {column}: half of the clients sharing keeps more than half of the gain", kept, gain)


def _falling(columns: Sequence[str]) -> list[Claim]:
    return [
        Claim(f"(c) V(FedAvg) is larger in {a} than in {b}", ((1.0, "FedAvg", a), (-1.0, "FedAvg", b)))
        for a, b in itertools.pairwise(columns)
    ]


def _flatter(intra: str, both: str, columns: Sequence[str], iid: str) -> list[Claim]:
    """Return the claims V(intra) < V(FedAvg), and V(intra) < V(both) < V(FedAvg) in IID."""
    return [
        *(
            Claim.above(f"(c) {column}: V(FedAvg) above V(intra)", "FedAvg", intra, column)
            for column in columns
        ),
        *(Claim.above(f"(c) {column}: V(both) above V(intra)", both, intra, column) for column in columns),
        *(
            Claim(
                f"(c) {column}: V(both) is below V(FedAvg) in IID",
                ((1.0, "FedAvg", iid), (-1.0, both, column)),
            )
            for column in columns
        ),
    ]
