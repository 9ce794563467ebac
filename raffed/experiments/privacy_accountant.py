"""What a run's noise amounts to: (ε, δ) by Rényi differential privacy, reckoned by opacus (extra
`privacy`).
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Iterable

from raffed.config.privacy import Privacy
from raffed.results.schema import Row

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 80, 96, 128, 192, 256, 512, 1024)

_filters = (
    threading.Lock()
)  # the filters of warnings belong to the process: of two runs that change them one at a time does


def epsilon(noise: float, rounds: int, delta: float, rate: float = 1.0) -> float:
    """ε at `delta` of `rounds` Gaussian mechanisms of noise multiplier σ, on Poisson samples of this rate (1:
    all).

    ε = min over orders a > 1 of RDP(a) + log((a − 1)/a) − (log δ + log a)/(a − 1); at rate 1, RDP(a) =
    rounds · a / (2σ²).
    """
    from opacus.accountants.analysis import rdp

    if not rounds:
        return 0.0
    spent = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=rounds, orders=ORDERS)
    with (
        _filters,
        warnings.catch_warnings(),
    ):  # at an end of the orders ε is a little larger than need be, and as valid
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        found, _ = rdp.get_privacy_spent(orders=ORDERS, rdp=spent, delta=delta)
    return float(found)


class Accountant:
    """Counts how often each client took part."""

    def __init__(self, privacy: Privacy, participation: float) -> None:
        self._privacy, self._rate, self._visits = privacy, participation, Counter[int]()

    def add(self, clients: Iterable[int]) -> None:
        """A round with these clients, whether or not their uploads counted."""
        self._visits.update(clients)

    def rows(self, number: int) -> list[Row]:
        """After `number` rounds: `epsilon` holds for the client that took part most often, whoever knows who
        takes part.

        `epsilon_poisson`, for noise at the server, is the figure usually reported: every client in
        every round with probability Q by itself and in secret. Runs draw round(Q·N) clients, for
        which it is no bound.
        """
        privacy = self._privacy
        if not privacy.noise:
            return []
        worst = max(self._visits.values(), default=0)
        rows = [("epsilon", epsilon(privacy.noise, worst, privacy.delta), worst)]
        if privacy.noise_at == "server":
            rows.append(
                ("epsilon_poisson", epsilon(privacy.noise, number, privacy.delta, self._rate), number)
            )
        return [Row(number, "global", "train", name, value, n=n) for name, value, n in rows]
