"""FedExP (Jhunjhunwala et al. 2023): the server goes beyond the mean where clients' updates disagree."""

from __future__ import annotations

from typing import Annotated, Literal

from raffed import Context, Ingredient, Mean, Method, Params, Private, ServerContext, ServerRule, Summable
from raffed.config.validation import Doc, Range, checked
from raffed.methods.fedopt import MeanWeights

Score = Literal["average", "last"]
EpsilonScale = Literal["paper", "code"]


class SquaredNorms(Summable):
    """n_k ‖Δ_k‖², or ‖Δ_k‖² where the mean is uniform: one number beside the weights."""

    fraction_bits = 24  # in steps of 2^-24, up to 2^38

    weighted: float


class UpdateNorm(Ingredient[None, SquaredNorms]):
    """Sends the squared norm of Δ_k = w_k − w^t over all parameters, without BatchNorm's statistics."""

    uniform: bool = False

    def finish(self, k: Context) -> tuple[None, SquaredNorms]:
        square = squared_distance(k.w, k.w0)
        return None, SquaredNorms(square if self.uniform else int(k.class_counts.sum()) * square)


def squared_distance(a: Params, b: Params) -> float:
    """‖a − b‖², computed in float64."""
    return float((a.flat.double() - b.flat.double()).square().sum())


class EarlierModel(Private):
    """w^t, which is scored together with w^{t+1}. After the first round it is w^1 itself."""

    w: Params


class Extrapolation(ServerRule[EarlierModel | None]):
    """w^{t+1} = w^t + η_g Δ̄ with η_g = max(1, Σ p_k ‖Δ_k‖² / (2 (‖Δ̄‖² + ε'))).

    Where η_g is 1, w^{t+1} is FedAvg's mean bit for bit. ε' is ε, or |S| ε if `per_client`. If `average`, the
    global model that is scored is (w^t + w^{t+1}) / 2, after the first round w^1. BatchNorm's statistics are
    averaged as in FedAvg.
    """

    epsilon: float
    per_client: bool = False
    average: bool = True
    uniform: bool = False

    def init(self, w: Params) -> EarlierModel | None:
        return EarlierModel(w) if self.average else None

    def step(
        self, own: EarlierModel | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[EarlierModel | None, Params]:
        told = k.received["message"].sum
        assert isinstance(told, SquaredNorms)
        ratio = told.weighted / (k.count if self.uniform else k.samples)
        floor = self.epsilon * (k.count if self.per_client else 1)
        rate = extrapolation(ratio, squared_distance(mean, w), floor)
        moved = mean if rate == 1.0 else w + (mean - w) * rate
        if not self.average:
            return None, moved
        return EarlierModel(w if k.round else moved), moved

    def evaluation_weights(self, own: EarlierModel | None, w: Params) -> Params:
        return w if own is None else (own.w + w) * 0.5


def extrapolation(mean_square: float, square_of_mean: float, epsilon: float) -> float:
    """η_g from Σ p_k ‖Δ_k‖², ‖Δ̄‖² and ε'. It is 1 where ‖Δ̄‖² + ε' is 0."""
    below = 2 * (square_of_mean + epsilon)
    return max(1.0, mean_square / below) if below else 1.0


@checked
def fedexp(
    epsilon: Annotated[
        float, Range(0.0, 1e6), Doc("ε, added to ‖Δ̄‖². The larger it is, the closer is the method to FedAvg.")
    ] = 1e-3,
    score: Annotated[
        Score,
        Doc("Global model that is scored: the mean of the last two (average), or the last one (last)."),
    ] = "average",
    epsilon_scale: Annotated[
        EpsilonScale, Doc("What is added to ‖Δ̄‖²: ε (paper), or ε times the number of participants (code).")
    ] = "paper",
    weighting: MeanWeights = "samples",
) -> Method:
    """FedExP: the server goes further than the mean, the more so the more the clients' updates disagree.

    Equation:
        w^{t+1} = w^t + η_g Δ̄; η_g = max(1, Σ p_k ‖Δ_k‖² / (2 (‖Δ̄‖² + ε'))) (`Extrapolation`). With score
        "average", w^{t+1} itself is also scored, as accuracy_broadcast.

    Source:
        Jhunjhunwala et al. 2023. The official code has weights p_k by samples, ε 1e-3 for CIFAR-10, CIFAR-100
        and CINIC-10 and 0.1 for EMNIST, and scores the mean of the last two models. The paper's means are
        uniform (weighting "clients").

    The authors' runs: rate 0.01 for CIFAR-10, gradients bounded by 10 (`--clip-norm`), weight decay 1e-4,
    batches of 50, and 20 steps a round.

    Departures: ε is constant, where the official code multiplies it by 0.998² in every round, as it
    multiplies the clients' rate by 0.998. The paper scores the mean of the last iterates, and the official
    code that of two, which is taken here.
    """
    uniform = weighting == "clients"
    return Method(
        "FedExP",
        message=UpdateNorm(uniform),
        server=Extrapolation(epsilon, epsilon_scale == "code", score == "average", uniform),
        mean=Mean(by=weighting, fixed=True),  # η_g has the same weights
    )
