"""FedAvg (McMahan et al. 2017, Alg. 1): w^{t+1} = Σ_i (n_i / n) w_i, n over the round's participants."""

from __future__ import annotations

from raffed import Method
from raffed.config.validation import checked


@checked
def fedavg() -> Method:
    """FedAvg: the server takes the sample-weighted mean of the local models.

    Equation:
        w^{t+1} = Σ_i (n_i / n) w_i, with n the number of samples of the round's participants.

    Source:
        McMahan et al. 2017, Algorithm 1. Reproduces the row FedAvg of every table.
    """
    return Method("FedAvg")
