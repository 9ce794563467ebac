"""Adaptive federated optimisation (Reddi et al. 2021): the mean update as a pseudo-gradient of the server's
optimiser.

Δ = mean_k (w_k − w^t). Without bias correction, as in the paper's Algorithm 2. Yogi in the authors'
repository and FedAdam in Flower have one: they multiply η_g by √(1 − β₂^t)/(1 − β₁^t), where t counts rounds
from 1 (in Flower from 2). BatchNorm's statistics are averaged as in FedAvg.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed import Mean, Method, Params, Private, ServerContext, ServerRule
from raffed.config.validation import Doc, Range, Strength, checked

Weighting = Literal["clients", "samples"]
MeanWeights = Annotated[
    Weighting, Doc("Weights of the mean update: equal for all clients, or by their samples.")
]
ServerRate = Annotated[
    float, Range(0.0, 100.0, open_low=True), Strength(), Doc("η_g, learning rate of the server.")
]
AdaptiveRate = Annotated[
    float,
    Range(0.0, 100.0, open_low=True),
    Strength(),
    Doc("η_g, learning rate of the server; tune over powers of ten."),
]
FirstDecay = Annotated[float, Range(0.0, 1.0), Doc("β₁, decay of the first moment.")]
SecondDecay = Annotated[float, Range(0.0, 1.0), Doc("β₂, decay of the second moment.")]
Floor = Annotated[float, Range(0.0, 1.0, open_low=True), Doc("τ, added to the root of the second moment.")]
SecondStart = Annotated[float, Range(0.0, 1.0), Doc("v₀, start of the second moment.")]
Second = Literal["adagrad", "adam", "yogi"]


class Velocity(Private):
    """m."""

    m: Params


class ServerMomentum(ServerRule[Velocity]):
    """m ← β m + Δ; w^{t+1} = w^t + η_g m."""

    beta: float
    lr: float

    def init(self, w: Params) -> Velocity:
        return Velocity(w.zeros())

    def step(self, own: Velocity, w: Params, mean: Params, k: ServerContext) -> tuple[Velocity, Params]:
        m = own.m * self.beta + (mean - w)
        return Velocity(m), w + m * self.lr


class Moments(Private):
    """m and v, the first and second moment of Δ."""

    m: Params
    v: Params


class ServerAdaptive(ServerRule[Moments]):
    """m ← β₁ m + (1 − β₁) Δ; w^{t+1} = w^t + η_g m/(√v + τ), with v by one of

    adagrad: v + Δ²; adam: β₂ v + (1 − β₂) Δ²; yogi: v − (1 − β₂) Δ² sign(v − Δ²). v starts at v0.
    """

    adaptive: ClassVar[bool] = True

    second: Second
    lr: float
    beta1: float
    beta2: float
    tau: float
    v0: float

    def init(self, w: Params) -> Moments:
        return Moments(w.zeros(), pytree.tree_map(lambda t: torch.full_like(t, self.v0), w).clone())

    def step(self, own: Moments, w: Params, mean: Params, k: ServerContext) -> tuple[Moments, Params]:
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


@checked
def fedavgm(
    beta: Annotated[float, Range(0.0, 1.0), Doc("β, momentum of the server.")] = 0.9,
    server_lr: ServerRate = 1.0,
    weighting: MeanWeights = "samples",
) -> Method:
    """FedAvgM: momentum on the server.

    Equation:
        m ← β m + Δ; w^{t+1} = w^t + η_g m. Weighting "samples" is the paper's Δ = Σ (n_k/n) (w_k − w^t):
        clients of 1 and 3 samples that moved by −1 and +1 give Δ = 0.5. "clients" is the uniform mean, Δ = 0
        there, of MAP's released code and of Reddi et al. 2021.

    Source:
        Hsu et al. 2019. MAP's row FedOpt, whose code searches η_g in 1, 0.1 and 0.05.

    This is the momentum of the paper's formula. Flower's baseline and FL-bench use Nesterov's, w^{t+1} =
    w^t + η_g (Δ + β m); Flower's text says that the paper's experiments do so as well, which was not
    verified.
    """
    return _with("FedAvgM", weighting, ServerMomentum(beta, server_lr))


@checked
def fedadagrad(
    server_lr: AdaptiveRate = 0.1,
    beta1: FirstDecay = 0.0,
    tau: Floor = 1e-3,
    v0: SecondStart = 1e-6,
    weighting: MeanWeights = "clients",
) -> Method:
    """FedAdagrad: Adagrad on the server.

    Equation:
        m ← β₁ m + (1 − β₁) Δ; v ← v + Δ²; w^{t+1} = w^t + η_g m/(√v + τ).

    Source:
        Reddi et al. 2021. β₁ = 0, v₀ = τ² and τ = 1e-3 are the paper's; η_g is to be tuned over powers of
        ten.
    """
    return _with("FedAdagrad", weighting, ServerAdaptive("adagrad", server_lr, beta1, 0.0, tau, v0))


@checked
def fedadam(
    server_lr: AdaptiveRate = 0.1,
    beta1: FirstDecay = 0.9,
    beta2: SecondDecay = 0.99,
    tau: Floor = 1e-3,
    v0: SecondStart = 1e-6,
    weighting: MeanWeights = "clients",
) -> Method:
    """FedAdam: Adam on the server.

    Equation:
        m ← β₁ m + (1 − β₁) Δ; v ← β₂ v + (1 − β₂) Δ²; w^{t+1} = w^t + η_g m/(√v + τ), without bias
        correction.

    Source:
        Reddi et al. 2021. β₁ = 0.9, β₂ = 0.99, v₀ = τ² and τ = 1e-3 are the paper's; η_g is to be tuned over
        powers of ten.
    """
    return _with("FedAdam", weighting, ServerAdaptive("adam", server_lr, beta1, beta2, tau, v0))


@checked
def fedyogi(
    server_lr: AdaptiveRate = 0.1,
    beta1: FirstDecay = 0.9,
    beta2: SecondDecay = 0.99,
    tau: Floor = 1e-3,
    v0: SecondStart = 1e-6,
    weighting: MeanWeights = "clients",
) -> Method:
    """FedYogi: Yogi on the server.

    Equation:
        As FedAdam, with v ← v − (1 − β₂) Δ² sign(v − Δ²), which changes by at most (1 − β₂) Δ².

    Source:
        Reddi et al. 2021, with FedAdam's defaults.
    """
    return _with("FedYogi", weighting, ServerAdaptive("yogi", server_lr, beta1, beta2, tau, v0))


def _with(name: str, weighting: Weighting, rule: ServerMomentum | ServerAdaptive) -> Method:
    """Return FedAvg with an optimiser of the server, and with means weighted as asked."""
    return Method(name, mean=Mean(by=weighting), server=rule)
