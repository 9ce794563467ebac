"""What a run adds to protect the clients' privacy, as plain data. This module imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from raffed.errors import UsageError, check_choice, check_range

PLACES = ("server", "client")


@dataclass(frozen=True)
class Privacy:
    """Client-level differential privacy and secure aggregation.

    Sources: McMahan et al. 2018 (DP-FedAvg) and Bonawitz et al. 2017 (secure aggregation). This is a
    simulation: noise and masks are derived from the run's seed, and noise is sampled in floating point. Two
    federations count as neighbours if they differ in one client's update, which is replaced by zero. The
    weights p_i and the choice of participants are taken as publicly known.

    Attributes:
        clip: S, the largest allowed norm of a client's update w_i − w^t over all shared weights, in (0, 1e9].
            Longer updates are scaled down to it. It is available only for methods that send weights and
            nothing else. Methods that also send messages or BatchNorm statistics are refused in the first
            round, since nothing would protect these. Default None: no limit.
        noise: σ, the standard deviation of the noise in units of S, in [0, 1e6]. It needs `clip`. Default 0:
            no noise.
        noise_at: Who adds the noise. "server" (the default) adds N(0, (σ · S · max_i p_i)²) to every number
            of the mean, so the server must be trusted. "client" adds N(0, (σ · S)²) to every number of each
            upload, which also protects against the server.
        delta: δ of the (ε, δ) guarantee that is written into the metric rows, in (0, 0.5]. Default 1e-5.
        masks: Whether uploads are added up under pairwise masks that cancel in the sum, modulo 2^64. Then
            what leaves an actor reveals only the total of the clients whose uploads count. It needs a method
            whose server needs only sums. The set of these clients is known beforehand here: recovering the
            masks of clients that drop out is not simulated. Masks change no bit of the result. Default False.

    Raises:
        UsageError: A value is outside its range, or `noise` is given without `clip`.
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
