"""Compression of what clients upload, and its arguments. This module imports no torch.

The arithmetic is in `raffed.core.ingredients.compression`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from raffed.config.named_rules import settled_arguments
from raffed.config.validation import Doc, Range, Value

CompressionName = Annotated[
    Literal["", "topk", "quantize"],
    Doc("Compression of the weights that a client uploads; without it: none."),
]
CompressionArgs = Annotated[
    Mapping[str, Value], Doc("Argument of the compression, such as fraction=0.01; repeat for more.")
]
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


def settled_compression(name: str, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the arguments of a rule in one spelling (`raffed.config.named_rules.settled_arguments`)."""
    return settled_arguments("compression", COMPRESSIONS, name, given)


def compression_rule(name: str, args: Mapping[str, Value]) -> CompressionRule | None:
    """Return a compression with its arguments, or None for none."""
    return COMPRESSIONS[name](**args) if name else None


__all__ = [
    "COMPRESSIONS",
    "CompressionArgs",
    "CompressionName",
    "CompressionRule",
    "Quantize",
    "TopK",
    "compression_rule",
    "settled_compression",
]
