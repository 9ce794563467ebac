"""What a run adds for the clients' privacy: a plan as plain data. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from raffed.errors import UsageError, check_choice, check_range

PLACES = ("server", "client")


@dataclass(frozen=True)
class Privacy:
    """Client-level differential privacy (McMahan et al. 2018, DP-FedAvg) and secure aggregation (Bonawitz et
    al. 2017).

        clip: S, the largest norm of a client's update w_i − w^t over all shared weights; longer ones are
          scaled to it. None: no limit. For methods that send weights and nothing else (no messages, no
          BatchNorm statistics): the others are refused in the first round, since nothing would cover what
          they send besides.
        noise: σ, in units of S. noise_at "server": N(0, (σ · S · max_i p_i)²) on every number of the mean, by
          a server that is trusted. "client": N(0, (σ · S)²) on every number of each upload, so that it holds
          against the server too.
        delta: δ of the (ε, δ) in the rows. Neighbours differ in one client's update, replaced by zero; the
          weights p_i and who takes part are taken as known.
        masks: uploads are added up under pairwise masks that cancel in the sum, mod 2^64: what leaves an
          actor tells nothing but the total of the clients whose uploads count. Needs a method of which the
          server needs sums only. That set is known beforehand here: how masks of clients that drop out are
          recovered is not simulated. Changes no bit.

        A simulation: noise and masks come from the run's seed, and noise is sampled in floating point.
    """

    clip: float | None = None
    noise: float = 0.0
    noise_at: str = "server"
    delta: float = 1e-5
    masks: bool = False

    def __post_init__(self) -> None:
        if self.clip is not None:
            check_range("privacy.clip", self.clip, 0.0, 1e9, open_low=True)
        check_range("privacy.noise", self.noise, 0.0, 1e6)
        check_choice("privacy.noise_at", self.noise_at, PLACES)
        check_range("privacy.delta", self.delta, 0.0, 0.5, open_low=True)
        if self.noise and self.clip is None:
            raise UsageError(f"privacy.noise = {self.noise} is in units of privacy.clip, which is not given")
