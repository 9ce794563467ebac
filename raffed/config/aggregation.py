"""Rules of aggregation as data: compression of uploads and robust means."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from raffed.config.validation import Doc, Range

# Compression of what clients upload, and its arguments. The arithmetic is in
# `raffed.core.ingredients.base`.


Feedback = Annotated[
    bool,
    Doc("Whether a client keeps what the compression left out, and adds it to its next update."),
]
NUMBER = 4  # bytes of a number that is sent as it is, and of the place of a number


@dataclass(frozen=True)
class TopK:
    """The k = ⌈fraction · d⌉ numbers of the update that are largest in absolute value; the others are 0.

    d is the number of all weights that are sent. Of equal numbers the first are taken. Source: Stich,
    Cordonnier and Jaggi 2018, with error feedback as in Karimireddy et al. 2019.
    """

    fraction: Annotated[
        float, Range(0.0, 1.0, open_low=True), Doc("Fraction of the numbers that is sent; 1: all of them.")
    ] = 0.01
    feedback: Feedback = True

    @property
    def changes_nothing(self) -> bool:
        """Whether all numbers are sent as they are."""
        return self.fraction == 1.0

    def kept(self, numbers: int) -> int:
        """Return k for an update of so many numbers d."""
        return min(numbers, max(1, math.ceil(self.fraction * numbers - 1e-9)))

    def nbytes(self, sizes: list[int]) -> int:
        """Return the bytes of an upload: k numbers, and their places as numbers or as one bit each.

        Args:
            sizes: Number of numbers of each tensor.
        """
        numbers = sum(sizes)
        kept = self.kept(numbers)
        places = 0 if kept == numbers else min(NUMBER * kept, math.ceil(numbers / 8))
        return NUMBER * kept + places


@dataclass(frozen=True)
class Quantize:
    """The update in steps of max |Δ| / (2^(bits − 1) − 1) of each tensor, rounded up or down at random.

    The chance of rounding up is the distance from the lower step, so the mean of what is sent is the update.
    Source: Alistarh et al. 2017 (QSGD), with the largest number of a tensor in place of its norm.
    """

    bits: Annotated[
        int, Range(2, 32), Doc("Bits of a number; 32: the numbers themselves, and nothing is rounded.")
    ] = 8
    feedback: Feedback = False

    @property
    def changes_nothing(self) -> bool:
        """Whether all numbers are sent as they are."""
        return self.bits == 8 * NUMBER

    @property
    def levels(self) -> int:
        """The number of steps from 0 to the largest number of a tensor."""
        return (1 << (self.bits - 1)) - 1

    def nbytes(self, sizes: list[int]) -> int:
        """Return the bytes of an upload: `bits` for each number, and the size of a step for each tensor.

        Args:
            sizes: Number of numbers of each tensor.
        """
        steps = 0 if self.changes_nothing else NUMBER * len(sizes)
        return math.ceil(sum(sizes) * self.bits / 8) + steps


CompressionRule: TypeAlias = TopK | Quantize
COMPRESSIONS: dict[str, Callable[..., CompressionRule]] = {"topk": TopK, "quantize": Quantize}


# Robust rules in place of the mean of the uploads, and their arguments. The arithmetic is in
# `raffed.core.aggregation.robust_means`. m is the number of uploads that count in a round.


Statistics = Annotated[
    Literal["rule", "mean"],
    Doc(
        "What becomes of BatchNorm's statistics. `rule` treats them as the weights are treated, and `mean` "
        "takes their plain mean."
    ),
]
Attackers = Annotated[int, Range(0), Doc("f, the number of uploads that may be arbitrary.")]


@dataclass(frozen=True)
class Median:
    """The median of every number. It has no weights; of an even number of uploads, it is the mean of the
    middle two (Yin et al. 2018).
    """

    weighted: ClassVar[bool] = False  # whether the weights p_k of the mean matter

    buffers: Statistics = "rule"

    def why_not(self, uploads: int) -> str:
        """Return why the rule cannot work with so many uploads in a round, or ""."""
        return ""


@dataclass(frozen=True)
class Trimmed(Median):
    """The mean of every number without its ⌊βm⌋ largest and ⌊βm⌋ smallest values, without weights (Yin et
    al. 2018).
    """

    beta: Annotated[
        float, Range(0.0, 0.4999), Doc("β, fraction of the uploads that is left out at each end.")
    ] = 0.2

    def cut(self, uploads: int) -> int:
        """Return ⌊βm⌋, the number of values that are left out at each end."""
        return math.floor(self.beta * uploads + 1e-9)

    def why_not(self, uploads: int) -> str:
        if self.beta and not self.cut(uploads):
            return (
                f"beta = {self.beta:g} leaves out none of {uploads} uploads; it needs "
                f"{math.ceil(1 / self.beta - 1e-9)} or more"
            )
        return ""


@dataclass(frozen=True)
class Krum(Median):
    """The one upload with the smallest sum of squared distances to its m − f − 2 nearest others.

    Of equal sums the smallest client is taken. Statistics are those of the chosen upload. Source: Blanchard
    et al. 2017.
    """

    f: Attackers = 1

    def why_not(self, uploads: int) -> str:
        if uploads < 2 * self.f + 3:
            return f"f = {self.f} needs 2f + 3 = {2 * self.f + 3} uploads in a round, but there are {uploads}"
        return ""


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The weighted mean of the q uploads with the smallest sums (see `Krum`)."""

    weighted: ClassVar[bool] = True
    keep: Annotated[int, Range(0), Doc("q, the number of uploads that are averaged; 0: m − f.")] = 0

    def kept(self, uploads: int) -> int:
        """Return q, which is at least 1 and at most m."""
        return max(1, min(self.keep or uploads - self.f, uploads))

    def why_not(self, uploads: int) -> str:
        if self.keep > uploads:
            return f"keep = {self.keep} is more than the {uploads} uploads of a round"
        return super().why_not(uploads)


@dataclass(frozen=True)
class GeometricMedian(Median):
    """The point with the smallest weighted sum of distances, by a few steps of Weiszfeld's algorithm.

    It becomes Σ β_k w_k with β_k proportional to p_k / max(ν, ‖w_k − v‖). Statistics take the same β_k.
    Source: Pillutla, Kakade, Harchaoui 2022 (RFA).
    """

    weighted: ClassVar[bool] = True
    nu: Annotated[float, Range(0.0, 1e6, open_low=True), Doc("ν, smallest distance that is told apart.")] = (
        1e-5
    )
    iterations: Annotated[int, Range(0), Doc("Largest number of steps; 0 is the mean.")] = 4
    tolerance: Annotated[
        float, Range(0.0, 1.0), Doc("Relative change of the sum of distances at which the steps end.")
    ] = 1e-6


@dataclass(frozen=True)
class NormBound(Median):
    """The weighted mean of the updates, each scaled down to a norm of at most S (Sun et al. 2019).

    The norm is taken over all weights. Statistics take the same factor.
    """

    weighted: ClassVar[bool] = True
    bound: Annotated[
        float, Range(0.0, 1e9), Doc("S, the largest norm of an update; 0: the median of the round's norms.")
    ] = 0.0


MeanRule: TypeAlias = Median | Trimmed | Krum | MultiKrum | GeometricMedian | NormBound
MEANS: dict[str, Callable[..., MeanRule]] = {
    "median": Median,
    "trimmed": Trimmed,
    "krum": Krum,
    "multi_krum": MultiKrum,
    "geometric_median": GeometricMedian,
    "norm_bound": NormBound,
}
