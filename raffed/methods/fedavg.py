"""FedAvg (McMahan et al. 2017, Alg. 1): w^{t+1} = Σ_i (n_i / n) w_i, n over the round's participants."""

from __future__ import annotations

from raffed.core.method import Method


def fedavg() -> Method:
    """FedAvg. Reproduces the row FedAvg of every table."""
    return Method("FedAvg")
