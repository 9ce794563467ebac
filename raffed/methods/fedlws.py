"""FedLWS (Shi et al. 2025): the server shrinks each layer of the mean by how much clients disagree in it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch

from raffed import Method, Params, ServerContext, ServerRule
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.errors import UsageError

Layers = Literal["module", "code"]
Spread = Literal["norm", "rms"]


class LayerwiseShrinking(ServerRule[None]):
    """w_l^{t+1} = γ_l ŵ_l of each layer l, ŵ = Σ p_k w_k and γ_l = ‖w_l^t‖/(‖w_l^t‖ + τ_l ‖ŵ_l − w_l^t‖).

    τ_l is β times the spread of the updates within [low, high]. The spread is the mean over clients of
    ‖Δ_k,l − mean_j Δ_j,l‖ ("norm"), or the root of the mean of its square ("rms"). Both means are uniform. A
    layer of zeros has γ = 1, because with the formula's 0 it would stay 0 for ever. All is computed in
    float64. BatchNorm's statistics are averaged.
    """

    beta: float
    low: float
    high: float
    layers: str = "module"
    spread: str = "norm"

    each: ClassVar[bool] = True

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        uploads = [upload.w for upload in k.uploads]
        shrunk: dict[str, torch.Tensor] = {}
        for names in layers_of(w.names, self.layers):
            factor = self.factor(flat(w, names), flat(mean, names), [flat(sent, names) for sent in uploads])
            shrunk |= {name: mean[name] * factor for name in names}
        return None, Params({name: shrunk[name] for name in w.names}).clone()

    def factor(self, w: torch.Tensor, mean: torch.Tensor, uploads: list[torch.Tensor]) -> float:
        """Return γ of a layer from w^t [n], ŵ [n] and the uploads [n] in float64."""
        centre = sum(uploads[1:], uploads[0]) / len(uploads)
        apart = torch.stack([(upload - centre).norm() for upload in uploads])
        spread = apart.square().mean().sqrt() if self.spread == "rms" else apart.mean()
        tau = (self.beta * spread).clamp(self.low, self.high)
        length = w.norm()
        return float(length / (length + tau * (mean - w).norm())) if length else 1.0


def flat(point: Params, names: list[str]) -> torch.Tensor:
    """Return the numbers of some tensors as one vector in float64."""
    return torch.cat([point[name].flatten() for name in names]).double()


def layers_of(names: tuple[str, ...], rule: str) -> list[list[str]]:
    """Return the names of the parameters of each layer.

    Args:
        names: Names of all parameters, in the network's order.
        rule: "module" for the parameters of one module, or "code" for all up to the next name with "bias" in
            it, as in the authors' code. What follows the last one is a layer there too.
    """
    layers: dict[str, list[str]] = {}
    closed = 0
    for name in names:
        key = name.rpartition(".")[0] if rule == "module" else str(closed)
        layers.setdefault(key, []).append(name)
        closed += "bias" in name
    return list(layers.values())


@checked
def fedlws(
    beta: Annotated[
        float, Range(0.0, 1e3), Strength(), Doc("β, weight of the spread of the clients' updates.")
    ] = 0.03,
    low: Annotated[
        float, Range(0.0, 0.9), Doc("Least value of τ; with β = 0 and low = 0 it is FedAvg.")
    ] = 0.01,
    high: Annotated[float, Range(0.0, 100.0), Doc("Largest value of τ.")] = 0.2,
    layers: Annotated[
        Layers, Doc("What a layer is: the parameters of a module, or all up to the next bias (code).")
    ] = "module",
    spread: Annotated[
        Spread,
        Doc("Spread of the updates: mean of their distances to the mean (norm), or its square's root (rms)."),
    ] = "norm",
) -> Method:
    """FedLWS: each layer of the mean is shrunk, the more so the more the clients' updates disagree in it.

    Equation:
        w_l^{t+1} = γ_l ŵ_l, γ_l = ‖w_l^t‖/(‖w_l^t‖ + τ_l ‖ŵ_l − w_l^t‖), τ_l = clamp(β · spread_l, low, high)
        (`LayerwiseShrinking`). Nothing more is sent than in FedAvg, but the server needs every upload.

    Source:
        Shi, Li, Zhao, Guo & Chang, ICLR 2025, arXiv 2503.15111, and the official code (ChanglongShi/FedLWS),
        whose β, low and high are the defaults. `spread="norm"` is that code; "rms" is the root of a variance,
        as the paper speaks of one.

    The authors' runs: rate 0.08, multiplied by 0.99 after every round, momentum 0.9 whose velocity a client
    keeps over rounds (`--keep-optimizer`), weight decay 5e-4, batches of 128, one epoch, 200 rounds, 20
    clients of a Dirichlet split at 0.5. They report the best round on the test set, and the mean of the ten
    best.

    Departures: in the official code a layer ends at the next name with "bias", BatchNorm's statistics and
    counters belong to the layer after them and are shrunk with it, and a network that does not end with a
    bias cannot run. With `layers="code"` layers end there, but statistics are averaged and are part of no
    layer. A layer of zeros, which that code leaves at 0, takes the mean.
    """
    if low > high:
        raise UsageError(f"fedlws: low = {low:g} is above high = {high:g}; give low at most high")
    return Method("FedLWS", server=LayerwiseShrinking(beta, low, high, layers, spread))
