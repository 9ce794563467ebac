"""FedACG (Kim et al. 2024): clients begin where the server's momentum is about to lead."""

from __future__ import annotations

from typing import Annotated

from raffed import Mean, Method, Params, Private, ServerContext, ServerRule
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.server import Assign
from raffed.methods.fedprox import Proximal


class Base(Private):
    """w^t, which is scored, and the momentum m^t. The broadcast is w^t + λ m^t."""

    w: Params
    m: Params


class Lookahead(ServerRule[Base]):
    """w^{t+1} = mean_S w_k; m^{t+1} = λ m^t + mean_S w_k − (w^t + λ m^t); broadcast is w^{t+1} + λ m^{t+1}.

    So w^{t+1} = w^t + m^{t+1}. The weights that are evaluated are w^{t+1}. BatchNorm's statistics are
    averaged.
    """

    lam: float

    def init(self, w: Params) -> Base:
        return Base(w, w.zeros())

    def step(self, own: Base, w: Params, mean: Params, k: ServerContext) -> tuple[Base, Params]:
        m = own.m * self.lam + (mean - w)
        return Base(mean, m), mean + m * self.lam

    def evaluation_weights(self, own: Base, w: Params) -> Params:
        return own.w


@checked
def fedacg(
    lam: Annotated[
        float, Range(0.0, 0.9999), Strength(), Doc("λ, momentum of the server; 0 leaves it out.")
    ] = 0.85,
    beta: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("β, weight of the pull to the broadcast; 0 leaves it out.")
    ] = 1e-3,
) -> Method:
    """FedACG: the server sends the point to which its momentum is about to lead, and clients stay near it.

    Equation:
        Clients begin at w^t + λ m^t and minimise f_k(w) + β ‖w − (w^t + λ m^t)‖². w^{t+1} = mean_S w_k;
        m^{t+1} = λ m^t + mean_S (w_k − w^t − λ m^t) (`Lookahead`). Means are uniform. w^{t+1} is scored, and
        what is sent is also scored, as accuracy_broadcast. Nothing more is sent than in FedAvg. With λ = 0 it
        is FedProx with μ = 2β and uniform means.

    Source:
        Kim, Kim & Han, CVPR 2024, arXiv 2201.03172, and the official code (geehokim/FedACG), whose λ is 0.85
        and β 1e-3. β is written as in that code, without ½. A weight β/2 is half of this β.

    The authors' runs: rate 0.1, multiplied by 0.998 or 0.995 after every round, and once more after every
    local epoch; weight decay 1e-3, no momentum, 5 epochs, batches of 50, gradients bounded by 10
    (`--clip-norm`); 100 clients of which 5 % take part, or 500 of which 2 % do, 1,000 rounds.

    Departures: the decay within a round, which begins again in every round, is no schedule of raffed's. The
    official code also adds the momentum to BatchNorm's statistics, which are averaged here; its networks have
    none by default.
    """
    return Method(
        "FedACG",
        terms=(Proximal(2 * beta),) if beta else (),
        mean=Mean(by="clients"),
        server=Lookahead(lam) if lam else Assign(),
    )
