"""FedDisco (Ye et al. 2023): clients whose classes are distributed less evenly weigh less in the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Mean, Method
from raffed.config.validation import Doc, Range, checked
from raffed.core.aggregation.exact_sums import plain_sum
from raffed.core.server import Reweighting

Measure = Literal["kl", "l2", "cosine"]


class DiscrepancyWeights(Reweighting):
    """p_k ∝ max(ñ_k − a d_k + b, 0), with ñ_k the usual weights and d_k what a client reports.

    d_k is a distance between the client's label distribution D_k and the uniform one. By "l2" and "cosine" it
    is taken as it is. By "kl" it is divided by its sum over the participants (0 where all are uniform). Where
    no weight is above 0, the usual weights are taken.
    """

    a: float
    b: float
    measure: Measure = "kl"

    def report(self, class_counts: Tensor) -> Tensor:
        return discrepancy(class_counts, self.measure).reshape(1)

    def weights(self, usual: Sequence[float], reports: Sequence[Tensor]) -> list[float]:
        d = [float(report) for report in reports]
        total = plain_sum(d) if self.measure == "kl" else 1.0
        raw = [
            max(p - self.a * (distance / total if total else 0.0) + self.b, 0.0)
            for p, distance in zip(usual, d, strict=True)
        ]
        below = plain_sum(raw)
        return [weight / below for weight in raw] if below > 0 else list(usual)


def discrepancy(class_counts: Tensor, measure: Measure) -> Tensor:
    """Distance [] float64 between the label distribution of class counts [C] and the uniform one.

    "l2" is ‖D − 1/C‖, √(1 − 1/C) for a client of one class. "kl" is KL(D ‖ uniform) in nats, log C for such a
    client. "cosine" is 1 minus the cosine of the two vectors. What rounding leaves of 0 is 0.
    """
    shares = class_counts.to(torch.float64) / class_counts.sum()
    classes = len(shares)
    distance: Tensor
    if measure == "l2":
        distance = (shares - 1.0 / classes).norm()
    elif measure == "cosine":
        distance = 1.0 - shares.sum() / (shares.norm() * classes**0.5)
    else:
        distance = torch.special.xlogy(shares, shares * classes).sum()
    return torch.where(distance < 1e-12, 0.0, distance)


@checked
def feddisco(
    a: Annotated[float, Range(0.0, 1e3), Doc("a, weight of the discrepancy; with b = 0, 0 is FedAvg.")] = 0.5,
    b: Annotated[float, Range(0.0, 1e3), Doc("b, added to every weight.")] = 0.1,
    measure: Annotated[
        Measure,
        Doc("Distance to the uniform distribution: kl (over its sum), l2 (as it is), or cosine (as it is)."),
    ] = "kl",
) -> Method:
    """FedDisco: clients whose classes are distributed less evenly weigh less in the mean.

    Equation:
        p_k ∝ max(n_k/Σn − a d_k + b, 0) (`DiscrepancyWeights`). A client reports one number more than FedAvg,
        d_k, which depends on its class counts alone. So weights are known before the round, secure
        aggregation is possible, and BatchNorm's statistics have the same weights.

    Source:
        Ye et al. 2023. a and b are the official code's, which has "kl" by default. Its shipped scripts do not
        turn the method on (`--disco 0`).

    Distances "l2" and "cosine" need a smaller a where clients miss classes: at two of ten classes d_k is at
    least 0.63 by "l2", so with these defaults no weight of ten clients is above 0. Then the weights are
    FedAvg's, where the official code fails.
    """
    changed = DiscrepancyWeights(a, b, measure) if a or b else None
    return Method("FedDisco", mean=Mean(reweighting=changed))
