"""Compute (ε, δ) of a run's noise by Rényi differential privacy, with opacus (extra `privacy`)."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping

from raffed.config.privacy import Privacy
from raffed.results.metric import Row
from raffed.results.metrics import EPSILON_POISSON, EPSILON_SPENT

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 80, 96, 128, 192, 256, 512, 1024)

# Warning filters belong to the process, so two runs must not change them at the same time
_filters = threading.Lock()


def epsilon(noise: float, rounds: int, delta: float, rate: float = 1.0) -> float:
    """Return ε at `delta` after `rounds` Gaussian mechanisms.

    ε = min over orders a > 1 of RDP(a) + log((a − 1)/a) − (log δ + log a)/(a − 1). At rate 1, RDP(a) = rounds
    · a / (2σ²).

    Args:
        noise: Noise multiplier σ.
        rounds: Number of mechanisms.
        delta: δ.
        rate: Rate of the Poisson samples, in (0, 1]; 1 means that everyone takes part.
    """
    return epsilon_of(noise, {rate: rounds}, delta)


def epsilon_of(noise: float, rounds: Mapping[float, int], delta: float) -> float:
    """Return ε at `delta` after Gaussian mechanisms at several rates, whose RDP(a) are added up.

    Args:
        noise: Noise multiplier σ.
        rounds: Rate of the Poisson samples, in (0, 1] → number of mechanisms.
        delta: δ.
    """
    from opacus.accountants.analysis import rdp

    made = {rate: steps for rate, steps in rounds.items() if steps}
    if not made:
        return 0.0
    parts = [
        rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=ORDERS)
        for rate, steps in made.items()
    ]
    spent = sum(parts[1:], start=parts[0])
    # At the first or last order ε is slightly larger than necessary, but valid
    with (
        _filters,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        found, _ = rdp.get_privacy_spent(orders=ORDERS, rdp=spent, delta=delta)
    return float(found)


class Accountant:
    """Count how often each client took part."""

    def __init__(self, privacy: Privacy) -> None:
        self._privacy, self._visits, self._rounds = privacy, Counter[int](), Counter[float]()

    def add(self, clients: Iterable[int], rate: float) -> None:
        """Count a round with these clients, whether or not their uploads counted.

        Args:
            clients: The participants.
            rate: Fraction of the clients that is drawn. It differs between the rounds of a run and those of
                its fork.
        """
        self._visits.update(clients)
        self._rounds[rate] += 1

    def rows(self, number: int) -> list[Row]:
        """Return the rows after `number` rounds.

        `epsilon` holds for the client that took part most often, even if it is known who takes part.
        `epsilon_poisson`, for noise at the server, is the figure that is usually reported: it assumes that
        every client takes part in every round with probability round(Q·N) / N, independently and in secret.
        Runs draw exactly round(Q·N) clients, for which it is not a bound.
        """
        privacy = self._privacy
        if not privacy.noise:
            return []
        worst = max(self._visits.values(), default=0)
        rows = [EPSILON_SPENT.row(number, epsilon(privacy.noise, worst, privacy.delta), n=worst)]
        if privacy.noise_at == "server":
            spent = epsilon_of(privacy.noise, self._rounds, privacy.delta)
            rows.append(EPSILON_POISSON.row(number, spent, n=number))
        return rows
