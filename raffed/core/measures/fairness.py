"""How unequal a model's accuracy is over clients."""

from __future__ import annotations

import math
from collections.abc import Sequence


def worst_decile(accuracies: Sequence[float]) -> float:
    """Return the mean accuracy of the tenth of the clients with the lowest ones, ⌈N / 10⌉ of N clients.

    Source: Li et al. 2020, "Fair Resource Allocation in Federated Learning" (q-FFL), table 1.

    Args:
        accuracies: The accuracy of each client, fractions in [0, 1].

    Returns:
        A fraction in [0, 1]; NaN without clients.
    """
    lowest = sorted(accuracies)[: math.ceil(len(accuracies) / 10)]
    return sum(lowest) / len(lowest) if lowest else math.nan


def spread(accuracies: Sequence[float]) -> float:
    """Return the standard deviation over clients, √(1/N Σ (a_i − ā)²).

    Args:
        accuracies: The accuracy of each client, fractions in [0, 1].

    Returns:
        A fraction in [0, 0.5]; NaN without clients.
    """
    if not accuracies:
        return math.nan
    mean = sum(accuracies) / len(accuracies)
    return math.sqrt(sum((one - mean) ** 2 for one in accuracies) / len(accuracies))


__all__ = ["spread", "worst_decile"]
