"""Adaptive federated optimisation (Reddi et al. 2021): the mean update as a pseudo-gradient of the server's
optimiser.

Δ = mean_k (w_k − w^t). Without bias correction. BatchNorm's statistics are averaged as ever.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.core.context import ServerContext
from raffed.core.messages import Private
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.server import Mean, ServerRule
from raffed.errors import check_choice, check_range

Weighting = Literal["clients", "samples"]
WEIGHTINGS: tuple[str, ...] = get_args(Weighting)
Second = Literal["adagrad", "adam", "yogi"]


class Velocity(Private):
    """m."""

    m: Params


class ServerMomentum(ServerRule):
    """m ← β m + Δ; w^{t+1} = w^t + η_g m."""

    beta: float
    lr: float

    def init(self, w: Params) -> Velocity:
        return Velocity(w.zeros())

    def step(self, own: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Velocity, Params]:
        m = own.m * self.beta + (mean - w)
        return Velocity(m), w + m * self.lr


class Moments(Private):
    """m and v, the first and second moment of Δ."""

    m: Params
    v: Params


class ServerAdaptive(ServerRule):
    """m ← β₁ m + (1 − β₁) Δ; w^{t+1} = w^t + η_g m/(√v + τ), with v by one of

    adagrad: v + Δ²; adam: β₂ v + (1 − β₂) Δ²; yogi: v − (1 − β₂) Δ² sign(v − Δ²). v starts at v0.
    """

    second: Second
    lr: float
    beta1: float
    beta2: float
    tau: float
    v0: float

    def init(self, w: Params) -> Moments:
        return Moments(w.zeros(), pytree.tree_map(lambda t: torch.full_like(t, self.v0), w).clone())

    def step(self, own: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Moments, Params]:
        delta = mean - w
        m = own.m * self.beta1 + delta * (1 - self.beta1)
        v = pytree.tree_map(self._moment, own.v, delta).clone()
        step = pytree.tree_map(lambda a, b: a / (b.sqrt() + self.tau), m, v).clone()
        return Moments(m, v), w + step * self.lr

    def _moment(self, v: Tensor, delta: Tensor) -> Tensor:
        square = delta.square()
        if self.second == "adagrad":
            return v + square
        if self.second == "adam":
            return self.beta2 * v + (1 - self.beta2) * square
        return v - (1 - self.beta2) * square * (v - square).sign()


def fedavgm(beta: float = 0.9, server_lr: float = 1.0, weighting: Weighting = "samples") -> Method:
    """FedAvgM (Hsu et al. 2019): server momentum β in [0, 1]. MAP's row FedOpt, whose code searches η_g in 1,
    0.1, 0.05.

        weighting: "samples" is the paper's Δ = Σ (n_k/n) (w_k − w^t): clients of 1 and 3 samples that moved
        by −1 and +1 give Δ = 0.5. "clients" is the uniform mean, Δ = 0 there, of MAP's released code and of
        Reddi et al. 2021.
    """
    check_range("beta", beta, 0.0, 1.0)
    check_range("server_lr", server_lr, 0.0, 100.0, open_low=True)
    return Method("FedAvgM", mean=_mean(weighting), server=ServerMomentum(beta, server_lr))


def fedadagrad(
    server_lr: float = 0.1,
    beta1: float = 0.0,
    tau: float = 1e-3,
    v0: float = 1e-6,
    weighting: Weighting = "clients",
) -> Method:
    """FedAdagrad: β₁ = 0, v₀ = τ² and τ = 1e-3 are the paper's; η_g is to be tuned over powers of ten."""
    return _adaptive("FedAdagrad", "adagrad", server_lr, beta1, 0.0, tau, v0, weighting)


def fedadam(
    server_lr: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    v0: float = 1e-6,
    weighting: Weighting = "clients",
) -> Method:
    """FedAdam: β₁ = 0.9, β₂ = 0.99, v₀ = τ² and τ = 1e-3 are the paper's; η_g is to be tuned over powers
    of ten.
    """
    return _adaptive("FedAdam", "adam", server_lr, beta1, beta2, tau, v0, weighting)


def fedyogi(
    server_lr: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    v0: float = 1e-6,
    weighting: Weighting = "clients",
) -> Method:
    """FedYogi: as FedAdam, with a second moment that changes by at most (1 − β₂) Δ²."""
    return _adaptive("FedYogi", "yogi", server_lr, beta1, beta2, tau, v0, weighting)


def _adaptive(
    name: str,
    second: Second,
    server_lr: float,
    beta1: float,
    beta2: float,
    tau: float,
    v0: float,
    weighting: str,
) -> Method:
    check_range("server_lr", server_lr, 0.0, 100.0, open_low=True)
    check_range("beta1", beta1, 0.0, 1.0)
    check_range("beta2", beta2, 0.0, 1.0)
    check_range("tau", tau, 0.0, 1.0, open_low=True)
    check_range("v0", v0, 0.0, 1.0)
    return Method(
        name, mean=_mean(weighting), server=ServerAdaptive(second, server_lr, beta1, beta2, tau, v0)
    )


def _mean(weighting: str) -> Mean:
    check_choice("weighting", weighting, WEIGHTINGS)
    return Mean(by="clients" if weighting == "clients" else "samples")
