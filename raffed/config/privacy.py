"""What a run adds to protect the clients' privacy, as plain data. This module imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from raffed.config.validation import Doc, Range, check_fields
from raffed.errors import UsageError


@dataclass(frozen=True)
class Privacy:
    """Client-level differential privacy and secure aggregation.

    Sources: McMahan et al. 2018 (DP-FedAvg) and Bonawitz et al. 2017 (secure aggregation). This is a
    simulation: noise and masks are derived from the run's seed, and noise is sampled in floating point. Two
    federations count as neighbours if they differ in one client's update, which is replaced by zero. The
    weights p_i and the choice of participants are taken as publicly known.

    Raises:
        UsageError: A value is outside its range, or `noise` is given without `clip`.
    """

    clip: Annotated[
        float | None,
        Range(0.0, 1e9, open_low=True),
        Doc(
            "S, the largest allowed norm of a client's update w_i − w^t over all shared weights. Longer "
            "updates are scaled down to it. It is available only for methods that send weights and nothing "
            "else. Methods that also send messages or BatchNorm statistics are refused in the first round, "
            "since nothing would protect these."
        ),
    ] = None
    noise: Annotated[
        float, Range(0.0, 1e6), Doc("σ, the standard deviation of the noise in units of `clip`; 0: no noise.")
    ] = 0.0
    noise_at: Annotated[
        Literal["server", "client"],
        Doc(
            "Who adds the noise, the server or each client. `server` adds N(0, (σ · S · max_i p_i)²) to "
            "every number of the mean, so the server must be trusted. `client` adds N(0, (σ · S)²) to every "
            "number of each upload, which also protects against the server."
        ),
    ] = "server"
    delta: Annotated[
        float,
        Range(0.0, 0.5, open_low=True),
        Doc("δ of the (ε, δ) guarantee that is written into the metric rows."),
    ] = 1e-5
    masks: Annotated[
        bool,
        Doc(
            "Whether uploads are added up under pairwise masks that cancel in the sum, modulo 2^64. Then "
            "what leaves an actor reveals only the total of the clients whose uploads count. It needs a "
            "method whose server needs only sums. The set of these clients is known beforehand here: "
            "recovering the masks of clients that drop out is not simulated. Masks change no bit "
            "of the result."
        ),
    ] = False

    def __post_init__(self) -> None:
        check_fields("privacy", self)
        if self.noise and self.clip is None:
            raise UsageError(
                f"privacy.noise = {self.noise} is measured in units of privacy.clip; set privacy.clip "
                "(--clip-update) too"
            )
